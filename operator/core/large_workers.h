// Hosts for few large workers, where the gang's shape is free (spec.worker.shape): as many of its
// workers as can be stand together on each host, so that pod_shape makes one of them. It may cost
// neither nearness nor leaf domains. What the gang takes is counted in workers as spec.worker says.
#pragma once

#include "operator/core/rooms.h"

namespace muster::core {

/// Places all of a gang anew, and takes from the rooms what it gives.
using PlaceAnew = GangVerdict (*)(const WaitingGang&, Rooms&, const NodeCaps*);

/// `placed` is what `place_anew` gave to the gang. Instead it gets the places of workers that are
/// each so many of its own, with the largest such number for which these stand no further apart;
/// where there is none, it keeps its places. At most eight numbers are tried.
void place_large(const WaitingGang& gang, GangPlacement& placed, Rooms& rooms, const NodeCaps* caps,
                 PlaceAnew place_anew);

}  // namespace muster::core
