// How long a step of a split model takes where its workers stand: its stages' micro-batches, in the
// order in which the engine makes them (pipeline_time.h), with what stages hand on and what slices
// send each other on the links between them; then the exchange of each part's gradients between the
// copies, and what the processes of a copy tell each other of the whole model. What each process
// computes and sends its worker has told (PartReport). Pure.
#pragma once

#include <optional>
#include <vector>

#include "common/messages.h"
#include "common/split.h"
#include "operator/core/topology.h"

namespace muster::core {

struct SplitWork {
  Split split;
  int processes = 1;  ///< of a worker
  int logical_ranks = 1;
  bool is_clipped = false;        ///< the norm of the whole gradient is needed
  std::vector<PartReport> parts;  ///< by place in a copy: stage by stage, slice by slice
};

/// As if nobody else sent. `nodes` by worker, ascending by slot, which have whole copies together.
/// Absent: some workers have more processes with a part than others, or the parts do not fit
/// together, as of a worker that tells wrong numbers.
std::optional<double> split_step_seconds(const Topology& topology, const SplitWork& work,
                                         const std::vector<int>& nodes);

}  // namespace muster::core
