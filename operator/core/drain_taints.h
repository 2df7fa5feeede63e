// By which taints others say that they empty a node: autoscalers and handlers of machines that are
// taken away do so without a cordon, or before it.
#pragma once

#include <string>

#include "operator/api/pod.h"

namespace muster::core {

/// Whether it says so, by a name that is known, and keeps pods off the node.
bool is_drain_taint(const api::Node::Taint& taint);

/// Who says so of the node, and how: "Karpenter (taint karpenter.sh/disrupted)"; empty: nobody.
std::string who_empties(const api::Node& node);

}  // namespace muster::core
