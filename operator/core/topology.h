// Where nodes stand in the network: a tree of domains (zone, block, rack, ...) of any depth. A
// domain is known by its path: equal names under different parents are different places, and a
// node of which nothing is known is a place of its own. What clusters say about it is read in
// topology_sources.h.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/result.h"
#include "operator/api/topology_config.h"

namespace muster::core {

/// Nodes, domains and levels are numbered with int, -1 being none.
inline std::size_t as_index(int number) { return static_cast<std::size_t>(number); }

inline constexpr std::size_t kMaxTopologyLevels = 16;
inline constexpr std::size_t kMaxTopologyNodes = 200'000;
inline constexpr std::size_t kMaxTopologyNotes = 32;

/// How far the tree can be trusted: a guess, the provider's labels, or what an administrator wrote.
enum class Confidence { kLow, kMedium, kHigh };
std::string confidence_text(Confidence confidence);

/// One kind of domain.
struct TopologyLevel {
  std::string key;                   ///< node label, or what else tells the level apart
  std::string name;                  ///< what a job calls it: "rack"
  std::vector<std::string> aliases;  ///< and may call it as well
  bool is_optional = false;     ///< a node without it has no such domain: no gap in what is known
  bool is_area = false;         ///< zone, region: says nothing of the network inside
  bool is_host = false;         ///< one node each, so it may say nothing new
  bool is_fast = false;         ///< NVLink between its hosts
  double oversubscription = 1;  ///< its hosts' bandwidth together by that of its uplink
  double latency_seconds = 0;   ///< between two hosts that have nothing finer in common; 0 = by
                                ///< height
  Confidence confidence = Confidence::kLow;  ///< in its oversubscription
  bool operator==(const TopologyLevel&) const = default;
};

/// What joins a host to the network, and its pods to each other. The first values are those that
/// NCCL assumes of a 100 Gb card (its topology model: bandwidth and hop latency).
struct HostLink {
  double bytes_per_second = 12e9;
  double latency_seconds = 22.4e-6;
  double local_bytes_per_second = 24e9;  ///< of one pod to others on its host
  double local_latency_seconds = 5.7e-6;
  double fast_bytes_per_second = 360e9;  ///< within a domain of a level with is_fast
  /// From one NUMA node of a host to its others, one way. NCCL's table has 10e9 for Intel's
  /// Skylake, 16e9 for AMD's first two EPYCs and 22e9 for Sapphire Rapids; no label says which it
  /// is.
  double numa_bytes_per_second = 16e9;
  Confidence confidence = Confidence::kLow;  ///< in bytes_per_second; the table is a guess
  bool operator==(const HostLink&) const = default;
};

struct PathStep {
  int level = 0;  ///< index in TopologyInput::levels
  std::string value;
  auto operator<=>(const PathStep&) const = default;
};

/// Where a node says it stands, coarse to fine. Empty: nothing is known.
struct NodePath {
  std::string node;
  std::vector<PathStep> steps;  ///< levels ascending
};

struct TopologyInput {
  std::vector<TopologyLevel> levels;
  std::vector<NodePath> nodes;  ///< any order
  HostLink host;
  Confidence confidence = Confidence::kLow;
  std::string source;              ///< "labels of EKS"
  std::vector<std::string> notes;  ///< what was passed over, and why: a sentence each
};

struct Domain {
  int parent = -1;
  int level = -1;  ///< index in Topology::levels; -1 for the root and for a node that stands alone
  int depth = 0;
  int height = 0;                     ///< 0 = leaf domain: its children are nodes
  int first_child = 0, children = 0;  ///< domains; none for a leaf
  int first_node = 0, nodes = 0;
  std::string name;
  bool operator==(const Domain&) const = default;
};

/// Domain 0 is the root; parents stand before their children, and the children of one domain beside
/// each other. Nodes are numbered along the tree, so that each domain's are one range.
struct Topology {
  std::vector<TopologyLevel> levels;
  std::vector<Domain> domains;
  std::vector<std::string> nodes;
  std::vector<int> leaf_of_node;
  HostLink host;
  Confidence confidence = Confidence::kLow;
  std::string source;
  std::vector<std::string> notes;

  /// "zone-a/block-1/rack-3"; the root is "cluster".
  std::string path_of(int domain) const;
  /// Levels that a job means by `name`: by name or key, else by alias. Several where pools of nodes
  /// are described in different ways. Empty: there is none.
  std::vector<int> levels_named(const std::string& name) const;
  /// Whether there is one. That nodes are hosts is always known.
  bool knows(const std::string& name) const;
  /// Names of levels for a sentence: "zone, block, rack, host".
  std::string level_names() const;
  /// The lowest domain that holds both.
  int common_domain(int a, int b) const;
  bool operator==(const Topology&) const = default;
};

using api::names_host;

/// The same tree for any order of nodes. Errors: kInvalid or kTooLarge with a sentence, for more
/// levels or nodes than bounds, a node named twice, or steps that do not descend.
Result<Topology> build_topology(TopologyInput input);
/// Each node stands alone: nothing is known of any.
Topology lone_nodes(const std::set<std::string>& names);

}  // namespace muster::core
