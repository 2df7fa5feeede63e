// Places for one gang in what is free: all of its workers or none, on the fewest nodes, or along
// the tree where topology is asked for. In words what is missing, where it does not fit.
#pragma once

#include "operator/core/rooms.h"

namespace muster::core {

/// Takes from `rooms` what it gives. `caps`, where there are any, hold it back on nodes.
GangVerdict place(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps = nullptr);

}  // namespace muster::core
