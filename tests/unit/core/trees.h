// Topologies for tests of placement, without nodes' objects.
#pragma once

#include <string>
#include <vector>

#include "common/check.h"
#include "operator/core/inventory.h"
#include "operator/core/topology.h"

namespace muster::test {

/// Levels by name, coarse to fine.
inline core::TopologyInput tree_of(const std::vector<std::string>& levels) {
  core::TopologyInput input;
  for (const std::string& name : levels) {
    core::TopologyLevel& level = input.levels.emplace_back();
    level.key = "example.com/" + name;
    level.name = name;
  }
  input.source = "test";
  input.confidence = core::Confidence::kHigh;
  return input;
}

/// Adds `count` hosts at a path, named by a running number.
inline void add_hosts(core::TopologyInput& input, const std::vector<std::string>& path, int count) {
  for (int i = 0; i < count; ++i) {
    core::NodePath& node = input.nodes.emplace_back();
    std::string number = std::to_string(input.nodes.size() - 1);
    node.node = "n" + std::string(5 - std::min<std::size_t>(5, number.size()), '0') + number;
    for (std::size_t level = 0; level < path.size(); ++level) {
      if (!path[level].empty()) node.steps.push_back({static_cast<int>(level), path[level]});
    }
  }
}

inline core::Topology built(core::TopologyInput input) {
  auto topology = core::build_topology(std::move(input));
  MUSTER_CHECK(topology);
  return *topology;
}

/// Room from how many pods fit on each host, in the topology's order.
inline core::Room room_of(const core::Topology& topology, const std::vector<int>& on_node) {
  core::Room room;
  room.on_node = on_node;
  room.in_domain.assign(topology.domains.size(), 0);
  for (std::size_t i = 0; i < on_node.size(); ++i) {
    for (int d = topology.leaf_of_node[i]; d >= 0; d = topology.domains[core::as_index(d)].parent) {
      room.in_domain[core::as_index(d)] += on_node[i];
    }
  }
  return room;
}

}  // namespace muster::test
