#include "worker/data/read_ahead.h"

#include <algorithm>
#include <utility>

#include "common/caught.h"
#include "common/check.h"
#include "worker/data/start_threads.h"

namespace muster::data {

ReadAhead::ReadAhead(const Options& options, Make make)
    : options_(options), make_(std::move(make)) {
  MUSTER_CHECK(options.threads >= 1 && options.most >= 1);
  threads_ = start_threads(options.threads, [this] { work(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  may_make_.notify_all();
}

void ReadAhead::want(std::span<const std::uint64_t> indices) {
  if (threads_.empty()) return;  // nobody would ever empty to_make_
  {
    const std::lock_guard lock(mutex_);
    for (const std::uint64_t index : indices) {
      if (order_.size() == kMostWanted) break;
      if (!samples_.try_emplace(index).second) continue;
      order_.push_back(index);
      to_make_.push_back(index);
    }
  }
  may_make_.notify_all();
}

/// Called with the lock. A thread that makes it finds nobody to give it to.
void ReadAhead::forget(std::uint64_t index) {
  const auto sample = samples_.find(index);
  if (sample->second.phase != Phase::kWanted) --held_;
  samples_.erase(sample);
}

Status ReadAhead::take(std::uint64_t index, std::span<std::uint8_t> out) {
  MUSTER_CHECK(out.size() == options_.bytes);
  Sample taken;
  {
    std::unique_lock lock(mutex_);
    if (samples_.contains(index)) {
      for (; order_.front() != index; order_.pop_front()) forget(order_.front());
      Sample& sample = samples_.at(index);
      is_made_.wait(lock, [&] { return sample.phase != Phase::kBeingMade; });
      taken = std::move(sample);
      order_.pop_front();
      forget(index);
      if (has_work()) may_make_.notify_all();
    }
  }
  if (taken.phase != Phase::kMade) return make_(index, out);
  if (taken.status) std::ranges::copy(taken.bytes, out.begin());
  return taken.status;
}

void ReadAhead::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    may_make_.wait(lock, [this] { return is_over_ || has_work(); });
    if (is_over_) return;
    const std::uint64_t index = to_make_.front();
    to_make_.pop_front();
    const auto begun = samples_.find(index);
    if (begun == samples_.end() || begun->second.phase != Phase::kWanted) continue;
    begun->second.phase = Phase::kBeingMade;
    ++held_;
    lock.unlock();
    std::vector<std::uint8_t> bytes;
    Status status = run_caught([&] {
      bytes.resize(options_.bytes);
      return make_(index, bytes);
    });
    lock.lock();
    const auto made = samples_.find(index);
    if (made == samples_.end() || made->second.phase != Phase::kBeingMade) continue;
    made->second = {Phase::kMade, std::move(bytes), std::move(status)};
    is_made_.notify_all();
  }
}

}  // namespace muster::data
