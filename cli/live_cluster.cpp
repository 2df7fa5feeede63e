#include "cli/live_cluster.h"

#include "cli/kube_objects.h"
#include "cli/kube_query.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

/// docs/reference/cli.md shows it for saving, with pods.
constexpr const char* kWatched =
    "nodes,persistentvolumes,persistentvolumeclaims,priorityclasses.scheduling.k8s.io,"
    "trainingjobs.muster.dev,trainingqueues.muster.dev";
/// The same of what need not be installed.
constexpr const char* kWatchedIfThere[] = {"topologyconfigs.muster.dev",
                                           "topologies.kueue.x-k8s.io", "topologies.kai.scheduler",
                                           "hypernodes.topology.volcano.sh"};
/// Of each call: a list of a large cluster comes in pages, and kubectl prints none before the last.
constexpr milliseconds kReadDeadline{300'000};

Result<std::string> kinds_there(Kubectl& kubectl) {
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
  return kinds;
}

/// Puts what `kubectl get` with these words finds behind `objects`.
Status read_all(Kubectl& kubectl, const std::vector<std::string>& what,
                std::vector<Json>& objects) {
  KubectlCall call;
  call.arguments = {"get"};
  call.arguments.insert(call.arguments.end(), what.begin(), what.end());
  call.arguments.insert(call.arguments.end(), {"--all-namespaces", "-o", "json"});
  call.deadline = kReadDeadline;
  call.silence = milliseconds(0);
  auto list = ask(kubectl, call);
  if (!list) {
    const bool is_too_much = list.error().code() == ErrorCode::kTooLarge ||
                             list.error().code() == ErrorCode::kDeadlineExceeded;
    if (!is_too_much) return list.error();
    return Error(list.error().code(),
                 list.error().message() +
                     "; save the cluster in a file, as docs/reference/cli.md shows, without what "
                     "takes no room there, and give it to muster plan with --cluster FILE")
        .with_exit_code(list.error().exit_code());
  }
  for (Json& object : items_of(std::move(*list))) objects.push_back(std::move(object));
  return {};
}

}  // namespace

Result<PlanCluster> read_live_cluster(Kubectl& kubectl) {
  MUSTER_ASSIGN_OR_RETURN(const std::string kinds, kinds_there(kubectl));
  PlanCluster cluster;
  // Pods that have ended take no room, and a cluster may have more of them than others; those of
  // workers say how far their jobs are. They come second, so that one that ends now is not missed.
  MUSTER_RETURN_IF_ERROR(
      read_all(kubectl, {"pods", "--field-selector=status.phase!=Succeeded,status.phase!=Failed"},
               cluster.objects));
  MUSTER_RETURN_IF_ERROR(read_all(
      kubectl,
      {"pods", "--selector=" + std::string(contract::kLabelJobUid),
       "--field-selector=status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"},
      cluster.objects));
  MUSTER_RETURN_IF_ERROR(read_all(kubectl, {kinds}, cluster.objects));
  cluster.now = kubectl.clock().wall_now();
  return cluster;
}

}  // namespace muster::cli
