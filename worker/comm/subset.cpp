// Some of the ranks of a communicator as one of their own, over its connections.
#include <algorithm>
#include <memory>
#include <utility>

#include "common/check.h"
#include "worker/comm/communicator.h"

namespace muster::comm {
namespace {

/// The whole's work knows its ranks by other numbers: this one is waited for as a whole group.
class SubsetWork final : public Work {
 public:
  explicit SubsetWork(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  void proceed_alone() override { work_->proceed_alone(); }
  Status wait(MonoTime deadline) override { return work_->wait(deadline); }

 private:
  std::unique_ptr<Work> work_;
};

class Subset final : public Communicator {
 public:
  Subset(Communicator& whole, std::vector<int> ranks, int channel)
      : whole_(whole), ranks_(std::move(ranks)), channel_(channel) {
    const auto own = std::find(ranks_.begin(), ranks_.end(), whole.rank());
    MUSTER_CHECK(own != ranks_.end() && channel > 0 && channel < kChannels);
    rank_ = static_cast<int>(own - ranks_.begin());
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  bool shares_memory() const override { return whole_.shares_memory(); }
  std::vector<int> hosts() const override {
    const std::vector<int> all = whole_.hosts();
    std::vector<int> own;
    for (const int rank : ranks_) {
      if (!all.empty()) own.push_back(all.at(static_cast<std::size_t>(rank)));
    }
    return own;
  }
  void abort() override { whole_.abort(); }
  std::uint64_t sent_bytes() const override { return whole_.sent_bytes(); }

  std::vector<double> waited_seconds() const override {
    const std::vector<double> all = whole_.waited_seconds();
    std::vector<double> own;
    for (const int rank : ranks_) {
      if (static_cast<std::size_t>(rank) >= all.size()) return {};
      own.push_back(all[static_cast<std::size_t>(rank)]);
    }
    return own;
  }

  Result<std::unique_ptr<Work>> start_on(int channel, std::uint64_t step, Memory memory,
                                         std::span<const SendBuffer> sends,
                                         std::span<const ReceiveBuffer> receives) override {
    MUSTER_CHECK_MSG(channel == 0, "a subset of a subset");
    sends_.assign(sends.begin(), sends.end());
    receives_.assign(receives.begin(), receives.end());
    for (SendBuffer& send : sends_) send.peer = in_whole(send.peer);
    for (ReceiveBuffer& receive : receives_) receive.peer = in_whole(receive.peer);
    MUSTER_ASSIGN_OR_RETURN(auto work, whole_.start_on(channel_, step, memory, sends_, receives_));
    return std::unique_ptr<Work>(std::make_unique<SubsetWork>(std::move(work)));
  }

 private:
  int in_whole(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }

  Communicator& whole_;
  const std::vector<int> ranks_;
  const int channel_;
  int rank_ = 0;
  std::vector<SendBuffer> sends_;  ///< of the group that is being started
  std::vector<ReceiveBuffer> receives_;
};

}  // namespace

std::unique_ptr<Communicator> make_subset(Communicator& whole, std::vector<int> ranks,
                                          int channel) {
  return std::make_unique<Subset>(whole, std::move(ranks), channel);
}

}  // namespace muster::comm
