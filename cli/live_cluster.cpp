#include "cli/live_cluster.h"

#include "cli/kube_objects.h"
#include "cli/kube_query.h"

namespace muster::cli {
namespace {

/// docs/reference/cli.md shows it for saving.
constexpr const char* kWatched =
    "nodes,pods,persistentvolumes,persistentvolumeclaims,priorityclasses.scheduling.k8s.io,"
    "trainingjobs.muster.dev,trainingqueues.muster.dev";
/// The same of what need not be installed.
constexpr const char* kWatchedIfThere[] = {"topologyconfigs.muster.dev",
                                           "topologies.kueue.x-k8s.io", "topologies.kai.scheduler",
                                           "hypernodes.topology.volcano.sh"};

}  // namespace

Result<PlanCluster> read_live_cluster(Kubectl& kubectl) {
  KubectlCall call;
  call.arguments = {"api-resources", "--verbs=list", "-o", "name"};
  // It fails as a whole where any other API server of the cluster is down (metrics, as a rule).
  // These kinds are of definitions, which the cluster's own serves.
  call.keeps_part = true;
  MUSTER_ASSIGN_OR_RETURN(std::string there, kubectl.run(call));
  there = "\n" + there + "\n";
  std::string kinds = kWatched;
  for (const char* kind : kWatchedIfThere) {
    if (there.find("\n" + std::string(kind) + "\n") != std::string::npos) {
      kinds += "," + std::string(kind);
    }
  }
  MUSTER_ASSIGN_OR_RETURN(Json list,
                          ask(kubectl, {"get", kinds, "--all-namespaces", "-o", "json"}));
  return PlanCluster{items_of(std::move(list)), kubectl.clock().wall_now()};
}

}  // namespace muster::cli
