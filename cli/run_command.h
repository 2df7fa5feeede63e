// `muster run`: a TrainingJob from its manifest to its model, on this machine.
#pragma once

#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/local_run.h"
#include "cli/progress_view.h"
#include "common/clock.h"

namespace muster::cli {

/// Asks a run to read spec.worker.count from its file again.
inline constexpr int kResizeSignal = SIGUSR1;

struct RunOptions {
  std::string file;
  std::vector<std::string> overrides;  ///< --set, in order
  std::string output;                  ///< empty = muster-out/<job>
  std::string price_list;              ///< file; empty = cost is not counted
  ViewMode view = ViewMode::kLines;
  LocalRunOptions local;
  MonoTime started;  ///< when the command was started
  /// Descriptor that becomes readable with each SIGINT, SIGTERM or kResizeSignal (a signalfd);
  /// they are blocked.
  int signal_fd = -1;
};

/// Runs to the end. Returns the exit code (contract.h). What happens is said on stderr, how it
/// ended on stdout, in sentences. Blocks: until the job is over.
int run_command(const RunOptions& options);

}  // namespace muster::cli
