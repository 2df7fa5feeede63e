// `muster logs JOB`: what the workers said, in the order of time; that of the worker that failed
// first comes first.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "cli/kubectl.h"

namespace muster::cli {

struct LogsOptions {
  std::string job;
  bool follows = false;     ///< also workers that come later, until the job is over
  std::int64_t tail = -1;   ///< lines of each worker; -1: all
  std::vector<int> slots;   ///< empty: all
  std::string container;    ///< of the pods; empty: what they said, whichever container it is
  bool has_stamps = false;  ///< lines begin with their time
  std::string since;        ///< as kubectl reads it ("5m"); empty: all
};

/// Workers whose logs are read at once; each is a kubectl.
inline constexpr std::size_t kMostLogs = 64;

/// Returns the exit code. Blocks: on the cluster.
int logs_command(Kubectl& kubectl, const LogsOptions& options, const Display& display);

}  // namespace muster::cli
