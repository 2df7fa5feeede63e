// What every Kubernetes object carries. Only the fields Muster uses; foreign objects are never
// written back whole, only patched, so fields not named here survive.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"

namespace muster::api {

/// Namespace (empty for cluster-scoped kinds) and name.
struct ObjectKey {
  std::string namespace_name;
  std::string name;
  auto operator<=>(const ObjectKey&) const = default;
  std::string text() const { return namespace_name.empty() ? name : namespace_name + "/" + name; }
};

struct OwnerReference {
  std::string api_version, kind, name, uid;
  bool controller = false;
  bool operator==(const OwnerReference&) const = default;
};

struct ObjectMeta {
  std::string name;
  std::string namespace_name;
  std::string uid;
  std::string resource_version;  ///< opaque: only == means anything
  std::int64_t generation = 0;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<OwnerReference> owner_references;
  std::optional<WallTime> creation_time;
  std::optional<WallTime> deletion_time;
  std::int64_t deletion_grace_seconds =
      0;  ///< with deletion_time: how much before it was asked for
  bool operator==(const ObjectMeta&) const = default;

  ObjectKey key() const { return {namespace_name, name}; }
  /// The owner with controller: true; nullptr when there is none.
  const OwnerReference* controller() const;
};

/// metav1.Condition. last_transition_time moves only when status flips.
struct Condition {
  std::string type;    ///< "Complete"
  std::string status;  ///< "True", "False" or "Unknown"
  std::string reason;  ///< CamelCase, never empty
  std::string message;
  std::int64_t observed_generation = 0;
  WallTime last_transition_time;
  bool operator==(const Condition&) const = default;
};

/// The kinds Muster reads or writes, with their place in the REST API. The two reviews are
/// questions: they are created, answered at once and stored nowhere.
enum class Kind {
  kTrainingJob,
  kPod,
  kNode,
  kService,
  kEvent,
  kLease,
  kTokenReview,
  kSubjectAccessReview,
  kPersistentVolume,
  kPersistentVolumeClaim,
  kPodDisruptionBudget,
  kPodGroup,          ///< Kubernetes 1.37
  kPodGroupV1Alpha2,  ///< Kubernetes 1.36
  kWorkload,          ///< likewise
  kWorkloadV1Alpha2,
  kTrainingQueue,
  kPriorityClass,
  kTopologyConfig,
  kKueueTopology,
  kKaiTopology,
  kHyperNode,
  kKueueWorkload
};

struct KindInfo {
  const char* api_version;  ///< "muster.dev/v1alpha1", "v1"
  const char* kind;         ///< "TrainingJob"
  const char* plural;       ///< "trainingjobs"
  bool namespaced;
};
const KindInfo& info_of(Kind kind);

/// All that is not unreserved (RFC 3986, section 2.3) as %XX: names reach us from other clusters'
/// objects, and none may add a slash or a query to a path.
std::string percent_encoded(const std::string& text);

/// Path of the collection: "/apis/muster.dev/v1alpha1/namespaces/ns/trainingjobs", or over all
/// namespaces when `namespace_name` is empty.
std::string collection_path(Kind kind, const std::string& namespace_name);
/// Path of one object.
std::string object_path(Kind kind, const ObjectKey& key);

}  // namespace muster::api
