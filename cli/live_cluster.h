// All that the operator looks at, asked of the cluster once.
#pragma once

#include "cli/kubectl.h"
#include "cli/plan_forecast.h"

namespace muster::cli {

/// Without prices. Errors: kubectl's, as where the user may not list one of the kinds. Blocks: on
/// kubectl.
Result<PlanCluster> read_live_cluster(Kubectl& kubectl);

}  // namespace muster::cli
