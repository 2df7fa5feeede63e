// How to reach the API server, read from a kubeconfig file or from the pod's own surroundings.
//
// A kubeconfig may come from a stranger: nothing in it can start a program (exec plugins are
// refused), turn verification off, or send requests through a proxy. Sentences never quote a
// secret.
#pragma once

#include <string>
#include <string_view>

#include "common/result.h"
#include "operator/kube/rest_transport.h"

namespace muster::kube {

struct ClusterAccess {
  RestTransportOptions transport;  ///< url, CA and credentials; the rest is the caller's
  std::string namespace_name;      ///< of the context or the pod; empty = none named
};

/// The current context of a kubeconfig. Errors: kInvalid with the path, the field and what would be
/// right. Blocks: on the disk. The certificates themselves are looked at by make_rest_transport.
Result<ClusterAccess> read_kubeconfig(const std::string& path);

/// The same for text; relative paths in it begin at `directory`.
Result<ClusterAccess> parse_kubeconfig(std::string_view text, const std::string& name,
                                       const std::string& directory);

/// What a pod knows: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, and the files below
/// `directory`. Errors: kInvalid with a sentence for someone who runs the program outside of a pod.
Result<ClusterAccess> in_cluster_access(const std::string& host, const std::string& port,
                                        const std::string& directory);

/// Where Kubernetes mounts a pod's token, CA and namespace.
inline constexpr const char* kServiceAccountDirectory =
    "/var/run/secrets/kubernetes.io/serviceaccount";

}  // namespace muster::kube
