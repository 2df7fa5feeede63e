// `muster simulate [JOBS]`: jobs of the past on a saved cluster, by the operator's rules and
// others'.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "common/clock.h"

namespace muster::cli {

struct SimulateOptions {
  std::string jobs;                ///< file of the trace (simulation.h); empty: the cluster's own
  std::string cluster;             ///< file of the saved cluster
  std::vector<std::string> rules;  ///< of kSimulateRules; empty: all
  int checkpoint_minutes = 30;     ///< a job that has to stop loses what it ran since
  std::string output;              ///< "json", or empty
};

/// Names of the rules, the operator's own first.
inline const std::vector<std::string> kSimulateRules{"muster", "strict-fifo", "any-that-fits",
                                                     "best-fit", "pods"};

/// Returns the exit code. Blocks: as long as deciding takes.
int simulate_command(const SimulateOptions& options, const Display& display, const Clock& clock);

}  // namespace muster::cli
