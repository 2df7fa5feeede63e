#include "operator/api/topology_config.h"

#include <charconv>
#include <cmath>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr double kMostDecimal = 1e6;
constexpr JsonReader::Range kLatency = {0, 10'000'000};

void read_topology_decimal(JsonReader& in, const char* field, std::string& out) {
  if (!in.has(field)) return;
  std::string text;
  in.optional(field, text, kMaxDecimalBytes);
  if (!in.status()) return;
  const auto value = parse_topology_decimal(text, in.path_of(field));
  if (!value) return in.take(value.error());
  out = std::move(text);
}

Status read_config_level(const Json& json, const std::string& path, TopologyConfigLevel& out) {
  JsonReader in(json, path);
  required_name(in, "name", out.name, NameRule::kLabel);
  if (in.status() && names_host(out.name)) {
    in.fail("name", "must not name the host, which is a level of its own below all others");
  }
  required_name(in, "nodeLabel", out.node_label, NameRule::kQualified);
  read_topology_decimal(in, "oversubscription", out.oversubscription);
  in.optional("latencyMicroseconds", out.latency_microseconds, kLatency);
  in.no_other_fields();
  return in.status();
}

Status read_config_spec(const Json& json, const std::string& path, TopologyConfig& out) {
  JsonReader in(json, path);
  std::vector<std::string> names, labels;
  read_list(in, "levels", kMaxTopologyConfigLevels,
            [&](const Json& item, const std::string& at) -> Status {
              TopologyConfigLevel& level = out.levels.emplace_back();
              MUSTER_RETURN_IF_ERROR(read_config_level(item, at, level));
              MUSTER_RETURN_IF_ERROR(add_unique(names, level.name, at + ".name", "level"));
              return add_unique(labels, level.node_label, at + ".nodeLabel", "label of a level");
            });
  if (in.status() && out.levels.empty()) in.fail("levels", "must have at least one level");
  read_object(in, "host", [&](const Json& object, const std::string& at) {
    JsonReader host(object, at);
    read_topology_decimal(host, "gigabitsPerSecond", out.gigabits_per_second);
    read_topology_decimal(host, "localGigabitsPerSecond", out.local_gigabits_per_second);
    host.no_other_fields();
    return host.status();
  });
  in.no_other_fields();
  return in.status();
}

}  // namespace

bool names_host(const std::string& level) {
  return level == "host" || level == "node" || level == "hostname" ||
         level == "kubernetes.io/hostname";
}

Result<double> parse_topology_decimal(const std::string& text, const std::string& at) {
  double value = 0;
  const auto [end, failure] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  const bool is_right = failure == std::errc() && end == text.data() + text.size() &&
                        std::isfinite(value) && value > 0 && value <= kMostDecimal;
  if (is_right) return value;
  return Error(ErrorCode::kInvalid,
               at + ": must be a decimal number above 0 and at most 1000000, in quotes");
}

Result<TopologyConfig> parse_topology_config(const Json& json) {
  TopologyConfig config;
  JsonReader in(json, "");
  require_kind(in, Kind::kTopologyConfig);
  if (in.status()) in.take(read_meta(json, config.meta));
  if (in.status() && !config.meta.namespace_name.empty()) {
    in.fail("metadata.namespace", "must be left out; the network is the whole cluster's");
  }
  if (in.status() && !in.has("spec")) in.fail("spec", "is required");
  read_object(in, "spec", [&](const Json& object, const std::string& at) {
    return read_config_spec(object, at, config);
  });
  in.object("metadata");
  in.no_other_fields();
  if (!in.status()) return in.status().error().with_exit_code(contract::exit_code::kInvalidSpec);
  return config;
}

Json to_json(const TopologyConfig& config) {
  Json json = object_json(Kind::kTopologyConfig, config.meta);
  json["spec"]["levels"] = Json::array();
  for (const TopologyConfigLevel& level : config.levels) {
    json["spec"]["levels"].push_back({{"name", level.name},
                                      {"nodeLabel", level.node_label},
                                      {"oversubscription", level.oversubscription},
                                      {"latencyMicroseconds", level.latency_microseconds}});
  }
  Json host = Json::object();
  if (!config.gigabits_per_second.empty()) host["gigabitsPerSecond"] = config.gigabits_per_second;
  if (!config.local_gigabits_per_second.empty()) {
    host["localGigabitsPerSecond"] = config.local_gigabits_per_second;
  }
  if (!host.empty()) json["spec"]["host"] = std::move(host);
  return json;
}

}  // namespace muster::api
