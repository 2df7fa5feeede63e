#include "operator/core/drain_taints.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::core {
namespace {

struct DrainTaint {
  std::string_view key, whose;
};

constexpr std::string_view kAutoscaler = "the cluster autoscaler";
constexpr std::string_view kKarpenter = "Karpenter";
constexpr std::string_view kAwsHandler = "AWS's node termination handler";

/// Neither those of machines that are off (node.cloudprovider.kubernetes.io/shutdown,
/// node.kubernetes.io/out-of-service): who was there is lost, and replaced for that. Nor what only
/// may come to it (DeletionCandidateOfClusterAutoscaler).
constexpr std::array kDrainTaints = {
    // Source: kubernetes/autoscaler, cluster-autoscaler/utils/taints.
    DrainTaint{"ToBeDeletedByClusterAutoscaler", kAutoscaler},
    // Source: karpenter.sh, Concepts, Disruption; until v1 it was the second.
    DrainTaint{"karpenter.sh/disrupted", kKarpenter},
    DrainTaint{"karpenter.sh/disruption", kKarpenter},
    // Source: aws/aws-node-termination-handler, TAINT_NODE.
    DrainTaint{"aws-node-termination-handler/spot-itn", kAwsHandler},
    DrainTaint{"aws-node-termination-handler/scheduled-maintenance", kAwsHandler},
    DrainTaint{"aws-node-termination-handler/asg-lifecycle-termination", kAwsHandler},
    DrainTaint{"aws-node-termination-handler/rebalance-recommendation", kAwsHandler},
    // Source: GKE, Manage disruption to GKE nodes that don't live migrate.
    DrainTaint{"cloud.google.com/impending-node-termination", "GKE"},
    // Source: AKS, Node auto-drain.
    DrainTaint{"remediator.kubernetes.azure.com/unschedulable", "AKS"},
    // Source: castai/spot-handler.
    DrainTaint{"autoscaling.cast.ai/draining", "CAST AI"},
};

const DrainTaint* find_known(const api::Node::Taint& taint) {
  if (!taint.is_hard()) return nullptr;
  const auto* found = std::find_if(kDrainTaints.begin(), kDrainTaints.end(),
                                   [&](const DrainTaint& one) { return one.key == taint.key; });
  return found == kDrainTaints.end() ? nullptr : found;
}

}  // namespace

bool is_drain_taint(const api::Node::Taint& taint) { return find_known(taint) != nullptr; }

std::string who_empties(const api::Node& node) {
  for (const auto& taint : node.taints) {
    const DrainTaint* known = find_known(taint);
    if (known == nullptr) continue;
    return std::string(known->whose) + " (taint " + taint.key + ")";
  }
  return "";
}

}  // namespace muster::core
