#include "operator/api/unread.h"

#include <string_view>

#include "common/contract.h"

namespace muster::api {
namespace {

/// By which a watch says that its list is complete.
constexpr std::string_view kListEnds = "k8s.io/initial-events-end";

constexpr std::array kAnnotations{kListEnds};
constexpr std::array kNodeAnnotations{kListEnds, contract::kAnnotationPcie};
constexpr std::array kPodLabels{contract::kLabelSlot, contract::kLabelAttempt,
                                contract::kLabelQueue};

constexpr std::array<std::string_view, 8> kPodSpec{
    "affinity", "containers", "hostNetwork", "initContainers",
    "nodeName", "overhead",   "resources",   "schedulingGates"};
constexpr std::array<std::string_view, 1> kAffinity{"nodeAffinity"};
constexpr std::array<std::string_view, 1> kNodeAffinity{
    "requiredDuringSchedulingIgnoredDuringExecution"};
constexpr std::array<std::string_view, 1> kTerm{"matchFields"};
constexpr std::array<std::string_view, 2> kContainer{"ports", "resources"};
constexpr std::array<std::string_view, 4> kInitContainer{"name", "ports", "resources",
                                                         "restartPolicy"};
constexpr std::array<std::string_view, 2> kPort{"containerPort", "hostPort"};
constexpr std::size_t kMostPorts = 8;
constexpr std::array<std::string_view, 1> kResources{"requests"};
constexpr std::array<std::string_view, 7> kPodStatus{
    "conditions", "containerStatuses", "initContainerStatuses", "message", "phase", "podIP",
    "reason"};
constexpr std::array<std::string_view, 3> kContainerStatus{"imageID", "name", "state"};
constexpr std::array<std::string_view, 3> kInitContainerStatus{"name", "started", "state"};

// Anybody makes pods and claims, and what is in them is as long as who makes them likes: what is
// kept must be little. Of a pod it is what parse_pod asks for, and no text of a tenant's is.
constexpr std::array kOfPods{
    kManagedFields,
    LeftOut{"annotations", "", kAnnotations},
    LeftOut{"labels", "", kPodLabels},
    LeftOut{"spec", "", kPodSpec},
    LeftOut{"affinity", "", kAffinity},
    LeftOut{"nodeAffinity", "", kNodeAffinity},
    // One is read, and only when it is the only one.
    LeftOut{"nodeSelectorTerms", "", kTerm, 2},
    LeftOut{"containers", "", kContainer},
    LeftOut{"initContainers", "", kInitContainer},
    // What a pod of ours holds of its node comes first.
    LeftOut{"ports", "", kPort, kMostPorts},
    LeftOut{"resources", "", kResources},
    LeftOut{"status", "", kPodStatus},
    LeftOut{"containerStatuses", "", kContainerStatus},
    LeftOut{"initContainerStatuses", "", kInitContainerStatus},
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
