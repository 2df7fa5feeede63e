// `muster prove`: the same job twice at once, undisturbed with one worker and under a random
// schedule of deaths, freezes and resizes, and the verdict whether every step has the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/local_run.h"
#include "cli/progress_view.h"

namespace muster::cli {

struct ProveOptions {
  std::string file;
  std::vector<std::string> overrides;  ///< --set, in order
  std::string output;                  ///< empty = muster-out/prove-<job>
  std::vector<int> sizes{1, 3, 5};     ///< worker counts to move between
  int kills = 5;
  std::uint64_t seed = 1;
  int pace_ms = 25;  ///< least time of a step, so that there is something to disturb
  ViewMode view = ViewMode::kLines;
  LocalRunOptions local;
  /// Descriptor that becomes readable with each SIGINT or SIGTERM (a signalfd); they are blocked.
  int signal_fd = -1;
};

/// Returns 0 when all bits are equal, kFailedJob when they are not or a run did not complete, or
/// another code of contract.h. What happens is said on stderr, the verdict on stdout. Blocks: until
/// both runs are over.
int prove_command(const ProveOptions& options);

}  // namespace muster::cli
