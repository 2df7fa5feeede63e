// TopologyConfig: what an administrator says about the cluster's network. Field by field the
// reference in docs; crds/topologyconfig.yaml is its schema, and a test keeps the two equal.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/object_meta.h"

namespace muster::api {

inline constexpr std::size_t kMaxTopologyConfigLevels = 16;

struct TopologyConfigLevel {
  std::string name;        ///< what jobs call it
  std::string node_label;  ///< key of the label that says in which domain of it a node stands
  std::string oversubscription = "1";  ///< decimal text
  std::int64_t latency_microseconds = 0;
  bool operator==(const TopologyConfigLevel&) const = default;
};

struct TopologyConfig {
  ObjectMeta meta;
  std::vector<TopologyConfigLevel> levels;  ///< coarse to fine
  /// Decimal texts; empty: not given.
  std::string gigabits_per_second, local_gigabits_per_second;
  bool operator==(const TopologyConfig&) const = default;
};

/// Reads and validates a TopologyConfig. Errors: kInvalid naming the field and what would be right.
Result<TopologyConfig> parse_topology_config(const Json& json);
Json to_json(const TopologyConfig& config);

/// A decimal above 0 as the fields above have it. Errors: kInvalid, beginning with `at`.
Result<double> parse_topology_decimal(const std::string& text, const std::string& at);

/// Names by which a job means one node; no level's.
bool names_host(const std::string& level);

}  // namespace muster::api
