#include "operator/core/work_queue.h"

#include <algorithm>

namespace muster::core {

WorkQueue::WorkQueue(std::uint64_t seed, WorkQueueOptions options)
    : options_(options), rng_(seed) {}

void WorkQueue::add(const api::ObjectKey& key) {
  if (!dirty_.insert(key).second) return;
  if (options_.observer != nullptr) options_.observer->on_add(key);
  drop_due(key);
  if (!processing_.contains(key)) order_.push_back(key);
}

void WorkQueue::add_at(const api::ObjectKey& key, MonoTime at) {
  // A key that waits already is looked at sooner than any delay.
  if (dirty_.contains(key)) return;
  if (const auto found = due_.find(key); found != due_.end() && found->second <= at) return;
  drop_due(key);
  due_.emplace(key, at);
  due_by_time_.emplace(at, key);
}

void WorkQueue::drop_due(const api::ObjectKey& key) {
  const auto found = due_.find(key);
  if (found == due_.end()) return;
  due_by_time_.erase({found->second, key});
  due_.erase(found);
}

void WorkQueue::add_backed_off(const api::ObjectKey& key, MonoTime now, seconds asked) {
  if (options_.observer != nullptr) options_.observer->on_retry(key);
  const int failures = std::min(failures_[key]++, 30);
  auto delay = std::min<nanoseconds>(options_.backoff_least * (std::int64_t{1} << failures),
                                     options_.backoff_most);
  // Between half and all of it, so that keys that failed together do not return together.
  delay = delay / 2 + nanoseconds(static_cast<std::int64_t>(
                          rng_.unit() * static_cast<double>((delay / 2).count())));
  const MonoTime until = now + std::max<nanoseconds>(delay, asked);
  backs_off_until_.insert_or_assign(key, until);
  add_at(key, until);
}

void WorkQueue::forget(const api::ObjectKey& key) {
  failures_.erase(key);
  backs_off_until_.erase(key);
}

int WorkQueue::failures(const api::ObjectKey& key) const {
  const auto found = failures_.find(key);
  return found == failures_.end() ? 0 : found->second;
}

bool WorkQueue::backs_off(const api::ObjectKey& key, MonoTime now) const {
  const auto found = backs_off_until_.find(key);
  return found != backs_off_until_.end() && found->second > now;
}

void WorkQueue::release(MonoTime now) {
  while (!due_by_time_.empty() && due_by_time_.begin()->first <= now) {
    const auto [at, key] = *due_by_time_.begin();
    if (processing_.contains(key)) {
      drop_due(key);
      overdue_.emplace(key, at);
    } else if (backs_off(key, now)) {
      drop_due(key);
      add_at(key, backs_off_until_.at(key));
    } else {
      add(key);
    }
  }
}

std::optional<api::ObjectKey> WorkQueue::pop(MonoTime now) {
  release(now);
  if (order_.empty()) return std::nullopt;
  api::ObjectKey key = std::move(order_.front());
  order_.pop_front();
  dirty_.erase(key);
  processing_.insert(key);
  if (options_.observer != nullptr) options_.observer->on_pop(key);
  return key;
}

void WorkQueue::done(const api::ObjectKey& key) {
  if (processing_.erase(key) == 0) return;
  if (options_.observer != nullptr) options_.observer->on_done(key);
  if (dirty_.contains(key)) order_.push_back(key);
  if (const auto overdue = overdue_.extract(key)) add_at(key, overdue.mapped());
}

std::optional<MonoTime> WorkQueue::next_due() const {
  if (due_by_time_.empty()) return std::nullopt;
  return due_by_time_.begin()->first;
}

}  // namespace muster::core
