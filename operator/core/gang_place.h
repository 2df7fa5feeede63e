// Places for one gang in what is free: all of its workers or none, on the fewest nodes, or along
// the tree where topology is asked for. In words what is missing, where it does not fit.
#pragma once

#include "operator/core/rooms.h"

namespace muster::core {

/// Takes from `rooms` what it gives. `caps`, where there are any, hold it back on nodes.
GangVerdict place(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps = nullptr);

/// Whether a pod of the gang may never stand there, unless somebody changes the node or the job:
/// its labels and taints, but for what the cluster itself says of a node by a taint.
bool is_closed_to(const WaitingGang& gang, const api::Node& node);

}  // namespace muster::core
