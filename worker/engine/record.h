// The record of a training: one JSON line a step and one an evaluation, in the order they happened.
// A run that goes on from a checkpoint cuts what came after it, so the record never has a step
// twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

  /// Opens `path` and keeps its lines up to `restored_step` (0: none). A damaged line and all after
  /// it are dropped.  Errors: exit code kDisk.  Blocks: on the disk.
  Status open(const std::string& path, std::int64_t restored_step);
  bool is_open() const { return fd_ >= 0; }

  /// Lines stay in memory until flush() or until there are many.  Errors: as open.
  Status add(const RecordedStep& step);
  Status add(const RecordedEvaluation& evaluation);
  Status flush();

 private:
  Status append(const std::string& line);

  std::string path_;
  std::string buffer_;
  int fd_ = -1;
};

}  // namespace muster::engine
