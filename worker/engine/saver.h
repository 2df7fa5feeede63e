// A checkpoint is written while training goes on: from a copy of the state, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/engine/checkpoint.h"
#include "worker/engine/optimizer.h"

namespace muster::engine {

/// A state in memory, of which the last piece is given only while it has the bit_sum() that it is
/// to have: what is written of it takes a while, and a bit that flips meanwhile would get a right
/// checksum.  Errors of the last read: kCorrupt with exit code kMemory.
class SummedState final : public StateSource {
 public:
  /// What it is made of outlives it. `sum`: when it was known to be right; nothing: it has the
  /// right one now. `on_alive` is called often meanwhile; empty: nobody asks.
  SummedState(std::span<const float> parameters, const OptimizerState& optimizer,
              std::optional<std::uint64_t> sum, std::function<void()> on_alive = nullptr);
  Result<std::span<const float>> read(const StatePiece& piece) override;

 private:
  std::span<const float> parameters_;
  const OptimizerState& optimizer_;
  const std::uint64_t sum_;
  const std::function<void()> on_alive_;
};

/// Threads: one.  Its destructor waits for what is being written.
class Saver {
 public:
  /// What is written. Its memory is kept from one checkpoint to the next, as is the thread.
  struct Copy {
    std::vector<float> parameters;
    OptimizerState optimizer;
  };

  Saver() = default;
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// The step of the newest checkpoint that was begun; -1: none.
  std::int64_t step() const { return step_; }
  /// Whether it is whole on the disk.
  bool is_saved();
  /// Writes it on a thread of its own, or with `is_beside` false in the caller's. Requires that
  /// nothing is being written.
  void begin(std::int64_t step, bool is_beside, std::function<Status()> write);
  /// What became of it; nothing has become yet of one that is being written. What `write`
  /// throws on a thread of its own is an error with exit code kOutOfMemory or kInternal.
  Status result();
  /// Whether nothing is being written any more.  Blocks: for the disk, so long at most.
  bool wait(milliseconds most);
  /// Until nothing is.  Blocks: for the disk.
  void wait();
  /// Forgets it, once it is written.  Blocks: for the disk.
  void forget();
  /// Requires that nothing is being written.
  Copy& copy();
  /// Its memory, unless something is being written of it.
  void give_up_copy();

 private:
  bool start_thread();
  void run();

  std::int64_t step_ = -1;
  Copy copy_;
  std::mutex mutex_;
  // All below: under mutex_, but for the thread itself.
  std::condition_variable changed_;
  std::function<Status()> write_;  ///< what is being written; empty: nothing
  Status status_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace muster::engine
