#include "tests/recovery/wire.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace muster::sim {
namespace {

using comm::Message;

/// The pieces of a message, in order.
std::vector<iovec> pieces_of(const Message& message) {
  std::vector<iovec> pieces;
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  message.collect({}, message.bytes(), kAll, pieces);
  return pieces;
}

std::vector<std::byte> read(const Message& message) {
  std::vector<std::byte> bytes;
  for (const iovec& piece : pieces_of(message)) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    bytes.insert(bytes.end(), from, from + piece.iov_len);
  }
  return bytes;
}

void write(const std::vector<std::byte>& bytes, const Message& message) {
  std::size_t at = 0;
  for (const iovec& piece : pieces_of(message)) {
    std::memcpy(piece.iov_base, bytes.data() + at, piece.iov_len);
    at += piece.iov_len;
  }
}

}  // namespace

class Wire::Work final : public comm::Work {
 public:
  Work(std::shared_ptr<Wire> wire, std::size_t rank, std::shared_ptr<Group> group)
      : wire_(std::move(wire)), rank_(rank), group_(std::move(group)) {}
  ~Work() override {
    if (group_->transfers_left > 0) {
      wire_->fail(rank_, ErrorCode::kAborted, "transfers were given up before they were complete");
    }
  }
  Status wait(MonoTime deadline) override { return wire_->wait(rank_, *group_, deadline); }
  Status wait_for(std::span<const int> ranks, MonoTime deadline) override {
    return wire_->wait(rank_, *group_, deadline, &ranks);
  }

 private:
  std::shared_ptr<Wire> wire_;
  std::size_t rank_;
  std::shared_ptr<Group> group_;
};

class Wire::EndCommunicator final : public comm::Communicator {
 public:
  EndCommunicator(std::shared_ptr<Wire> wire, int rank) : wire_(std::move(wire)), rank_(rank) {}
  ~EndCommunicator() override {
    wire_->fail(index(), ErrorCode::kAborted, "the communicator was destroyed");
  }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(wire_->size()); }
  std::vector<int> hosts() const override { return wire_->hosts_; }
  std::uint64_t sent_bytes() const override { return wire_->ends_[index()].sent_bytes; }
  void abort() override { wire_->fail(index(), ErrorCode::kAborted, "abort() was called"); }
  Result<std::unique_ptr<comm::Work>> start_on(
      int channel, std::uint64_t step, comm::Memory, std::span<const comm::SendBuffer> sends,
      std::span<const comm::ReceiveBuffer> receives) override {
    auto group =
        wire_->start(index(), channel, step, comm::by_peer(rank_, size(), sends, receives));
    if (!group) return group.error();
    return std::unique_ptr<comm::Work>(std::make_unique<Work>(wire_, index(), *std::move(group)));
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(rank_); }
  std::shared_ptr<Wire> wire_;
  int rank_;
};

Wire::Wire(Stage& stage, WireWorld& world, std::vector<int> members)
    : stage_(stage),
      world_(world),
      members_(std::move(members)),
      ends_(members_.size()),
      lanes_(members_.size() * members_.size()) {
  for (const int member : members_) hosts_.push_back(world_.host_of(member));
}

std::unique_ptr<comm::Communicator> Wire::end_of(int rank) {
  return std::make_unique<EndCommunicator>(shared_from_this(), rank);
}

Result<std::shared_ptr<Wire::Group>> Wire::start(std::size_t rank, int channel, std::uint64_t step,
                                                 comm::MessagesByPeer messages) {
  End& self = ends_[rank];
  if (self.failure) return *self.failure;
  auto group = std::make_shared<Group>();
  const std::uint64_t sequence = self.numbers.take(channel);
  const std::size_t kind = world_.kind_of_next(members_[rank]);
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (messages.sends[peer].bytes() > 0) {
      ++group->transfers_left;
      self.sent_bytes += messages.sends[peer].bytes();
      lane(rank, peer)
          .sends.push_back({group, step, sequence, std::move(messages.sends[peer]), kind});
      stage_.after(world_.short_time(),
                   [wire = shared_from_this(), rank, peer] { wire->depart(rank, peer); });
    }
    if (messages.receives[peer].bytes() > 0) {
      ++group->transfers_left;
      lane(peer, rank)
          .receives.push_back({group, step, sequence, std::move(messages.receives[peer]), kind});
    }
  }
  for (std::size_t peer = 0; peer < size(); ++peer) match(peer, rank);
  look_for_lost(rank);
  if (self.failure) return *self.failure;
  return group;
}

Status Wire::wait(std::size_t rank, const Group& group, MonoTime deadline,
                  const std::span<const int>* ranks) {
  const auto is_of_group = [&](const Posted& one) { return one.group.get() == &group; };
  const auto is_there = [&] {
    if (group.transfers_left == 0) return true;
    return ranks != nullptr && !ends_[rank].failure && std::ranges::none_of(*ranks, [&](int from) {
             const auto& due = lane(static_cast<std::size_t>(from), rank).receives;
             return std::ranges::any_of(due, is_of_group);
           });
  };
  stage_.wait([&] { return is_there() || ends_[rank].failure; }, deadline);
  if (is_there()) return {};
  fail(rank, ErrorCode::kDeadlineExceeded, "not complete by the deadline");
  return *ends_[rank].failure;
}

/// The oldest message of the lane leaves its sender, who is done with it.
void Wire::depart(std::size_t from, std::size_t to) {
  Lane& between = lane(from, to);
  if (between.sends.empty()) return;  // the sender has given up
  const Journey journey = world_.depart(members_[from], members_[to], between.sends.front().kind);
  if (between.sends.empty()) return;  // it has died over it
  const Posted sent = std::move(between.sends.front());
  between.sends.pop_front();
  Arrived message{sent.step, sent.sequence, read(sent.message), journey.is_flipped};
  --sent.group->transfers_left;
  if (journey.is_cut) return cut(from, to);
  between.clear = std::max(between.clear, stage_.now() + journey.under_way);
  let_arrive(from, to, message, sent.kind);
  if (!journey.is_twice) return;
  message.is_again = true;
  between.clear += world_.short_time();
  let_arrive(from, to, message, sent.kind);
}

/// When all that went before it is there.
void Wire::let_arrive(std::size_t from, std::size_t to, const Arrived& message, std::size_t kind) {
  stage_.after(lane(from, to).clear - stage_.now(),
               [wire = shared_from_this(), from, to, message, kind] {
                 wire->arrive(from, to, message, kind);
               });
}

void Wire::arrive(std::size_t from, std::size_t to, Arrived message, std::size_t kind) {
  if (lane(from, to).is_cut || ends_[to].failure) return;
  world_.arrive(members_[from], members_[to], kind);
  if (ends_[to].failure) return;
  lane(from, to).arrived.push_back(std::move(message));
  match(from, to);
}

void Wire::match(std::size_t from, std::size_t to) {
  Lane& between = lane(from, to);
  while (!between.arrived.empty() && !between.receives.empty()) {
    const Arrived message = std::move(between.arrived.front());
    const Posted wanted = std::move(between.receives.front());
    between.arrived.pop_front();
    between.receives.pop_front();
    if (message.is_flipped) return fail(to, ErrorCode::kCorrupt, "a checksum is wrong");
    const bool is_due = message.sequence == wanted.sequence && message.step == wanted.step &&
                        message.bytes.size() == wanted.message.bytes();
    if (!is_due && message.is_again) return fail(to, ErrorCode::kCorrupt, "a message came twice");
    if (!is_due) {
      const auto text = [](std::uint64_t step, std::uint64_t sequence, std::size_t bytes) {
        return std::to_string(bytes) + " bytes of step " + std::to_string(step) + ", group " +
               std::to_string(sequence);
      };
      world_.wrong("trainer " + std::to_string(members_[from]) + " sent " +
                   text(message.step, message.sequence, message.bytes.size()) + " to trainer " +
                   std::to_string(members_[to]) + ", who wants " +
                   text(wanted.step, wanted.sequence, wanted.message.bytes()));
      return fail(to, ErrorCode::kCorrupt, "another message was due");
    }
    write(message.bytes, wanted.message);
    --wanted.group->transfers_left;
  }
}

/// What is under way on the connection is lost, and both sides see it sooner or later.
void Wire::cut(std::size_t from, std::size_t to) {
  lane(from, to).is_cut = lane(to, from).is_cut = true;
  for (const auto& [at, peer] : {std::pair(from, to), std::pair(to, from)}) {
    stage_.after(world_.short_time(),
                 [wire = shared_from_this(), at, peer] { wire->close(at, peer); });
  }
}

/// `at` sees that its connection with `peer` is closed.
void Wire::close(std::size_t at, std::size_t peer) {
  lane(peer, at).is_closed = true;
  look_for_lost(at);
}

/// What has arrived was sent before the peer ended; what has not never will be.
void Wire::look_for_lost(std::size_t rank) {
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (!lane(peer, rank).is_closed) continue;
    const bool waits = !lane(rank, peer).sends.empty() || !lane(peer, rank).receives.empty();
    if (waits) fail(rank, ErrorCode::kAborted, "rank " + std::to_string(peer) + " was lost");
  }
}

void Wire::fail(std::size_t rank, ErrorCode code, const std::string& why, bool is_told) {
  if (ends_[rank].failure) return;
  ends_[rank].failure.emplace(code, why);
  for (std::size_t peer = 0; peer < size(); ++peer) {
    if (peer == rank) continue;
    lane(rank, peer).sends.clear();  // their buffers are about to go away
    lane(peer, rank).receives.clear();
    lane(peer, rank).arrived.clear();
    if (!is_told) continue;
    const nanoseconds left =
        std::max(nanoseconds(0), lane(rank, peer).clear - stage_.now()) + world_.short_time();
    stage_.after(left, [wire = shared_from_this(), peer, rank] { wire->close(peer, rank); });
  }
}

void Wire::lose(int trainer, bool is_silent) {
  const auto found = std::find(members_.begin(), members_.end(), trainer);
  if (found == members_.end()) return;
  fail(static_cast<std::size_t>(found - members_.begin()), ErrorCode::kAborted, "it is dead",
       !is_silent);
}

}  // namespace muster::sim
