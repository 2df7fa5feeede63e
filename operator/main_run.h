// Puts the operator together from its flags and surroundings, and runs it until a signal.
#pragma once

#include <string>

#include "operator/kube/kubeconfig.h"
#include "operator/main_flags.h"

namespace muster::operator_main {

/// What the environment says; all may be empty.
struct Surroundings {
  std::string pod_name, pod_namespace, pod_ip;  ///< downward API
  std::string kubernetes_service_host, kubernetes_service_port;
};

/// By --kubeconfig, or by the pod's surroundings. Errors: kInvalid with exit code kUsage.
Result<kube::ClusterAccess> cluster_access(const Flags& flags, const Surroundings& surroundings);

/// Returns the exit code; one line on stderr says what was wrong before the log began. `signal_fd`:
/// a signalfd that becomes readable when the process shall end. Blocks: until the end.
int run(const Flags& flags, const Surroundings& surroundings, int signal_fd);

}  // namespace muster::operator_main
