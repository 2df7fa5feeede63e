#include "operator/runtime/mailbox.h"

#include <utility>

namespace muster::runtime {
namespace {

std::size_t bytes_of(const Message& message) {
  const auto* batch = std::get_if<WatchBatch>(&message);
  return batch == nullptr ? 0 : batch->bytes;
}

}  // namespace

bool Mailbox::post(Message message) {
  const std::size_t bytes = bytes_of(message);
  std::unique_lock lock(mutex_);
  const auto has_room = [&] {
    return messages_.size() < capacity_ && (bytes_ == 0 || bytes_ + bytes <= kWatchedBytesMost);
  };
  while (!closed_ && !has_room()) space_.wait_for(lock, seconds(1));
  if (closed_) return false;
  put(std::move(message));
  return true;
}

bool Mailbox::try_post(Message message) {
  const std::lock_guard lock(mutex_);
  if (closed_ || messages_.size() >= capacity_) return false;
  put(std::move(message));
  return true;
}

void Mailbox::put(Message message) {
  bytes_ += bytes_of(message);
  messages_.push_back(std::move(message));
  news_.notify_all();
}

std::deque<Message> Mailbox::drain() {
  const std::lock_guard lock(mutex_);
  space_.notify_all();
  bytes_ = 0;
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
