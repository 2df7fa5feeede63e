#include "operator/api/unread.h"

#include <string_view>

#include "common/contract.h"

namespace muster::api {
namespace {

/// By which a watch says that its list is complete.
constexpr std::string_view kListEnds = "k8s.io/initial-events-end";

constexpr std::array kAnnotations{kListEnds};
constexpr std::array kNodeAnnotations{kListEnds, contract::kAnnotationPcie};
constexpr std::array kPodLabels{contract::kLabelSlot, contract::kLabelAttempt};

// Annotations and labels are as long as who makes an object likes, and anybody makes pods and
// claims: of a thousand, what is kept must be little.
constexpr std::array kOfPods{
    kManagedFields,
    LeftOut{"annotations", "", kAnnotations},
    LeftOut{"labels", "", kPodLabels},
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
    LeftOut{"annotations", "", kNodeAnnotations},
    LeftOut{"status", "addresses"},
    LeftOut{"status", "capacity"},
    LeftOut{"status", "images"},
    LeftOut{"status", "nodeInfo"},
    LeftOut{"status", "volumesAttached"},
    LeftOut{"status", "volumesInUse"},
};

/// Pods may get any of a job's annotations, but for a second copy of the whole job.
constexpr std::array kOfJobs{
    kManagedFields,
    LeftOut{"annotations", "kubectl.kubernetes.io/last-applied-configuration"},
};

constexpr std::array kOfOthers{
    kManagedFields,
    LeftOut{"annotations", "", kAnnotations},
    LeftOut{"metadata", "labels"},
};

}  // namespace

std::span<const LeftOut> unread_of(Kind kind) {
  if (kind == Kind::kPod) return kOfPods;
  if (kind == Kind::kNode) return kOfNodes;
  return kind == Kind::kTrainingJob ? std::span<const LeftOut>(kOfJobs) : kOfOthers;
}

}  // namespace muster::api
