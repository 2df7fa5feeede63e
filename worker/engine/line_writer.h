// Lines on their way to the end of a file whose disk may take any time: who adds one does not wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "common/clock.h"
#include "common/result.h"

namespace muster::engine {

/// Of lines that wait, the newest: most bytes that are kept in memory.
inline constexpr std::size_t kLinesKeptMost = std::size_t{1} << 20;

/// Takes the oldest lines away from `lines` that are more than may be kept, and returns them.
std::string take_surplus(std::string& lines);

/// Threads: add() and write() are one caller's, all else any.
class LineWriter {
 public:
  /// Appends whole lines to the file.  Blocks: on the disk.
  using Write = std::function<Status(std::string_view lines)>;
  struct Options {
    Write write;
    /// On a thread of its own. Else in the thread that adds lines, as where there is no thread to
    /// be had.
    bool is_beside = true;
    /// Without a thread of its own: whether lines are to wait now as if the disk gave no answer.
    std::function<bool()> is_held = {};
  };

  explicit LineWriter(Options options);
  /// Blocks: for the disk, until it has all lines or has failed.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Adds a line behind all others. Those that had to be dropped for it, the oldest of which the
  /// writing has not begun, are returned. After an error none is written any more.
  std::string add(std::string_view line);
  /// Adds lines, however many, and waits for them.  Blocks: for the disk.
  Status write(std::string_view lines);

  /// Lines that were added so far.
  std::int64_t added() const;
  /// Those that may not be in the file yet, the newest MiB.
  std::string unwritten() const;
  /// Whether the first `count` of them have been written or dropped; waits so long at most.
  /// Errors: of `write`, the first one.
  Result<bool> wait(std::int64_t count, milliseconds most);
  /// The same, however long it takes.  Blocks: for the disk.
  Status wait(std::int64_t count);
  /// Lines whose writing has not begun are dropped.
  void discard();

 private:
  void run();
  void write_waiting(std::unique_lock<std::mutex>& lock);
  bool is_over(std::int64_t count) const { return written_ >= count || !status_; }

  const Options options_;
  mutable std::mutex mutex_;
  // All below: under mutex_.
  std::condition_variable changed_;
  std::string waiting_;  ///< lines whose writing has not begun
  std::string writing_;  ///< those before them, while is_writing_, when nobody changes it
  std::int64_t added_ = 0, written_ = 0;
  bool is_writing_ = false;
  Status status_;
  bool ends_ = false;
  // But for the thread, which is there or not from the beginning on.
  std::thread thread_;
};

}  // namespace muster::engine
