// Which slot of a split model goes where among the nodes of its gang. Two kinds of workers send to
// each other: those with the same stage exchange its gradients, and those that are neighbours in a
// copy hand on activations and their gradients. Along the tree, slots with one copy are beside each
// other, or slots with one stage: whichever sends for a shorter time. Pure.
#pragma once

#include <vector>

#include "operator/core/step_time.h"

namespace muster::core {

/// What the processes of a split model send in a step. Process i of the job has stage i % stages of
/// copy i / stages; worker w has the processes from w x processes on. Slices of a stage that are in
/// one worker count as one process.
struct MeshWork {
  int stages = 1;
  int processes = 1;          ///< of a worker
  double gradient_bytes = 0;  ///< of the whole model; a stage has its share
  double activation_bytes =
      0;                 ///< of the whole batch, from one stage to the next; and as many back
  bool is_ring = false;  ///< the last stage hands on to the first, too
  bool operator==(const MeshWork&) const = default;
};

/// How long the links are loaded in a step, without latency: the reduce-scatter and the all-gather
/// of all stages at the same time, then what the copies hand on. `nodes` by slot, by the
/// topology's numbers, a multiple of so many as have whole copies together.
double mesh_seconds(const StepModel& model, const MeshWork& work, const std::vector<int>& nodes);

enum class MeshOrder { kCopiesTogether, kStagesTogether };

/// Orders `nodes`, one for each slot and ascending along the tree, by slot. Copies are together
/// unless the other order sends for a shorter time.
MeshOrder order_mesh(const StepModel& model, const MeshWork& work, std::vector<int>& nodes);

}  // namespace muster::core
