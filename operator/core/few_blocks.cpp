#include "operator/core/few_blocks.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "operator/core/step_forecast.h"
#include "operator/core/topology.h"

namespace muster::core {
namespace {

constexpr int kFollowedSteps = 8, kStartSteps = 4;
/// Of one step, to be followed.
constexpr int kMostFollowedMessages = 2048;

/// What is on its way to its target's card.
struct BlockMessage {
  double at = 0;  ///< when its first byte is there
  int number = 0;
  int source = 0, target = 0, block = 0, step = 0;
  bool is_sum = false;  ///< to who adds the block up; else from that one
  bool has_come = false;
  bool operator>(const BlockMessage& other) const {
    return std::tie(at, number) > std::tie(other.at, other.number);
  }
};

class FollowedSteps {
 public:
  FollowedSteps(const FewBlocks& work, int blocks)
      : work_(work),
        members_(static_cast<int>(work.sums.size())),
        blocks_(blocks),
        out_free_at_(work.sums.size(), 0),
        in_free_at_(work.sums.size(), 0),
        given_(work.sums.size() * kFollowedSteps, 0),
        sent_(as_index(blocks) * kFollowedSteps, 0) {
    for (int block = 0; block < blocks; ++block) {
      // As blocks are dealt out: member m has those from blocks x m / members on.
      owners_.push_back(((block + 1) * members_ - 1) / blocks);
      const double begin = block * kBlockBytes;
      seconds_.push_back((std::min(work.bytes, begin + kBlockBytes) - begin) /
                         work.bytes_per_second);
    }
    for (const int sums : work.sums) all_sums_ += sums;
  }

  double seconds_of_step() {
    for (int member = 0; member < members_; ++member) begin(member, 0, 0);
    while (!messages_.empty()) {
      BlockMessage message = messages_.top();
      messages_.pop();
      if (message.has_come) {
        take(message);
        continue;
      }
      double& free_at = in_free_at_[as_index(message.target)];
      message.at = free_at = std::max(message.at, free_at) + seconds_[as_index(message.block)];
      message.has_come = true;
      messages_.push(message);
    }
    return (ends_.back() - ends_[kStartSteps - 1]) / (kFollowedSteps - kStartSteps);
  }

 private:
  void send(double now, BlockMessage message) {
    double& free_at = out_free_at_[as_index(message.source)];
    const double start = std::max(now, free_at);
    free_at = start + seconds_[as_index(message.block)];
    message.at = start + work_.latency_seconds;
    message.number = next_number_++;
    messages_.push(message);
  }

  void take(const BlockMessage& message) {
    if (message.is_sum) return take_sum(message.at, message.block, message.step, 1);
    give(message.at, message.target, message.step);
  }

  void begin(int member, int step, double now) {
    const int sums = work_.sums[as_index(member)];
    for (int sum = 0; sum < sums; ++sum) {
      for (int i = 1; i < members_; ++i) {
        const int to = (member + i) % members_;
        const auto owner = std::ranges::lower_bound(owners_, to);
        if (owner == owners_.end() || *owner != to) continue;
        const int block = static_cast<int>(owner - owners_.begin());
        send(now, {0, 0, member, to, block, step, true});
      }
    }
    const auto own = std::ranges::find(owners_, member);
    if (own != owners_.end()) take_sum(now, static_cast<int>(own - owners_.begin()), step, sums);
  }

  void take_sum(double now, int block, int step, int sums) {
    int& count = sent_[as_index(step * blocks_ + block)];
    count += sums;
    if (count < all_sums_ || sums == 0) return;
    const int owner = owners_[as_index(block)];
    for (int i = 1; i < members_; ++i) {
      send(now, {0, 0, owner, (owner + i) % members_, block, step});
    }
    give(now, owner, step);
  }

  void give(double now, int member, int step) {
    if (++given_[as_index(step * members_ + member)] < blocks_) return;
    if (member == 0) ends_.push_back(now);
    if (step + 1 < kFollowedSteps) begin(member, step + 1, now + work_.compute_seconds);
  }

  const FewBlocks& work_;
  const int members_, blocks_;
  int all_sums_ = 0, next_number_ = 0;
  std::vector<int> owners_;      ///< by block, ascending
  std::vector<double> seconds_;  ///< of a block on a card
  std::vector<double> out_free_at_, in_free_at_;
  std::vector<int> given_, sent_;  ///< by step, and then by member or block
  std::vector<double> ends_;       ///< of member 0
  std::priority_queue<BlockMessage, std::vector<BlockMessage>, std::greater<>> messages_;
};

}  // namespace

std::optional<double> few_blocks_seconds(const FewBlocks& work) {
  const auto members = static_cast<double>(work.sums.size());
  const double blocks = std::ceil(work.bytes / kBlockBytes);
  double sums = 0;
  for (const int of_member : work.sums) sums += of_member;
  const bool is_told = members > 1 && blocks >= 1 && sums >= 1 && work.bytes_per_second > 0;
  if (!is_told || blocks >= members || blocks * (sums + members) > kMostFollowedMessages) {
    return std::nullopt;
  }
  return FollowedSteps(work, static_cast<int>(blocks)).seconds_of_step();
}

}  // namespace muster::core
