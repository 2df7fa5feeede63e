// report.json: the whole story of a run, for people and scripts. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/run_record.h"
#include "common/json.h"

namespace muster::cli {

/// What only the running command knows.
struct RunFacts {
  std::string outcome;  ///< Complete, Failed or Interrupted
  std::string message;  ///< one sentence
  int exit_code = 0;
  double seconds = 0;                                 ///< of the whole command
  std::optional<double> start_to_first_step_seconds;  ///< until the first step had ended
  std::int64_t resumed_from_step = -1;                ///< -1: from the start
  std::int64_t checkpoint_step = -1;                  ///< newest one on disk; -1: none
  std::uint64_t sent_bytes = 0;  ///< all workers of this command, payload and headers
  std::uint64_t logical_rank_computations = 0;  ///< all workers of this command
  bool has_model = false;
};

/// Tokens of one sample of a TrainingJob's data; 0 when its samples are no texts.
std::int64_t tokens_per_sample(const Json& job);
/// The same of its spec.training.model.
std::int64_t tokens_per_sample_of(const Json& model);

/// All but byStep. `job` is the TrainingJob as the API server last had it.
Json make_report(const Json& job, const RunFacts& facts, const RunRecord& record);
/// The same as text; of a training with byStep as its last member, a line a step, of which no Json
/// is built as a whole: of millions of steps that is gigabytes.
std::string report_text(const Json& job, const RunFacts& facts, const RunRecord& record);

}  // namespace muster::cli
