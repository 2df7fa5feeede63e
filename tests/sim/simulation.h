// One seed: operators, an API server that is hard to reach, a cluster and its people, in one
// thread. What must always hold is looked at after every event; when the trouble ends, everything
// must come to its end and then to rest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/faults.h"

namespace muster::sim {

struct SeedResult {
  std::string wrong;  ///< empty: all rules held
  Coverage coverage;
  std::int64_t events = 0, operators = 0, restarts = 0;
  std::int64_t replacements = 0, resizes = 0, joins = 0, questions = 0, granted = 0;
  std::int64_t queued = 0, borrowed = 0;  ///< how often a queue was seen to give, and to borrow
  std::int64_t shrinks = 0, preemptions = 0, resumed = 0;  ///< what was taken back, and came back
  /// Gangs that were placed within a required level on several nodes, and slots that joined one.
  std::int64_t required = 0, required_joins = 0;
  /// Workers that came while nodes were emptied, who of them trained, and who went again.
  std::int64_t spares = 0, spares_joined = 0, spares_left = 0;
  /// Nodes that were emptied while all did their part, and those whose workers had to stay.
  std::int64_t emptied = 0, kept = 0;
  /// The most who ever led at once, where a leader is elected.
  std::int64_t elected = 0;
  std::int64_t lost = 0;             ///< nodes that went away under workers
  std::int64_t shown = 0;            ///< gangs of which it was looked whether they are said to run
  std::vector<std::string> secrets;  ///< what nobody may have been told
};

/// Deterministic: the same seed, the same run.
SeedResult run_seed(std::uint64_t seed);

}  // namespace muster::sim
