#include "operator/api/lease.h"

#include <algorithm>

#include "operator/api/object_meta_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxLeaseTextBytes = 512;
constexpr std::int64_t kMaxDurationSeconds = 3600;
constexpr std::int64_t kMaxTransitions = 1'000'000'000;

std::string text_of(const Json& spec, const char* field) {
  const auto found = spec.find(field);
  if (found == spec.end() || !found->is_string()) return {};
  return found->get<std::string>().substr(0, kMaxLeaseTextBytes);
}

std::int64_t number_of(const Json& spec, const char* field, std::int64_t most) {
  const auto found = spec.find(field);
  if (found == spec.end() || !found->is_number_integer()) return 0;
  return std::clamp<std::int64_t>(found->get<std::int64_t>(), 0, most);
}

Json spec_of(const Lease& lease) {
  return {{"holderIdentity", lease.holder},
          {"leaseDurationSeconds", lease.duration_seconds},
          {"acquireTime", lease.acquire_time},
          {"renewTime", lease.renew_time},
          {"leaseTransitions", lease.transitions}};
}

}  // namespace

Result<Lease> parse_lease(const Json& json) {
  Lease lease;
  MUSTER_RETURN_IF_ERROR(read_meta(json, lease.meta));
  const auto spec = json.find("spec");
  if (spec == json.end() || !spec->is_object()) return lease;
  lease.holder = text_of(*spec, "holderIdentity");
  lease.duration_seconds =
      static_cast<int>(number_of(*spec, "leaseDurationSeconds", kMaxDurationSeconds));
  lease.acquire_time = text_of(*spec, "acquireTime");
  lease.renew_time = text_of(*spec, "renewTime");
  lease.transitions = static_cast<int>(number_of(*spec, "leaseTransitions", kMaxTransitions));
  return lease;
}

Json to_json(const Lease& lease) {
  Json json = object_json(Kind::kLease, lease.meta);
  json["spec"] = spec_of(lease);
  return json;
}

Json lease_patch(const Lease& lease) {
  return {{"metadata", {{"resourceVersion", lease.meta.resource_version}}},
          {"spec", spec_of(lease)}};
}

}  // namespace muster::api
