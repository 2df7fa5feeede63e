// `muster run`: a TrainingJob from its manifest to its model, on this machine.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/progress_view.h"
#include "common/clock.h"

namespace muster::cli {

struct RunOptions {
  std::string file;
  std::vector<std::string> overrides;      ///< --set, in order
  std::string output;                      ///< empty = muster-out/<job>
  std::optional<std::int64_t> hash_every;  ///< steps; nullopt = the worker's default
  std::string log_level = "info";          ///< of the workers' logs
  int metrics_port = 0;                    ///< --metrics-port; 0 = none
  ViewMode view = ViewMode::kLines;
  std::string worker_program;
  std::map<std::string, std::string> environment;  ///< muster's own; workers inherit it
  const Clock* clock = nullptr;
  MonoTime started;  ///< when the command was started
  /// Descriptor that becomes readable with each SIGINT or SIGTERM (a signalfd); they are blocked.
  int signal_fd = -1;
};

/// Runs to the end. Returns the exit code (contract.h). What happens is said on stderr, how it
/// ended on stdout, in sentences. Blocks: until the job is over.
int run_command(const RunOptions& options);

}  // namespace muster::cli
