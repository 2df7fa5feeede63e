// What a simulation came to, for people and for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "cli/simulation_trace.h"

namespace muster::cli {

struct RuleResult {
  std::string rule;
  runtime::Simulation simulation;
  bool is_model = false;  ///< of what others do: none of their code ran
};

/// One row a rule; times of jobs that have ended.
std::string simulation_text(const std::vector<RuleResult>& results,
                            const std::vector<TraceJob>& trace, const std::vector<Json>& objects,
                            const Display& display);
/// The same figures, and every job's.
Json simulation_json(const std::vector<RuleResult>& results, const std::vector<TraceJob>& trace,
                     const std::vector<Json>& objects);

}  // namespace muster::cli
