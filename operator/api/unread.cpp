#include "operator/api/unread.h"

namespace muster::api {
namespace {

constexpr std::array kOfPods{
    kManagedFields,
    LeftOut{"spec", "volumes"},
    LeftOut{"spec", "tolerations"},
    LeftOut{"spec", "securityContext"},
    LeftOut{"spec", "imagePullSecrets"},
    LeftOut{"spec", "topologySpreadConstraints"},
    LeftOut{"containers", "args"},
    LeftOut{"containers", "command"},
    LeftOut{"containers", "env"},
    LeftOut{"containers", "envFrom"},
    LeftOut{"containers", "image"},
    LeftOut{"containers", "lifecycle"},
    LeftOut{"containers", "livenessProbe"},
    LeftOut{"containers", "ports"},
    LeftOut{"containers", "readinessProbe"},
    LeftOut{"containers", "securityContext"},
    LeftOut{"containers", "startupProbe"},
    LeftOut{"containers", "volumeMounts"},
    LeftOut{"initContainers", "args"},
    LeftOut{"initContainers", "command"},
    LeftOut{"initContainers", "env"},
    LeftOut{"initContainers", "envFrom"},
    LeftOut{"initContainers", "image"},
    LeftOut{"initContainers", "lifecycle"},
    LeftOut{"initContainers", "livenessProbe"},
    LeftOut{"initContainers", "ports"},
    LeftOut{"initContainers", "readinessProbe"},
    LeftOut{"initContainers", "securityContext"},
    LeftOut{"initContainers", "startupProbe"},
    LeftOut{"initContainers", "volumeMounts"},
    LeftOut{"status", "hostIPs"},
    LeftOut{"status", "podIPs"},
    LeftOut{"status", "initContainerStatuses"},
    LeftOut{"containerStatuses", "lastState"},
    LeftOut{"containerStatuses", "resources"},
    LeftOut{"containerStatuses", "volumeMounts"},
};

/// A node tells of up to 50 images that lie on it, and is written every few minutes.
constexpr std::array kOfNodes{
    kManagedFields,
    LeftOut{"status", "addresses"},
    LeftOut{"status", "capacity"},
    LeftOut{"status", "images"},
    LeftOut{"status", "nodeInfo"},
    LeftOut{"status", "volumesAttached"},
    LeftOut{"status", "volumesInUse"},
};

}  // namespace

std::span<const LeftOut> unread_of(Kind kind) {
  if (kind == Kind::kPod) return kOfPods;
  if (kind == Kind::kNode) return kOfNodes;
  return kUnreadOfAny;
}

}  // namespace muster::api
