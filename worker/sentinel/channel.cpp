#include "worker/sentinel/channel.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace muster::sentinel {
namespace {

enum class Kind : std::uint32_t {
  kSteps = 1,
  kSummary = 2,
  kFailure = 3,
  kReady = 4,
  kBroken = 5,
  kEntered = 6,
  kPace = 7,
  kFiles = 8,
  kSpared = 9
};

constexpr std::size_t kMaxChannelBytes = std::size_t{16} * 1024;
constexpr double kFlushSeconds = 0.1;

template <std::size_t N>
void put_text(std::array<char, N>& out, const std::string& text) {
  const std::size_t bytes = std::min(text.size(), N - 1);
  std::memcpy(out.data(), text.data(), bytes);
  out[bytes] = '\0';
}

template <std::size_t N>
std::string get_text(const std::array<char, N>& in) {
  return std::string(in.data(), strnlen(in.data(), N - 1));
}

struct StepsHead {
  Kind kind = Kind::kSteps;
  std::uint32_t count = 0;
  Usage usage;
};

struct SummaryWire {
  Kind kind = Kind::kSummary;
  std::uint8_t is_final = 0, complete = 0, checkpoint_durable = 0, unused = 0;
  std::int64_t step = 0, total_steps = 0, restored_step = 0, model_parameters = 0;
  std::int64_t checkpoint_step = 0;
  double loss = 0, accuracy = 0;
  std::uint64_t sent_bytes = 0, logical_rank_computations = 0;
  std::array<char, 72> model_sha256{}, data_sha256{};
  std::array<char, kMaxPathBytes> checkpoint_path{};
};

struct FailureWire {
  Kind kind = Kind::kFailure;
  std::int32_t exit_code = 0;
  std::array<char, kMaxSentenceBytes> sentence{};
};

struct ReadyWire {
  Kind kind = Kind::kReady;
  std::array<char, 72> outline{}, contents{};
};

struct BrokenWire {
  Kind kind = Kind::kBroken;
  std::uint32_t unused = 0;
  std::int64_t epoch = 0;
};

struct EnteredWire {
  Kind kind = Kind::kEntered;
  std::uint32_t unused = 0;
  std::int64_t epoch = 0, step = 0, recomputed_logical_ranks = 0;
  std::uint64_t state_bytes = 0;
  double stall_seconds = 0;
  std::array<char, kMaxReturnedBytes> returned{};
};

struct WaitWire {
  std::int64_t rank = 0, micros = 0;
};

struct PaceWire {
  Kind kind = Kind::kPace;
  std::uint32_t count = 0;
  std::int32_t rank = 0, logical_ranks = 0;
  std::int64_t epoch = 0, step = 0;
  std::int64_t whole = 0, data = 0, compute = 0, files = 0, starved = 0,
               usual_wait = 0;  ///< microseconds
  std::uint64_t waits_for_all = 0;
  std::array<WaitWire, kMostWaits> waits{};
};

struct FilesWire {
  Kind kind = Kind::kFiles;
  std::uint32_t is_checkpoint = 0;
  std::int64_t seconds = 0;
  std::array<char, kMaxPathBytes> path{};
};

struct SparedWire {
  Kind kind = Kind::kSpared;
  std::uint32_t count = 0;
  std::int64_t epoch = 0;
  std::array<std::int32_t, SparedMessage::kMaxSlots> slots{};
};

template <typename Wire>
std::vector<std::byte> bytes_of(const Wire& wire) {
  static_assert(std::is_trivially_copyable_v<Wire>);
  std::vector<std::byte> bytes(sizeof wire);
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

std::vector<std::byte> encode_one(const StepsMessage& message) {
  StepsHead head;
  head.count = static_cast<std::uint32_t>(std::min(message.steps.size(), StepsMessage::kMaxSteps));
  head.usage = message.usage;
  std::vector<std::byte> bytes = bytes_of(head);
  const std::size_t body = head.count * sizeof(StepRecord);
  bytes.resize(bytes.size() + body);
  if (body > 0) std::memcpy(bytes.data() + sizeof head, message.steps.data(), body);
  return bytes;
}

std::vector<std::byte> encode_one(const SummaryMessage& message) {
  SummaryWire wire;
  wire.is_final = message.is_final ? 1 : 0;
  wire.complete = message.complete ? 1 : 0;
  wire.checkpoint_durable = message.checkpoint_durable ? 1 : 0;
  wire.step = message.step;
  wire.total_steps = message.total_steps;
  wire.restored_step = message.restored_step;
  wire.model_parameters = message.model_parameters;
  wire.checkpoint_step = message.checkpoint_step;
  wire.loss = message.loss;
  wire.accuracy = message.accuracy;
  wire.sent_bytes = message.sent_bytes;
  wire.logical_rank_computations = message.logical_rank_computations;
  put_text(wire.model_sha256, message.model_sha256);
  put_text(wire.data_sha256, message.data_sha256);
  put_text(wire.checkpoint_path, message.checkpoint_path);
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const FailureMessage& message) {
  FailureWire wire;
  wire.exit_code = message.exit_code;
  put_text(wire.sentence, message.sentence);
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const ReadyMessage& message) {
  ReadyWire wire;
  put_text(wire.outline, message.outline);
  put_text(wire.contents, message.contents);
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const BrokenMessage& message) {
  BrokenWire wire;
  wire.epoch = message.epoch;
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const EnteredMessage& message) {
  EnteredWire wire;
  wire.epoch = message.epoch;
  wire.step = message.step;
  wire.recomputed_logical_ranks = message.recomputed_logical_ranks;
  wire.state_bytes = message.state_bytes;
  wire.stall_seconds = message.stall_seconds;
  put_text(wire.returned, message.returned);
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const PaceMessage& message) {
  const Pace& pace = message.pace;
  PaceWire wire;
  wire.count = static_cast<std::uint32_t>(std::min(pace.waits.size(), kMostWaits));
  wire.rank = pace.rank;
  wire.logical_ranks = pace.logical_ranks;
  wire.epoch = pace.epoch;
  wire.step = pace.step;
  wire.whole = pace.whole.count();
  wire.data = pace.data.count();
  wire.compute = pace.compute.count();
  wire.files = pace.files.count();
  wire.starved = pace.starved.count();
  wire.usual_wait = pace.usual_wait.count();
  wire.waits_for_all = pace.waits_for_all ? 1 : 0;
  for (std::size_t i = 0; i < wire.count; ++i) {
    wire.waits[i] = {pace.waits[i].rank, pace.waits[i].time.count()};
  }
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const FilesMessage& message) {
  FilesWire wire;
  wire.is_checkpoint = message.is_checkpoint ? 1 : 0;
  wire.seconds = message.seconds;
  put_text(wire.path, message.path);
  return bytes_of(wire);
}

std::vector<std::byte> encode_one(const SparedMessage& message) {
  SparedWire wire;
  wire.epoch = message.epoch;
  wire.count = static_cast<std::uint32_t>(std::min(message.slots.size(), SparedMessage::kMaxSlots));
  std::copy_n(message.slots.begin(), wire.count, wire.slots.begin());
  return bytes_of(wire);
}

PaceMessage to_message(const PaceWire& wire) {
  Pace pace;
  pace.rank = wire.rank;
  pace.logical_ranks = wire.logical_ranks;
  pace.epoch = wire.epoch;
  pace.step = wire.step;
  pace.whole = microseconds(wire.whole);
  pace.data = microseconds(wire.data);
  pace.compute = microseconds(wire.compute);
  pace.files = microseconds(wire.files);
  pace.starved = microseconds(wire.starved);
  pace.usual_wait = microseconds(wire.usual_wait);
  pace.waits_for_all = wire.waits_for_all != 0;
  for (std::size_t i = 0; i < wire.count; ++i) {
    pace.waits.push_back(
        {static_cast<int>(wire.waits[i].rank), microseconds(wire.waits[i].micros)});
  }
  return {std::move(pace)};
}

SummaryMessage to_message(const SummaryWire& wire) {
  SummaryMessage message;
  message.is_final = wire.is_final != 0;
  message.complete = wire.complete != 0;
  message.checkpoint_durable = wire.checkpoint_durable != 0;
  message.step = wire.step;
  message.total_steps = wire.total_steps;
  message.restored_step = wire.restored_step;
  message.model_parameters = wire.model_parameters;
  message.checkpoint_step = wire.checkpoint_step;
  message.loss = wire.loss;
  message.accuracy = wire.accuracy;
  message.sent_bytes = wire.sent_bytes;
  message.logical_rank_computations = wire.logical_rank_computations;
  message.model_sha256 = get_text(wire.model_sha256);
  message.data_sha256 = get_text(wire.data_sha256);
  message.checkpoint_path = get_text(wire.checkpoint_path);
  return message;
}

template <typename Wire>
Wire read_wire(const std::byte* bytes) {
  Wire wire;
  std::memcpy(&wire, bytes, sizeof wire);
  return wire;
}

/// The later kinds; nothing when the bytes are none of them.
std::optional<TrainerMessage> decode_trouble(Kind kind, const std::byte* bytes, std::size_t size) {
  if (kind == Kind::kReady && size == sizeof(ReadyWire)) {
    const auto wire = read_wire<ReadyWire>(bytes);
    return ReadyMessage{get_text(wire.outline), get_text(wire.contents)};
  }
  if (kind == Kind::kBroken && size == sizeof(BrokenWire)) {
    return BrokenMessage{read_wire<BrokenWire>(bytes).epoch};
  }
  if (kind == Kind::kEntered && size == sizeof(EnteredWire)) {
    const auto wire = read_wire<EnteredWire>(bytes);
    return EnteredMessage{wire.epoch,       wire.step,          wire.recomputed_logical_ranks,
                          wire.state_bytes, wire.stall_seconds, get_text(wire.returned)};
  }
  if (kind == Kind::kPace && size == sizeof(PaceWire)) {
    const auto wire = read_wire<PaceWire>(bytes);
    if (wire.count > kMostWaits) return std::nullopt;
    return to_message(wire);
  }
  if (kind == Kind::kFiles && size == sizeof(FilesWire)) {
    const auto wire = read_wire<FilesWire>(bytes);
    return FilesMessage{wire.seconds, wire.is_checkpoint != 0, get_text(wire.path)};
  }
  if (kind == Kind::kSpared && size == sizeof(SparedWire)) {
    const auto wire = read_wire<SparedWire>(bytes);
    if (wire.count > SparedMessage::kMaxSlots) return std::nullopt;
    return SparedMessage{wire.epoch, {wire.slots.begin(), wire.slots.begin() + wire.count}};
  }
  return std::nullopt;
}

Usage read_usage() {
  Usage usage;
  rusage own{};
  if (getrusage(RUSAGE_SELF, &own) == 0) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    usage.cpu_seconds = seconds(own.ru_utime) + seconds(own.ru_stime);
  }
  if (std::FILE* file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    unsigned long long total = 0, resident = 0;
    if (std::fscanf(file, "%llu %llu", &total, &resident) == 2) {
      usage.resident_bytes = resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    }
    std::fclose(file);
  }
  return usage;
}

}  // namespace

std::vector<std::byte> encode(const TrainerMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<TrainerMessage> decode(const std::byte* bytes, std::size_t size) {
  const Error corrupt(ErrorCode::kCorrupt, "a trainer's message of " + std::to_string(size) +
                                               " bytes has no known form");
  if (size < sizeof(Kind)) return corrupt;
  const auto kind = read_wire<Kind>(bytes);
  if (kind == Kind::kSteps && size >= sizeof(StepsHead)) {
    const auto head = read_wire<StepsHead>(bytes);
    if (head.count > StepsMessage::kMaxSteps ||
        size != sizeof head + head.count * sizeof(StepRecord)) {
      return corrupt;
    }
    StepsMessage message;
    message.usage = head.usage;
    message.steps.resize(head.count);
    if (head.count > 0) {
      std::memcpy(message.steps.data(), bytes + sizeof head, head.count * sizeof(StepRecord));
    }
    return TrainerMessage(std::move(message));
  }
  if (kind == Kind::kSummary && size == sizeof(SummaryWire)) {
    return TrainerMessage(to_message(read_wire<SummaryWire>(bytes)));
  }
  if (kind == Kind::kFailure && size == sizeof(FailureWire)) {
    const auto wire = read_wire<FailureWire>(bytes);
    return TrainerMessage(FailureMessage{wire.exit_code, get_text(wire.sentence)});
  }
  if (auto trouble = decode_trouble(kind, bytes, size)) return *std::move(trouble);
  return corrupt;
}

ChannelWriter::ChannelWriter(int fd) : fd_(fd) { steps_.reserve(StepsMessage::kMaxSteps); }
ChannelWriter::~ChannelWriter() { close(fd_); }

void ChannelWriter::add_step(const StepRecord& step) {
  steps_.push_back(step);
  unsent_seconds_ += step.step_seconds;
  if (steps_.size() >= StepsMessage::kMaxSteps || unsent_seconds_ >= kFlushSeconds) flush();
}

void ChannelWriter::flush() {
  if (steps_.empty()) return;
  send(StepsMessage{read_usage(), steps_}, 0);
  steps_.clear();
  unsent_seconds_ = 0;
}

void ChannelWriter::send_summary(const SummaryMessage& message) {
  flush();
  send(message, kRoomMs);
}

void ChannelWriter::send_failure(int exit_code, std::string_view sentence) {
  flush();
  send(FailureMessage{exit_code, std::string(sentence)}, kRoomMs);
}

void ChannelWriter::send(const TrainerMessage& message, int timeout_ms) const {
  const std::vector<std::byte> bytes = encode(message);
  pollfd ready{fd_, POLLOUT, 0};
  if (timeout_ms > 0) (void)poll(&ready, 1, timeout_ms);
  // A failure means that the sentinel is gone or does not read: nobody is left to be told.
  (void)::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

Result<ChannelPair> make_channel() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return Error(ErrorCode::kIo, std::string("socketpair: ") + std::strerror(errno));
  }
  return ChannelPair{ends[0], ends[1]};
}

Result<std::optional<TrainerMessage>> receive(int fd) {
  std::array<std::byte, kMaxChannelBytes> buffer;
  ssize_t bytes = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  // A trainer that ended with a view unread leaves this error once, before its own last messages.
  if (bytes < 0 && errno == ECONNRESET) {
    bytes = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  }
  if (bytes <= 0) return std::optional<TrainerMessage>();
  MUSTER_ASSIGN_OR_RETURN(TrainerMessage message,
                          decode(buffer.data(), static_cast<std::size_t>(bytes)));
  return std::optional<TrainerMessage>(std::move(message));
}

}  // namespace muster::sentinel
