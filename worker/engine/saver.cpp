#include "worker/engine/saver.h"

#include <system_error>
#include <utility>

#include "common/caught.h"
#include "common/check.h"
#include "common/contract.h"
#include "worker/engine/copies.h"

namespace muster::engine {

SummedState::SummedState(std::span<const float> parameters, const OptimizerState& optimizer,
                         std::optional<std::uint64_t> sum, std::function<void()> on_alive)
    : parameters_(parameters),
      optimizer_(optimizer),
      sum_(sum ? *sum : bit_sum(parameters, optimizer, on_alive)),
      on_alive_(std::move(on_alive)) {}

Result<std::span<const float>> SummedState::read(const StatePiece& piece) {
  const auto& buffers = optimizer_.buffers;
  const bool is_last =
      piece.buffer == buffers.size() &&
      piece.range.end == (buffers.empty() ? parameters_ : buffers.back().values).size();
  if (is_last && bit_sum(parameters_, optimizer_, on_alive_) != sum_) {
    return Error(ErrorCode::kCorrupt, "a bit has flipped in the memory that it is written from")
        .with_exit_code(contract::exit_code::kMemory);
  }
  return StateInMemory(parameters_, &optimizer_).read(piece);
}

Saver::~Saver() {
  wait();
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

/// False where there is no thread left to be had.
bool Saver::start_thread() {
  if (thread_.joinable()) return true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    return false;
  }
  return true;
}

void Saver::run() {
  for (;;) {
    std::function<Status()> done;  // what it owns may wait for the disk, too: not under the lock
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return write_ || ends_; });
    if (!write_) return;
    lock.unlock();
    Status status = run_caught(write_);
    lock.lock();
    status_ = std::move(status);
    done = std::exchange(write_, nullptr);
    changed_.notify_all();
  }
}

void Saver::begin(std::int64_t step, bool is_beside, std::function<Status()> write) {
  step_ = step;
  const bool has_thread = is_beside && start_thread();
  {
    const std::lock_guard lock(mutex_);
    MUSTER_CHECK(!write_);
    status_ = {};
    if (has_thread) {
      write_ = std::move(write);
      changed_.notify_all();
      return;
    }
  }
  Status status = write();
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
}

bool Saver::is_saved() {
  const std::lock_guard lock(mutex_);
  return step_ >= 0 && !write_ && status_.has_value();
}

Status Saver::result() {
  const std::lock_guard lock(mutex_);
  return write_ ? Status() : status_;
}

bool Saver::wait(milliseconds most) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, most, [this] { return !write_; });
}

void Saver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !write_; });
}

void Saver::forget() {
  wait();
  const std::lock_guard lock(mutex_);
  step_ = -1;
  status_ = {};
}

void Saver::give_up_copy() {
  const std::lock_guard lock(mutex_);
  if (!write_) copy_ = Copy();
}

Saver::Copy& Saver::copy() {
  const std::lock_guard lock(mutex_);
  MUSTER_CHECK(!write_);
  return copy_;
}

}  // namespace muster::engine
