// What Linux says about this process, under the names that every Prometheus client library uses.
#pragma once

#include <string>

namespace muster::runtime {

struct ProcessFacts {
  double cpu_seconds = 0;
  double resident_bytes = 0, virtual_bytes = 0;
  double open_fds = 0, max_fds = 0;
  double start_time_seconds = 0;  ///< since the epoch
};

/// Reads /proc; what cannot be read is 0. Blocks: microseconds.
ProcessFacts read_process_facts();

}  // namespace muster::runtime
