#include "operator/api/volume.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/training_job.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxTerms = 256;
constexpr std::size_t kMaxValues = 1024;
constexpr std::size_t kMaxTermValueBytes = 256;
constexpr std::size_t kMaxModes = 64;
constexpr std::size_t kMaxModeBytes = 64;
/// Sources of volumes that no controller attaches to nodes, whatever their access modes, and CSI
/// drivers of file systems in the network, whose CSIDriver objects say attachRequired: false.
constexpr std::array<std::string_view, 5> kNeverAttached{"nfs", "hostPath", "local", "cephfs",
                                                         "glusterfs"};
constexpr std::array<std::string_view, 8> kDriversWithoutAttachment{"nfs.csi.k8s.io",
                                                                    "smb.csi.k8s.io",
                                                                    "efs.csi.aws.com",
                                                                    "fsx.csi.aws.com",
                                                                    "file.csi.azure.com",
                                                                    "blob.csi.azure.com",
                                                                    "filestore.csi.storage.gke.io",
                                                                    "gcsfuse.csi.storage.gke.io"};

Status read_storage(const Json& amounts, std::int64_t& out) {
  const auto found = amounts.find("storage");
  if (found == amounts.end() || !found->is_string()) return {};
  MUSTER_ASSIGN_OR_RETURN(out, parse_bytes(found->get<std::string>()));
  return {};
}

Status read_requirement(const Json& json, const std::string& path, NodeRequirement& out) {
  JsonReader in(json, path);
  in.required("key", out.key);
  in.required("operator", out.op);
  read_strings(in, "values", kMaxValues, kMaxTermValueBytes, out.values);
  return in.status();
}

Status read_term(const Json& json, const std::string& path, NodeTerm& out) {
  JsonReader in(json, path);
  read_list(in, "matchExpressions", kMaxTerms, [&](const Json& item, const std::string& at) {
    return read_requirement(item, at, out.labels.emplace_back());
  });
  read_list(in, "matchFields", kMaxTerms, [&](const Json& item, const std::string& at) {
    return read_requirement(item, at, out.fields.emplace_back());
  });
  return in.status();
}

Status read_affinity(const Json& json, const std::string& path, PersistentVolume& out) {
  JsonReader in(json, path);
  read_object(in, "required", [&](const Json& required, const std::string& at) {
    out.is_reachable_by_all = false;
    JsonReader terms(required, at);
    read_list(terms, "nodeSelectorTerms", kMaxTerms,
              [&](const Json& item, const std::string& term) {
                return read_term(item, term, out.nodes.emplace_back());
              });
    return terms.status();
  });
  return in.status();
}

Status read_volume_spec(const Json& json, const std::string& path, PersistentVolume& out) {
  JsonReader in(json, path);
  in.optional("storageClassName", out.storage_class);
  read_strings(in, "accessModes", kMaxModes, kMaxModeBytes, out.access_modes);
  std::string driver;
  read_object(in, "csi", [&](const Json& csi, const std::string& at) {
    JsonReader reader(csi, at);
    reader.optional("driver", driver);
    return reader.status();
  });
  out.is_attached =
      std::ranges::find(kDriversWithoutAttachment, driver) == kDriversWithoutAttachment.end() &&
      std::ranges::none_of(kNeverAttached, [&](std::string_view source) { return in.has(source); });
  read_object(in, "capacity", [&](const Json& amounts, const std::string&) {
    return read_storage(amounts, out.capacity_bytes);
  });
  read_object(in, "claimRef", [&](const Json& claim, const std::string& at) {
    JsonReader reader(claim, at);
    reader.optional("namespace", out.claim.namespace_name);
    reader.optional("name", out.claim.name);
    return reader.status();
  });
  read_object(in, "nodeAffinity", [&](const Json& affinity, const std::string& at) {
    return read_affinity(affinity, at, out);
  });
  return in.status();
}

Status read_claim_spec(const Json& json, const std::string& path, PersistentVolumeClaim& out) {
  JsonReader in(json, path);
  in.optional("storageClassName", out.storage_class);
  read_strings(in, "accessModes", kMaxModes, kMaxModeBytes, out.access_modes);
  in.optional("volumeName", out.volume_name);
  read_object(in, "resources", [&](const Json& resources, const std::string& at) {
    JsonReader reader(resources, at);
    read_object(reader, "requests", [&](const Json& amounts, const std::string&) {
      return read_storage(amounts, out.request_bytes);
    });
    return reader.status();
  });
  return in.status();
}

Status read_phase(const Json& json, std::string& out) {
  JsonReader in(json, "");
  read_object(in, "status", [&](const Json& status, const std::string& at) {
    JsonReader reader(status, at);
    reader.optional("phase", out);
    return reader.status();
  });
  return in.status();
}

}  // namespace

Result<PersistentVolume> parse_persistent_volume(const Json& json) {
  PersistentVolume volume;
  MUSTER_RETURN_IF_ERROR(read_meta(json, volume.meta));
  JsonReader in(json, "");
  read_object(in, "spec", [&](const Json& spec, const std::string& at) {
    return read_volume_spec(spec, at, volume);
  });
  MUSTER_RETURN_IF_ERROR(in.status());
  MUSTER_RETURN_IF_ERROR(read_phase(json, volume.phase));
  return volume;
}

Result<PersistentVolumeClaim> parse_persistent_volume_claim(const Json& json) {
  PersistentVolumeClaim claim;
  MUSTER_RETURN_IF_ERROR(read_meta(json, claim.meta));
  JsonReader in(json, "");
  read_object(in, "spec", [&](const Json& spec, const std::string& at) {
    return read_claim_spec(spec, at, claim);
  });
  MUSTER_RETURN_IF_ERROR(in.status());
  MUSTER_RETURN_IF_ERROR(read_phase(json, claim.phase));
  return claim;
}

}  // namespace muster::api
