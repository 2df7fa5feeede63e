// Persistent volumes and claims, as far as they tell which nodes a pod may stand on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/node_term.h"
#include "operator/api/object_meta.h"

namespace muster::api {

struct PersistentVolume {
  ObjectMeta meta;
  std::string storage_class;
  std::int64_t capacity_bytes = 0;
  std::string phase;  ///< Available, Bound, Released, Failed
  ObjectKey claim;    ///< claimRef; empty name = none
  std::vector<std::string> access_modes;
  bool is_attached = true;          ///< false: of a kind that every node mounts by itself
  bool is_reachable_by_all = true;  ///< no nodeAffinity
  std::vector<NodeTerm> nodes;      ///< nodeAffinity.required: any of the terms
  bool operator==(const PersistentVolume&) const = default;
};

struct PersistentVolumeClaim {
  ObjectMeta meta;
  std::string phase;        ///< Pending, Bound, Lost
  std::string volume_name;  ///< empty = not bound yet
  std::string storage_class;
  std::vector<std::string> access_modes;
  std::int64_t request_bytes = 0;
  bool operator==(const PersistentVolumeClaim&) const = default;
};

/// Lenient towards fields Muster does not use. Errors: kInvalid.
Result<PersistentVolume> parse_persistent_volume(const Json& json);
Result<PersistentVolumeClaim> parse_persistent_volume_claim(const Json& json);

}  // namespace muster::api
