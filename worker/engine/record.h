// The record of a training: one JSON line a step and one an evaluation, in the order they happened.
// A run that goes on from a checkpoint cuts what came after it, so the record never has a step
// twice. While the process that owns the file is away, all others keep the lines in memory and hand
// them over.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace muster::engine {

struct RecordedStep {
  std::int64_t step = 0, epoch = 0, samples = 0;
  int workers = 0;
  float loss = 0;
  std::string sha256;  ///< of the parameters after the step; empty: not hashed
  double seconds = 0;
};

struct RecordedEvaluation {
  std::int64_t step = 0;
  double accuracy = 0;
  float loss = 0;
};

/// Shortest decimal text that reads back as the same float.
std::string decimal(float value);

/// Threads: one.
class Record {
 public:
  Record() = default;
  ~Record();
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;

  /// Opens `path` and keeps its lines up to step `restored_step` (0: none). A damaged line and all
  /// after it are dropped.  Errors: exit code kDisk.  Blocks: on the disk.
  Status open(const std::string& path, std::int64_t restored_step);
  /// The last step that has a line, 0 without one.
  std::int64_t last_step() const { return last_step_; }
  /// The last step whose evaluation has a line, as far as the last line tells.
  std::int64_t last_evaluation() const {
    return ends_with_evaluation_ ? last_step_ : last_step_ - 1;
  }
  bool is_open() const { return fd_ >= 0; }
  /// Forgets all, lines in memory, too; it may be opened again.
  void close();

  /// Lines stay in memory until flush(); a record that is not open keeps the newest MiB.
  /// Errors: as open.
  Status add(const RecordedStep& step);
  Status add(const RecordedEvaluation& evaluation);
  Status flush();
  /// flush(), and what has the disk have all lines so far: to be called once, on any thread, also
  /// after close(). Nothing to do for a record that is not open.  Errors: as open.
  Result<std::function<Status()>> flush_for_sync();

  /// The lines in memory, of a record that is not open.
  const std::string& lines() const { return buffer_; }
  void forget_lines() { buffer_.clear(); }
  /// Adds others' lines() that are newer than the last step of this one.  Errors: as open.
  Status merge(const std::vector<std::string>& texts);
  /// Lines up to `step` that it does not have will not come any more.
  void skip_to(std::int64_t step);
  /// Steps without a line that merge() or skip_to() has found, since this was asked last: while
  /// nobody could write, more were made than are kept, or a disk has lost the newest ones.
  std::int64_t take_missing() { return std::exchange(missing_, 0); }

 private:
  Status append(const std::string& line);

  std::string path_;
  std::string buffer_;
  int fd_ = -1;
  std::int64_t last_step_ = 0;
  std::int64_t missing_ = 0;
  bool ends_with_evaluation_ = false;
};

}  // namespace muster::engine
