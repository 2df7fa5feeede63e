// Ranks of one process, connected by memory: the same promises as between processes, without a
// network. For tests of what stands above the communicator.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/message.h"

namespace muster::comm {
namespace {

constexpr milliseconds kWaitMax{1000};

struct LocalGroup {
  std::size_t transfers_left = 0;
};

// What all ranks share. A message is copied by whichever side comes second.
class Hub {
 public:
  Hub(int size, const Clock& clock, std::vector<int> hosts)
      : clock_(clock),
        hosts_(std::move(hosts)),
        ranks_(static_cast<std::size_t>(size)),
        lanes_(ranks_.size() * ranks_.size()) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& hosts() const { return hosts_; }
  Result<std::shared_ptr<LocalGroup>> start(std::size_t rank, int channel, std::uint64_t step,
                                            MessagesByPeer messages);
  /// `ranks`: as Work::wait_for; nullptr: for the whole group.
  Status wait(std::size_t rank, const LocalGroup& group, MonoTime deadline,
              const std::span<const int>* ranks = nullptr);
  void close(std::size_t rank, ErrorCode code, const std::string& why);
  void abandon(std::size_t rank, const LocalGroup& group);
  std::uint64_t sent_bytes(std::size_t rank);

 private:
  struct Transfer {
    std::shared_ptr<LocalGroup> group;
    std::uint64_t step = 0;
    std::uint64_t sequence = 0;
    Message message;
  };
  struct Rank {
    GroupNumbers numbers;
    std::uint64_t sent_bytes = 0;
    std::optional<Error> failure;
  };
  // From one rank to another; one of the two is always empty once matched.
  struct Lane {
    std::deque<Transfer> sends;
    std::deque<Transfer> receives;
  };
  Lane& lane(std::size_t from, std::size_t to) { return lanes_[from * ranks_.size() + to]; }
  bool is_there(std::size_t rank, const LocalGroup& group, const std::span<const int>* ranks);
  void match(std::size_t from, std::size_t to);
  void fail(std::size_t rank, ErrorCode code, const std::string& why);

  const Clock& clock_;
  const std::vector<int> hosts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::vector<Lane> lanes_;
};

Result<std::shared_ptr<LocalGroup>> Hub::start(std::size_t rank, int channel, std::uint64_t step,
                                               MessagesByPeer messages) {
  const std::unique_lock lock(mutex_);
  Rank& self = ranks_[rank];
  if (self.failure) return *self.failure;
  auto group = std::make_shared<LocalGroup>();
  const std::uint64_t sequence = self.numbers.take(channel);
  for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
    if (messages.sends[peer].bytes() > 0) {
      ++group->transfers_left;
      self.sent_bytes += messages.sends[peer].bytes();
      lane(rank, peer).sends.push_back({group, step, sequence, std::move(messages.sends[peer])});
    }
    if (messages.receives[peer].bytes() > 0) {
      ++group->transfers_left;
      lane(peer, rank)
          .receives.push_back({group, step, sequence, std::move(messages.receives[peer])});
    }
  }
  for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
    match(rank, peer);
    match(peer, rank);
  }
  // What has been matched was sent before the peer ended; what has not never will be.
  for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
    const bool waits = !lane(rank, peer).sends.empty() || !lane(peer, rank).receives.empty();
    if (waits && ranks_[peer].failure) {
      fail(rank, ErrorCode::kAborted, "rank " + std::to_string(peer) + " was lost");
    }
  }
  if (self.failure) return *self.failure;
  return group;
}

void Hub::match(std::size_t from, std::size_t to) {
  Lane& between = lane(from, to);
  while (!between.sends.empty() && !between.receives.empty()) {
    const Transfer send = std::move(between.sends.front());
    const Transfer receive = std::move(between.receives.front());
    between.sends.pop_front();
    between.receives.pop_front();
    if (send.sequence != receive.sequence || send.step != receive.step ||
        send.message.bytes() != receive.message.bytes()) {
      fail(to, ErrorCode::kCorrupt,
           "rank " + std::to_string(from) + " sent a message of " +
               std::to_string(send.message.bytes()) + " bytes in step " +
               std::to_string(send.step) + ", group " + std::to_string(send.sequence) + ", where " +
               std::to_string(receive.message.bytes()) + " bytes of step " +
               std::to_string(receive.step) + ", group " + std::to_string(receive.sequence) +
               " are due");
      fail(from, ErrorCode::kAborted, "rank " + std::to_string(to) + " was lost");
      return;
    }
    copy(send.message, receive.message);
    --send.group->transfers_left;
    --receive.group->transfers_left;
    changed_.notify_all();
  }
}

bool Hub::is_there(std::size_t rank, const LocalGroup& group, const std::span<const int>* ranks) {
  if (group.transfers_left == 0) return true;
  return ranks != nullptr && !ranks_[rank].failure && std::ranges::none_of(*ranks, [&](int from) {
           const auto& due = lane(static_cast<std::size_t>(from), rank).receives;
           return std::ranges::any_of(due,
                                      [&](const Transfer& t) { return t.group.get() == &group; });
         });
}

Status Hub::wait(std::size_t rank, const LocalGroup& group, MonoTime deadline,
                 const std::span<const int>* ranks) {
  std::unique_lock lock(mutex_);
  while (!is_there(rank, group, ranks)) {
    if (ranks_[rank].failure) return *ranks_[rank].failure;
    const auto left = deadline - clock_.mono_now();
    if (left <= nanoseconds{0}) {
      fail(rank, ErrorCode::kDeadlineExceeded, "not complete by the deadline");
      return *ranks_[rank].failure;
    }
    changed_.wait_for(lock, std::min<nanoseconds>(left, kWaitMax));
  }
  return {};
}

// Ends a rank and with it every rank that waits for a transfer with it.
void Hub::fail(std::size_t rank, ErrorCode code, const std::string& why) {
  if (ranks_[rank].failure) return;
  ranks_[rank].failure.emplace(code, why);
  for (std::size_t peer = 0; peer < ranks_.size(); ++peer) {
    Lane& to = lane(rank, peer);
    Lane& from = lane(peer, rank);
    const bool waits = !to.receives.empty() || !from.sends.empty();
    to = Lane{};
    from = Lane{};
    if (waits) fail(peer, ErrorCode::kAborted, "rank " + std::to_string(rank) + " was lost");
  }
  changed_.notify_all();
}

void Hub::close(std::size_t rank, ErrorCode code, const std::string& why) {
  const std::unique_lock lock(mutex_);
  fail(rank, code, why);
}

void Hub::abandon(std::size_t rank, const LocalGroup& group) {
  const std::unique_lock lock(mutex_);
  if (group.transfers_left > 0) {
    fail(rank, ErrorCode::kAborted, "a group of transfers was given up before it was complete");
  }
}

std::uint64_t Hub::sent_bytes(std::size_t rank) {
  const std::unique_lock lock(mutex_);
  return ranks_[rank].sent_bytes;
}

class LocalWork final : public Work {
 public:
  LocalWork(std::shared_ptr<Hub> hub, std::size_t rank, std::shared_ptr<LocalGroup> group)
      : hub_(std::move(hub)), rank_(rank), group_(std::move(group)) {}
  ~LocalWork() override { hub_->abandon(rank_, *group_); }
  Status wait(MonoTime deadline) override { return hub_->wait(rank_, *group_, deadline); }
  Status wait_for(std::span<const int> ranks, MonoTime deadline) override {
    return hub_->wait(rank_, *group_, deadline, &ranks);
  }

 private:
  std::shared_ptr<Hub> hub_;
  std::size_t rank_;
  std::shared_ptr<LocalGroup> group_;
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalCommunicator() override {
    hub_->close(index(), ErrorCode::kAborted, "the communicator was destroyed");
  }
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  std::vector<int> hosts() const override { return hub_->hosts(); }
  std::uint64_t sent_bytes() const override { return hub_->sent_bytes(index()); }
  void abort() override { hub_->close(index(), ErrorCode::kAborted, "abort() was called"); }
  Result<std::unique_ptr<Work>> start_on(int channel, std::uint64_t step, Memory memory,
                                         std::span<const SendBuffer> sends,
                                         std::span<const ReceiveBuffer> receives) override {
    if (memory != Memory::kHost) {
      return Error(ErrorCode::kUnsupported, "the local transport moves host memory only");
    }
    auto group = hub_->start(index(), channel, step, by_peer(rank_, size(), sends, receives));
    if (!group) return group.error();
    return std::unique_ptr<Work>(std::make_unique<LocalWork>(hub_, index(), *std::move(group)));
  }

 private:
  std::size_t index() const { return static_cast<std::size_t>(rank_); }
  std::shared_ptr<Hub> hub_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const Clock& clock,
                                                                    std::vector<int> hosts) {
  MUSTER_CHECK(size > 0 && (hosts.empty() || std::ssize(hosts) == size));
  const auto hub = std::make_shared<Hub>(size, clock, std::move(hosts));
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<LocalCommunicator>(hub, rank));
  }
  return communicators;
}

}  // namespace muster::comm
