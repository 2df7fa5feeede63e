// The pod fields of spec.worker that are validated here and copied into the pod as written.
// Everything else of a pod's spec cannot be set by a job.
#include <algorithm>
#include <set>

#include "operator/api/fields.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxVolumes = 32;
constexpr std::size_t kMaxItems = 64;
constexpr std::size_t kMaxGroups = 16;
constexpr std::size_t kMaxSources = 16;

/// A string that must only be one of `words`, or absent.
void check_enum(JsonReader& in, std::string_view field,
                std::initializer_list<std::string_view> words) {
  std::string text;
  optional_enum(in, field, text, words);
}

void check_optional(JsonReader& in, std::string_view field, NameRule rule) {
  std::string text;
  optional_name(in, field, text, rule);
}

void check_flag(JsonReader& in, std::string_view field) {
  bool flag = false;
  in.optional(field, flag);
}

void check_bytes(JsonReader& in, std::string_view field) {
  std::string text;
  in.optional(field, text, 64);
  if (!in.has(field) || !in.status()) return;
  const auto bytes = parse_bytes(text);
  if (!bytes) return in.fail(field, bytes.error().message());
  if (*bytes < kMinMemoryBytes || *bytes > kMaxMemoryBytes) {
    in.fail(field, "must be from 1Mi to 64Ti, not " + in_quotes(text));
  }
}

void read_ports(JsonReader& in) {
  std::vector<std::string> names, numbers;
  read_list(in, "ports", kMaxItems, [&](const Json& item, const std::string& path) -> Status {
    SpecReader port(item, path);
    std::string name, protocol = "TCP";
    std::int64_t number = 0;
    required_name(port, "name", name, NameRule::kPortName);
    port.required("containerPort", number, {1, 65'535});
    optional_enum(port, "protocol", protocol, {"TCP", "UDP", "SCTP"});
    port.no_other_fields();
    port.take(add_unique(names, name, path + ".name", "the port name"));
    port.take(add_unique(numbers, std::to_string(number) + "/" + protocol, path + ".containerPort",
                         "the port"));
    return port.status();
  });
}

/// items of a configMap or secret volume.
void read_items(JsonReader& in) {
  read_list(in, "items", kMaxItems, [](const Json& item, const std::string& path) {
    SpecReader entry(item, path);
    std::string key, file;
    std::int64_t mode = 0;
    required_name(entry, "key", key, NameRule::kConfigKey);
    required_name(entry, "path", file, NameRule::kRelativePath);
    entry.optional("mode", mode, {0, 511});
    entry.no_other_fields();
    return entry.status();
  });
}

Status read_configuration(const Json& json, const std::string& path, std::string_view name_field) {
  SpecReader in(json, path);
  std::string name;
  std::int64_t mode = 0;
  required_name(in, name_field, name, NameRule::kSubdomain);
  in.optional("defaultMode", mode, {0, 511});
  check_flag(in, "optional");
  read_items(in);
  in.no_other_fields();
  return in.status();
}

Status read_volume(const Json& json, const std::string& path, std::vector<std::string>& names) {
  SpecReader in(json, path);
  std::string name;
  required_name(in, "name", name, NameRule::kLabel);
  if (in.status() && name.starts_with(kMusterVolumePrefix)) {
    in.fail("name", "must not start with \"muster-\"; those volumes are Muster's own");
  }
  in.take(add_unique(names, name, path + ".name", "the volume"));
  read_object(in, "persistentVolumeClaim", [](const Json& source, const std::string& at) {
    SpecReader claim(source, at);
    std::string claim_name;
    required_name(claim, "claimName", claim_name, NameRule::kSubdomain);
    check_flag(claim, "readOnly");
    claim.no_other_fields();
    return claim.status();
  });
  read_object(in, "configMap", [](const Json& source, const std::string& at) {
    return read_configuration(source, at, "name");
  });
  read_object(in, "secret", [](const Json& source, const std::string& at) {
    return read_configuration(source, at, "secretName");
  });
  read_object(in, "emptyDir", [](const Json& source, const std::string& at) {
    SpecReader directory(source, at);
    check_enum(directory, "medium", {"Memory"});
    check_bytes(directory, "sizeLimit");
    directory.no_other_fields();
    return directory.status();
  });
  in.no_other_fields();
  one_of(in, {"persistentVolumeClaim", "configMap", "secret", "emptyDir"});
  return in.status();
}

/// Empty when a user's volume may stand at `path`.
std::string mount_refused(const std::string& path, const Json& worker) {
  // In most images /var/run is a link to /run.
  for (const char* closed : {kMusterMountPath, "/run/secrets/muster.dev", "/proc", "/sys",
                             "/var/run/secrets/kubernetes.io", "/run/secrets/kubernetes.io"}) {
    if (is_below(path, closed) || is_below(closed, path)) {
      return std::string("must not be, or hold, ") + closed + "; mount it elsewhere";
    }
  }
  if (path == "/dev" || (is_below(path, "/dev") && path != "/dev/shm")) {
    return "must not be in /dev; only /dev/shm may be mounted there";
  }
  const auto size = worker.find("shmSize");
  if (path == "/dev/shm" && size != worker.end() && !size->is_null()) {
    return "must not be /dev/shm when shmSize is set; leave one of the two out";
  }
  return "";
}

void read_node_selector(JsonReader& in) {
  read_object(in, "nodeSelector", [](const Json& map, const std::string& path) -> Status {
    if (map.size() > 32) return Error(ErrorCode::kInvalid, path + ": has more than 32 entries");
    for (const auto& [key, value] : map.items()) {
      const std::string at = path + "." + cut(key, 64);
      if (!matches(NameRule::kQualified, key)) {
        return Error(ErrorCode::kInvalid,
                     at + ": must be a label name like \"disk\" or \"example.com/disk\"");
      }
      if (!value.is_string() || !matches(NameRule::kLabelValue, value.get<std::string>())) {
        return Error(ErrorCode::kInvalid,
                     at + ": must be a label value in quotes: at most 63 letters, digits, '-', '_' "
                          "or '.'");
      }
    }
    return {};
  });
}

Status read_toleration(const Json& json, const std::string& path) {
  SpecReader in(json, path);
  std::string key, operation = "Equal", value, effect;
  std::int64_t seconds = 0;
  optional_name(in, "key", key, NameRule::kQualified);
  optional_enum(in, "operator", operation, {"Exists", "Equal"});
  optional_name(in, "value", value, NameRule::kLabelValue);
  optional_enum(in, "effect", effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"});
  in.optional("tolerationSeconds", seconds, {0, INT32_MAX});
  in.no_other_fields();
  if (!in.status()) return in.status();
  if (key.empty() && operation != "Exists") {
    in.fail("key", "is required unless operator is Exists");
  }
  if (operation == "Exists" && !value.empty()) {
    in.fail("value", "must be left out when operator is Exists");
  }
  if (in.has("tolerationSeconds") && effect != "NoExecute") {
    in.fail("tolerationSeconds", "needs effect NoExecute");
  }
  return in.status();
}

void read_claims(JsonReader& in) {
  std::vector<std::string> names;
  read_list(in, "resourceClaims", 32, [&](const Json& item, const std::string& path) {
    SpecReader claim(item, path);
    std::string name;
    required_name(claim, "name", name, NameRule::kLabel);
    check_optional(claim, "resourceClaimName", NameRule::kSubdomain);
    check_optional(claim, "resourceClaimTemplateName", NameRule::kSubdomain);
    claim.no_other_fields();
    one_of(claim, {"resourceClaimName", "resourceClaimTemplateName"});
    claim.take(add_unique(names, name, path + ".name", "the claim"));
    return claim.status();
  });
}

void read_pull_secrets(JsonReader& in) {
  std::vector<std::string> names;
  read_list(in, "imagePullSecrets", 16, [&](const Json& item, const std::string& path) {
    SpecReader secret(item, path);
    std::string name;
    required_name(secret, "name", name, NameRule::kSubdomain);
    secret.no_other_fields();
    secret.take(add_unique(names, name, path + ".name", "the secret"));
    return secret.status();
  });
}

/// Who the workers are: never root.
void read_user(JsonReader& in) {
  for (const char* id : {"runAsUser", "runAsGroup", "fsGroup"}) {
    std::int64_t number = 0;
    in.optional(id, number, {1, INT32_MAX});
  }
  read_list(in, "supplementalGroups", kMaxGroups, [](const Json& item, const std::string& path) {
    const bool is_group = item.is_number_integer() && item >= 1 && item <= INT32_MAX;
    if (is_group) return Status();
    return Status(Error(ErrorCode::kInvalid, path + ": must be an integer from 1 to 2147483647"));
  });
}

}  // namespace

void read_env_from(JsonReader& in, bool has_gpus) {
  const auto read_source = [](const Json& source, const std::string& at) {
    SpecReader reader(source, at);
    std::string name;
    required_name(reader, "name", name, NameRule::kSubdomain);
    check_flag(reader, "optional");
    reader.no_other_fields();
    return reader.status();
  };
  read_list(in, "envFrom", kMaxSources, [&](const Json& item, const std::string& path) {
    SpecReader from(item, path);
    std::string prefix;
    optional_name(from, "prefix", prefix, NameRule::kEnvName);
    read_object(from, "configMapRef", read_source);
    read_object(from, "secretRef", read_source);
    from.no_other_fields();
    one_of(from, {"configMapRef", "secretRef"});
    // A device plugin says by it which GPUs are the worker's; which keys there will be nobody
    // knows.
    if (from.status() && has_gpus && kVisibleGpus.starts_with(prefix)) {
      from.fail("prefix", "must be given where workers have GPUs, and be no beginning of " +
                              std::string(kVisibleGpus) +
                              ", by which they would be given GPUs of others");
    }
    return from.status();
  });
}

void read_mounts(JsonReader& in, const Json& worker, const std::vector<std::string>& volumes) {
  std::vector<std::string> paths;
  read_list(in, "volumeMounts", kMaxItems, [&](const Json& item, const std::string& path) {
    SpecReader mount(item, path);
    std::string name, at;
    required_name(mount, "name", name, NameRule::kLabel);
    required_name(mount, "mountPath", at, NameRule::kAbsolutePath);
    check_optional(mount, "subPath", NameRule::kRelativePath);
    check_flag(mount, "readOnly");
    mount.no_other_fields();
    if (!mount.status()) return mount.status();
    if (std::find(volumes.begin(), volumes.end(), name) == volumes.end()) {
      mount.fail("name", "must name one of spec.worker.volumes, not " + in_quotes(name));
    }
    if (const auto why = mount_refused(at, worker); !why.empty()) mount.fail("mountPath", why);
    mount.take(add_unique(paths, at, path + ".mountPath", "the path"));
    return mount.status();
  });
}

std::vector<std::string> read_pod_fields(JsonReader& in, const Json& worker, WorkerSpec& out) {
  std::vector<std::string> volumes;
  if (!worker.is_object()) return volumes;
  read_env_from(in, out.resources.gpus > 0);
  read_ports(in);
  read_list(in, "volumes", kMaxVolumes, [&](const Json& item, const std::string& path) {
    return read_volume(item, path, volumes);
  });
  read_mounts(in, worker, volumes);
  check_bytes(in, "shmSize");
  read_node_selector(in);
  read_node_affinity(in, out.node_terms);
  read_list(in, "tolerations", kMaxItems, read_toleration);
  read_pull_secrets(in);
  check_enum(in, "imagePullPolicy", {"Always", "IfNotPresent", "Never"});
  check_optional(in, "serviceAccountName", NameRule::kSubdomain);
  check_optional(in, "runtimeClassName", NameRule::kSubdomain);
  check_optional(in, "schedulerName", NameRule::kSubdomain);
  read_claims(in);
  read_user(in);
  std::int64_t seconds = 0;
  in.optional("terminationGracePeriodSeconds", seconds, {1, 86'400});
  if (!in.status()) return volumes;
  for (const char* field :
       {"envFrom", "ports", "volumes", "volumeMounts", "shmSize", "nodeSelector", "affinity",
        "tolerations", "imagePullSecrets", "imagePullPolicy", "serviceAccountName",
        "runtimeClassName", "schedulerName", "resourceClaims", "runAsUser", "runAsGroup", "fsGroup",
        "supplementalGroups", "terminationGracePeriodSeconds"}) {
    if (in.has(field)) out.pod_fields[field] = without_nulls(worker[field]);
  }
  return volumes;
}

}  // namespace muster::api
