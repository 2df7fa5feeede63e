// The record of a training: one JSON line a step and one an evaluation, in the order they happened.
// A run that goes on from a checkpoint cuts what came after it, so the record never has a step
// twice. While the process that owns the file is away, or its disk gives no answer, all others keep
// the lines in memory and hand them over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "worker/engine/line_writer.h"

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

/// Twice the step of a line of a record, and 1 more for that of an evaluation, which comes behind
/// the step's: of the first and the last of `lines`. 0 for what is none.
struct LineNumbers {
  std::int64_t first = 0, last = 0;
};
LineNumbers line_numbers(std::string_view lines);

/// Whether the record at `path` has the line of `step` and none of an evaluation of it; not where
/// it is no file. Leaves it as it is.  Errors: exit code kDisk.  Blocks: on the disk.
Result<bool> lacks_evaluation(const std::string& path, std::int64_t step);

/// How the lines of an open record get to its file.
struct RecordWriting {
  bool is_beside = true;               ///< as LineWriter::Options
  std::function<bool()> is_held = {};  ///< likewise
  /// Called by the thread that writes lines, before it does and after.
  std::function<void()> on_write = {}, on_written = {};
};

/// Threads: one.  Its destructor waits for the disk, until it has all lines.
class Record {
 public:
  /// Opens `path` and keeps its lines up to step `restored_step` (0: none): up to the last one that
  /// is whole and none of a later step. What stands before that is not looked at, and lines that
  /// were kept before are forgotten. Another process
  /// that has it open and is late does not write to it any more, unless it has over 64 MiB.
  /// Errors: exit code kDisk.  Blocks: on the disk.
  Status open(const std::string& path, std::int64_t restored_step, RecordWriting writing = {});
  /// The last step that has a line, 0 without one.
  std::int64_t last_step() const { return last_step_; }
  /// The last step whose evaluation has a line, as far as the last line tells.
  std::int64_t last_evaluation() const {
    return ends_with_evaluation_ ? last_step_ : last_step_ - 1;
  }
  bool is_open() const { return writer_ != nullptr; }
  /// Forgets all, lines that nobody has begun to write, too; it may be opened again.
  /// Blocks: for the disk.
  void close();
  /// Of an open record: somebody else adds to its file from now on. What is not written there is
  /// kept, as it is of a record that is not open, which it is then.  Blocks: for what is being
  /// written.
  void give_up();
  /// Nothing is added any more.  Blocks: for the disk, until it has all lines or has failed.
  void end() { writer_.reset(); }

  /// What is added to an open record is written beside the caller, which waits for no disk. Of
  /// lines that are not written, and of a record that is not open, the newest MiB is kept.
  /// Errors: as open; of an earlier line, where lines are written beside the caller.
  Status add(const RecordedStep& step);
  Status add(const RecordedEvaluation& evaluation);
  /// Whether the system has all lines so far of an open record, so that they outlive this process;
  /// waits so long at most.  Errors: as open.
  Result<bool> wait(milliseconds most);
  /// What waits until the disk itself has all lines so far: to be called once, on any thread, also
  /// after close(). Nothing to do for a record that is not open.
  std::function<Status()> sync();

  /// The lines in memory that no file may have: all of a record that is not open.
  std::string lines() const { return is_open() ? writer_->unwritten() : buffer_; }
  void forget_lines() { buffer_.clear(); }
  /// Adds others' lines() that are newer than the last step of this one.  Errors: as open.
  /// Blocks: for the disk, where there are any.
  Status merge(const std::vector<std::string>& texts);
  /// Lines up to `step` that it does not have will not come any more.
  void skip_to(std::int64_t step);
  /// Steps that are known to be without a line since this was asked last: while nobody could write,
  /// more were made than are kept, or a disk has lost the newest ones.
  std::int64_t take_missing() { return std::exchange(missing_, 0); }

 private:
  struct File;
  Status append(const std::string& line);

  std::string buffer_;
  std::shared_ptr<File> file_;
  std::shared_ptr<LineWriter> writer_;  ///< to file_
  std::int64_t last_step_ = 0;
  std::int64_t missing_ = 0;
  bool ends_with_evaluation_ = false;
};

}  // namespace muster::engine
