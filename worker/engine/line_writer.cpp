#include "worker/engine/line_writer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/caught.h"

namespace muster::engine {
namespace {

/// Of one that may have a thread an exception is an error.
LineWriter::Options with_errors(LineWriter::Options options) {
  if (!options.is_beside) return options;
  options.write = [write = std::move(options.write)](std::string_view lines) {
    return run_caught([&] { return write(lines); });
  };
  return options;
}

}  // namespace

std::string take_surplus(std::string& lines) {
  if (lines.size() <= kLinesKeptMost) return {};
  const std::size_t end = lines.find('\n', lines.size() - kLinesKeptMost - 1) + 1;
  std::string surplus = lines.substr(0, end);
  lines.erase(0, end);
  return surplus;
}

LineWriter::LineWriter(Options options) : options_(with_errors(std::move(options))) {
  if (!options_.is_beside) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // There is none left to be had.
  }
}

LineWriter::~LineWriter() {
  if (!thread_.joinable()) {
    (void)wait(added(), milliseconds(0));
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void LineWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !waiting_.empty() || ends_; });
    if (waiting_.empty()) return;
    write_waiting(lock);
  }
}

/// All of them at once: a disk that is slow is asked less often.
void LineWriter::write_waiting(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !is_writing_; });
  writing_ = std::exchange(waiting_, {});
  const std::int64_t count = added_;
  is_writing_ = true;
  lock.unlock();
  Status status = writing_.empty() ? Status() : options_.write(writing_);
  lock.lock();
  is_writing_ = false;
  writing_.clear();
  if (status) {
    written_ = waiting_.empty() ? added_ : count;
  } else {
    status_ = std::move(status);
    waiting_.clear();
  }
  changed_.notify_all();
}

std::string LineWriter::add(std::string_view line) {
  std::unique_lock lock(mutex_);
  if (!status_) return {};
  waiting_ += line;
  ++added_;
  std::string dropped = take_surplus(waiting_);
  if (thread_.joinable()) {
    changed_.notify_all();
  } else if (!options_.is_held || !options_.is_held()) {
    write_waiting(lock);
  }
  return dropped;
}

Status LineWriter::write(std::string_view lines) {
  {
    const std::lock_guard lock(mutex_);
    if (!status_) return status_;
    waiting_ += lines;
    added_ += std::count(lines.begin(), lines.end(), '\n');
    changed_.notify_all();
  }
  return wait(added());
}

std::int64_t LineWriter::added() const {
  const std::lock_guard lock(mutex_);
  return added_;
}

std::string LineWriter::unwritten() const {
  const std::lock_guard lock(mutex_);
  std::string lines = writing_ + waiting_;
  (void)take_surplus(lines);
  return lines;
}

Result<bool> LineWriter::wait(std::int64_t count, milliseconds most) {
  std::unique_lock lock(mutex_);
  if (thread_.joinable()) {
    (void)changed_.wait_for(lock, most, [&] { return is_over(count); });
  } else if (!is_over(count) && !(options_.is_held && options_.is_held())) {
    write_waiting(lock);
  }
  if (!status_) return status_.error();
  return written_ >= count;
}

Status LineWriter::wait(std::int64_t count) {
  std::unique_lock lock(mutex_);
  if (thread_.joinable()) {
    changed_.wait(lock, [&] { return is_over(count); });
  } else if (!is_over(count)) {
    write_waiting(lock);
  }
  return status_;
}

void LineWriter::discard() {
  const std::lock_guard lock(mutex_);
  waiting_.clear();
  if (!is_writing_) written_ = added_;
  changed_.notify_all();
}

}  // namespace muster::engine
