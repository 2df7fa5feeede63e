// Names of what is in the cluster, for a shell that completes them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/kubectl.h"

namespace muster::cli {

/// Names of one kind that begin with `prefix`.
struct ClusterNames {
  enum class Kind { kNone, kJobs, kNamespaces, kContexts };
  Kind kind = Kind::kNone;
  std::string prefix;
};

/// Those of them that stand, one a line, in what `kubectl -o name` prints: at most 500, and none
/// that a shell would read as more than a name. Pure.
std::vector<std::string> names_in(std::string_view output, const ClusterNames& wanted);

/// What the cluster has of them, or the kubeconfig, within 3 s; what has not come by then is
/// missing. Blocks: on kubectl.
std::vector<std::string> cluster_names(Kubectl& kubectl, const ClusterNames& wanted);

}  // namespace muster::cli
