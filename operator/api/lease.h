// coordination.k8s.io/v1 Lease: who leads.
#pragma once

#include <string>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/object_meta.h"

namespace muster::api {

struct Lease {
  ObjectMeta meta;
  std::string holder;  ///< empty = nobody
  int duration_seconds = 15;
  std::string acquire_time, renew_time;  ///< metav1.MicroTime as text; never compared with a clock
  int transitions = 0;
  bool operator==(const Lease&) const = default;
};

/// Lenient: whatever another writer left there can be taken over. Errors: kInvalid (no metadata).
Result<Lease> parse_lease(const Json& json);
/// For create.
Json to_json(const Lease& lease);
/// Merge patch that writes the spec where the resourceVersion still is lease.meta's.
Json lease_patch(const Lease& lease);

}  // namespace muster::api
