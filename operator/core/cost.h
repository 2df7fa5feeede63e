// What a job costs by a price list: what its places take of which prices, and what that comes to
// over a stretch of time. Pure. Places cost from the decision that gives them until the one that
// takes them away; what their pods do meanwhile is not looked at.
//
// What is used is kept in status.cost with each write. So the time until the next write is counted
// by what was used in it, by whichever operator, and though the node may be gone by then.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/pod.h"
#include "operator/api/price_list.h"
#include "operator/api/training_job.h"

namespace muster::core {

/// Nodes that a job's places name, by name; those that are not there do not stand in it.
using PricedNodes = std::map<std::string, const api::Node*>;

/// What so many units of a price cost in [from, to), of a job that has used `hours` of it before.
/// Time beyond ten years is left out.
api::Billionths cost_of(const api::PriceList& prices, const api::PriceTier& tier,
                        const api::Price& price, const api::CostItem& used, WallTime from,
                        WallTime to);

/// `cost` with the time until `now` added. Without a price list (nullptr), or where it has changed
/// so that what is used has no price in it, that time's cost is unknown.
api::JobCost cost_until(api::JobCost cost, const api::PriceList* prices, WallTime now);

/// What a job uses from now on.
struct CostUse {
  const api::WorkerSpec& worker;
  const std::vector<std::string>& node_of_worker;  ///< empty: it stands nowhere yet, and is free
  const PricedNodes& nodes;
  bool sees_nodes = true;  ///< false: nothing is known of any node
};
/// `cost`, of which the time until `now` is counted, with the rate from then on.
api::JobCost with_use(api::JobCost cost, const api::PriceList* prices, const CostUse& use,
                      WallTime now);

}  // namespace muster::core
