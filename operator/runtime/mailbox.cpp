#include "operator/runtime/mailbox.h"

#include <utility>

namespace muster::runtime {

bool Mailbox::post(Message message) {
  std::unique_lock lock(mutex_);
  while (!closed_ && messages_.size() >= capacity_) space_.wait_for(lock, seconds(1));
  if (closed_) return false;
  messages_.push_back(std::move(message));
  news_.notify_all();
  return true;
}

bool Mailbox::try_post(Message message) {
  const std::lock_guard lock(mutex_);
  if (closed_ || messages_.size() >= capacity_) return false;
  messages_.push_back(std::move(message));
  news_.notify_all();
  return true;
}

std::deque<Message> Mailbox::drain() {
  const std::lock_guard lock(mutex_);
  space_.notify_all();
  return std::exchange(messages_, {});
}

void Mailbox::wait(nanoseconds most) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, most, [this] { return closed_ || !messages_.empty(); });
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  space_.notify_all();
  news_.notify_all();
}

}  // namespace muster::runtime
