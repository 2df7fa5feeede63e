// Messages about membership as bytes: little-endian numbers, lists and texts with their length in
// front, every one bounded. What is decoded obeys the order that view.h promises.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/messages.h"
#include "worker/sentinel/membership_message.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kMaxHost = 253;
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 62;
/// Beside the kind: every seat has its domain behind it.
constexpr std::uint8_t kWithDomains = 0x80;

class Writer {
 public:
  /// Of a message with domains.
  bool has_domains = false;
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<std::byte>(value)); }
  void u64(std::uint64_t value) { little(value, 8); }
  void i64(std::int64_t value) { little(static_cast<std::uint64_t>(value), 8); }
  void u32(std::uint32_t value) { little(value, 4); }
  void i32(int value) { little(static_cast<std::uint32_t>(value), 4); }
  void text(const std::string& value, std::size_t most) {
    const std::size_t bytes = std::min(value.size(), most);
    u32(static_cast<std::uint32_t>(bytes));
    const auto* data = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), data, data + bytes);
  }
  template <typename T, typename One>
  void list(const std::vector<T>& values, One one) {
    u32(static_cast<std::uint32_t>(values.size()));
    for (const T& value : values) one(value);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void little(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) u8(static_cast<std::uint8_t>(value >> (8 * i)));
  }
  std::vector<std::byte> bytes_;
};

/// After the first thing that cannot be right everything reads as 0 and ok() is false.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  bool has_domains = false;     ///< of a message with domains
  bool is_domain_seen = false;  ///< one was not kUnknownDomain
  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }
  void fail() { ok_ = false; }
  std::uint64_t u64() { return little(8); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(little(4)); }
  std::uint8_t u8() { return static_cast<std::uint8_t>(little(1)); }
  bool flag() {
    const std::uint8_t value = u8();
    if (value > 1) fail();
    return value == 1;
  }
  /// Within [0, most].
  std::int64_t number(std::int64_t most = kMaxNumber) {
    const auto value = static_cast<std::int64_t>(u64());
    return check(value, most);
  }
  int small(int most) { return static_cast<int>(check(static_cast<std::int32_t>(u32()), most)); }
  std::string text(std::size_t most) {
    const std::uint32_t bytes = u32();
    if (!ok_ || bytes > most || bytes > in_.size()) return fail(), std::string();
    std::string value(reinterpret_cast<const char*>(in_.data()), bytes);
    in_ = in_.subspan(bytes);
    return value;
  }
  template <typename T, typename One>
  std::vector<T> list(std::size_t most, One one) {
    const std::uint32_t count = u32();
    std::vector<T> values;
    if (!ok_ || count > most || count > in_.size()) return fail(), values;
    for (std::uint32_t i = 0; ok_ && i < count; ++i) values.push_back(one());
    return values;
  }

 private:
  std::int64_t check(std::int64_t value, std::int64_t most) {
    if (value >= 0 && value <= most) return value;
    fail();
    return 0;
  }
  std::uint64_t little(std::size_t bytes) {
    if (!ok_ || in_.size() < bytes) return fail(), 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      value |= std::to_integer<std::uint64_t>(in_[i]) << (8 * i);
    }
    in_ = in_.subspan(bytes);
    return value;
  }
  std::span<const std::byte> in_;
  bool ok_ = true;
};

void put(Writer& out, WorkerId id) {
  out.i32(id.slot);
  out.i32(id.attempt);
}

WorkerId get_id(Reader& in) {
  const int slot = in.small(kMaxWorkers - 1);
  return {slot, in.small(1'000'000'000)};
}

void put(Writer& out, const Seat& seat) {
  put(out, seat.id);
  out.text(seat.host, kMaxHost);
  out.i32(seat.sentinel_port);
  out.i32(seat.processes);
  out.list(seat.trainers, [&](const TrainerPlace& one) {
    out.i32(one.local_rank);
    out.i64(one.incarnation);
    out.i32(one.port);
  });
  if (out.has_domains) out.u64(seat.domain);
}

Seat get_seat(Reader& in) {
  Seat seat;
  seat.id = get_id(in);
  seat.host = in.text(kMaxHost);
  seat.sentinel_port = in.small(65535);
  seat.processes = in.small(kMaxProcesses);
  seat.trainers = in.list<TrainerPlace>(kMaxProcesses, [&] {
    TrainerPlace one;
    one.local_rank = in.small(kMaxProcesses - 1);
    one.incarnation = in.number();
    one.port = in.small(65535);
    return one;
  });
  for (std::size_t i = 1; i < seat.trainers.size(); ++i) {
    if (seat.trainers[i - 1].local_rank >= seat.trainers[i].local_rank) in.fail();
  }
  if (in.has_domains) seat.domain = in.u64();
  in.is_domain_seen = in.is_domain_seen || seat.domain != kUnknownDomain;
  return seat;
}

void put(Writer& out, const std::vector<WorkerId>& ids) {
  out.list(ids, [&](WorkerId id) { put(out, id); });
}

std::vector<WorkerId> get_ids(Reader& in) {
  return in.list<WorkerId>(2 * kMaxWorkers, [&] { return get_id(in); });
}

void put(Writer& out, const View& view) {
  out.i64(view.epoch);
  out.i64(view.base);
  out.i64(view.urgent_epoch);
  out.u64(view.digest);
  out.u8(view.stop ? 1 : 0);
  out.list(view.seats, [&](const Seat& seat) { put(out, seat); });
  put(out, view.previous);
  out.list(view.departed, [&](const Departure& gone) {
    put(out, gone.id);
    out.u8(static_cast<std::uint8_t>(gone.fate));
  });
}

View get_view(Reader& in) {
  View view;
  view.epoch = in.number();
  view.base = in.number();
  view.urgent_epoch = in.number();
  view.digest = in.u64();
  view.stop = in.flag();
  view.seats = in.list<Seat>(kMaxWorkers, [&] { return get_seat(in); });
  view.previous = get_ids(in);
  view.departed = in.list<Departure>(kMaxWorkers, [&] {
    const WorkerId id = get_id(in);
    const std::uint8_t fate = in.u8();
    if (fate < 1 || fate > 3) in.fail();
    return Departure{id, static_cast<Fate>(fate)};
  });
  for (std::size_t i = 1; i < view.seats.size(); ++i) {
    if (view.seats[i - 1].id.slot >= view.seats[i].id.slot) in.fail();
  }
  if (view.base > view.epoch || view.urgent_epoch > view.epoch) in.fail();
  return view;
}

void put(Writer& out, const Ballot& ballot) {
  out.i64(ballot.round);
  out.i32(ballot.slot);
}

Ballot get_ballot(Reader& in) {
  const std::int64_t round = in.number();
  return {round, in.small(kMaxWorkers - 1)};
}

void put(Writer& out, const Pace& pace) {
  out.i64(pace.epoch);
  out.i64(pace.step);
  out.i32(pace.rank);
  out.i32(pace.logical_ranks);
  for (const microseconds time :
       {pace.whole, pace.data, pace.compute, pace.files, pace.starved, pace.usual_wait}) {
    out.i64(time.count());
  }
  out.u8(pace.waits_for_all ? 1 : 0);
  out.list(pace.waits, [&](const Wait& wait) {
    out.i32(wait.rank);
    out.i64(wait.time.count());
  });
}

Pace get_pace(Reader& in) {
  Pace pace;
  pace.epoch = in.number();
  pace.step = in.number();
  pace.rank = in.small(kMostRank);
  pace.logical_ranks = in.small(kMostRank);
  for (microseconds* time :
       {&pace.whole, &pace.data, &pace.compute, &pace.files, &pace.starved, &pace.usual_wait}) {
    *time = microseconds(in.number());
  }
  pace.waits_for_all = in.flag();
  pace.waits = in.list<Wait>(kMostWaits, [&] {
    const int rank = in.small(kMostRank);
    return Wait{rank, microseconds(in.number())};
  });
  return pace;
}

void put(Writer& out, const Beat& beat) {
  put(out, beat.self);
  out.u64(beat.digest);
  out.u8(static_cast<std::uint8_t>((beat.is_leaving ? 1 : 0) | (beat.is_done ? 2 : 0)));
  out.i64(beat.broken_epoch);
  out.list(beat.unheard, [&](int slot) { out.i32(slot); });
  put(out, beat.dead);
  put(out, beat.newcomers);
  out.list(beat.paces, [&](const Pace& pace) { put(out, pace); });
}

Beat get_beat(Reader& in) {
  Beat beat;
  beat.self = get_seat(in);
  beat.digest = in.u64();
  const std::uint8_t flags = in.u8();
  if (flags > 3) in.fail();
  beat.is_leaving = (flags & 1) != 0;
  beat.is_done = (flags & 2) != 0;
  beat.broken_epoch = in.number();
  beat.unheard = in.list<int>(kMaxWorkers, [&] { return in.small(kMaxWorkers - 1); });
  if (!std::is_sorted(beat.unheard.begin(), beat.unheard.end())) in.fail();
  beat.dead = get_ids(in);
  beat.newcomers = get_ids(in);
  beat.paces = in.list<Pace>(kMaxProcesses, [&] { return get_pace(in); });
  return beat;
}

bool has_domain(const Beat& body) { return body.self.domain != kUnknownDomain; }
bool has_domain(const Promise& body) {
  return body.accepted_ballot.round > 0 && has_domains(body.accepted);
}
bool has_domain(const Accept& body) { return has_domains(body.view); }
bool has_domain(const Commit& body) { return has_domains(body.view); }
template <typename Other>
bool has_domain(const Other&) {
  return false;
}

void put(Writer& out, const Prepare& body) { put(out, body.ballot); }
void put(Writer& out, const Nack& body) { put(out, body.promised); }
void put(Writer& out, const Accepted& body) { put(out, body.ballot); }
void put(Writer& out, const Commit& body) { put(out, body.view); }
void put(Writer&, const Bye&) {}
void put(Writer& out, const Refusal& body) { out.text(body.reason, kMaxReasonBytes); }
void put(Writer& out, const Accept& body) {
  put(out, body.ballot);
  put(out, body.view);
}
void put(Writer& out, const Promise& body) {
  put(out, body.ballot);
  out.i64(body.epoch_max);
  put(out, body.accepted_ballot);
  if (body.accepted_ballot.round > 0) put(out, body.accepted);
}

MessageBody get_body(Reader& in, std::uint8_t kind) {
  switch (kind) {
    case 0:
      return get_beat(in);
    case 1:
      return Prepare{get_ballot(in)};
    case 2: {
      Promise promise;
      promise.ballot = get_ballot(in);
      promise.epoch_max = in.number();
      promise.accepted_ballot = get_ballot(in);
      if (promise.accepted_ballot.round > 0) promise.accepted = get_view(in);
      return promise;
    }
    case 3:
      return Nack{get_ballot(in)};
    case 4: {
      const Ballot ballot = get_ballot(in);
      return Accept{ballot, get_view(in)};
    }
    case 5:
      return Accepted{get_ballot(in)};
    case 6:
      return Commit{get_view(in)};
    case 7:
      return Bye{};
    case 8:
      return Refusal{in.text(kMaxReasonBytes)};
    default:
      in.fail();
      return Bye{};
  }
}

}  // namespace

const char* name_of(const MessageBody& body) {
  static constexpr std::array<const char*, kMessageKinds> kNames{
      "Beat", "Prepare", "Promise", "Nack", "Accept", "Accepted", "Commit", "Bye", "Refusal"};
  return kNames[body.index()];
}

std::vector<std::byte> encode(const Message& message) {
  Writer out;
  out.has_domains = std::visit([](const auto& body) { return has_domain(body); }, message.body);
  out.u8(static_cast<std::uint8_t>(message.body.index() | (out.has_domains ? kWithDomains : 0)));
  put(out, message.from);
  out.u64(message.sequence);
  out.i64(message.epoch);
  std::visit([&out](const auto& body) { put(out, body); }, message.body);
  std::vector<std::byte> bytes = out.take();
  if (bytes.size() > kMaxMessageBytes) bytes.clear();
  return bytes;
}

Result<Message> decode_message(std::span<const std::byte> bytes) {
  Reader in(bytes);
  const std::uint8_t kind = in.u8();
  in.has_domains = (kind & kWithDomains) != 0;
  Message message;
  message.from = get_id(in);
  message.sequence = in.u64();
  message.epoch = in.number();
  message.body = get_body(in, kind & ~kWithDomains);
  if (in.has_domains != in.is_domain_seen) in.fail();
  if (!in.ok() || !in.at_end()) {
    return Error(ErrorCode::kCorrupt, "a sentinel's message of " + std::to_string(bytes.size()) +
                                          " bytes has no known form");
  }
  return message;
}

}  // namespace muster::sentinel
