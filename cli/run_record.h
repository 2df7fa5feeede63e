// The record that the worker of rank 0 keeps of a training: a line a step, a line an evaluation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace muster::cli {

inline constexpr std::size_t kMaxRecordBytes = std::size_t{512} << 20;

struct RecordedStep {
  std::int64_t step = 0, epoch = 0, samples = 0, workers = 0;
  std::string loss;    ///< decimal text
  std::string sha256;  ///< of the parameters after the step; empty: not hashed
  double seconds = 0;
};

struct RecordedEvaluation {
  std::int64_t step = 0;
  double accuracy = 0;
  std::string loss;
};

struct RunRecord {
  std::vector<RecordedStep> steps;
  std::vector<RecordedEvaluation> evaluations;
};

/// Lines up to the first that is cut or damaged: a worker may have been killed while it wrote.
RunRecord parse_run_record(std::string_view text);

/// The last step of the record in `path`, 0 when there is none; reads only the end of it. Blocks:
/// on the disk.
std::int64_t newest_recorded_step(const std::string& path);

/// The record in `path`; empty when there is none. Errors: kIo, kTooLarge. Blocks: on the disk.
Result<RunRecord> read_run_record(const std::string& path);

/// The same of a record of any length: of a longer one than `bytes` its last lines alone. Errors:
/// kIo.
Result<RunRecord> read_end_of_record(const std::string& path, std::size_t bytes = kMaxRecordBytes);

}  // namespace muster::cli
