// The witness: whether workers that see no majority of their membership may begin the next one. One
// write of status under its version decides, so that of two sides only one is told yes.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

struct WitnessVerdict {
  WitnessResponse response;
  /// To be carried out before the response is given; absent when nothing needs to be written.
  std::optional<Plan> plan;
};

/// Yes, unless a newer membership is known (granted, or reported by a worker), or more than half of
/// the membership it comes from may still run without those who ask: they would be a majority, go
/// on without asking anybody, and two gangs would train. Who that membership is the asker says, or
/// else a report; no while nobody does, and while one who was once let in, is not of that
/// membership and may run has not said where it is: it may be of a newer one. The same question
/// again gets the same answer. No with the asker's own epoch: not now, ask again.
WitnessVerdict decide_witness(const JobSnapshot& snapshot, const WitnessRequest& request);

}  // namespace muster::core
