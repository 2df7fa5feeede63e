// What a cluster says about its network, made into a topology: node labels that providers and
// discovery tools set, objects of peers (Kueue, KAI, Volcano), or our own TopologyConfig. First
// come, in this order: TopologyConfig, Topology of Kueue and KAI, Volcano's HyperNodes, labels; a
// node of which none of them knows anything stands alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/pod.h"
#include "operator/core/topology.h"

namespace muster::core {

/// Levels told by node labels, coarse to fine.
struct LabelLevels {
  std::string source;  ///< "labels of EKS"
  Confidence confidence = Confidence::kMedium;
  std::vector<TopologyLevel> levels;
  HostLink host;
};

/// What providers and tools are known to set; the first that describes a node wins.
/// Source: the keys and their meaning are those of docs.aws.amazon.com/eks (ml-workload-topology),
/// cloud.google.com/ai-hypercomputer (schedule-gke-workloads-tas), OKE's node labels, and
/// NVIDIA/topograph docs/reference/node-labels.md.
const std::vector<LabelLevels>& label_catalogue();

/// muster.dev/v1alpha1 TopologyConfig. Errors: kInvalid naming the field.
Result<LabelLevels> read_topology_config(const Json& object);

/// `Topology` of kueue.x-k8s.io or kai.scheduler: spec.levels[].nodeLabel. Errors: kInvalid naming
/// the field.
Result<LabelLevels> read_peer_topology(const Json& object);

/// Where Volcano's HyperNodes put the nodes.
struct HyperNodeTree {
  std::vector<TopologyLevel> levels;                   ///< coarse to fine
  std::map<std::string, std::vector<PathStep>> paths;  ///< of each node that is a member
};

/// They name their members by name, label or pattern. What follows from the objects, and from a
/// node's name, is found once: labels change often, and then only those who ask for them matter.
class HyperNodes {
 public:
  /// Errors: kInvalid naming the HyperNode: two parents of a node or a HyperNode, a parent whose
  /// tier is not above, a pattern that is not read (letters, digits, `-._`, `.`, [classes], \d,
  /// `*`, `+`, `?`, `^`, `$` are), more members than bounds. A member that is not there is no
  /// error.
  static Result<HyperNodes> read(const std::vector<Json>& objects);
  HyperNodes(HyperNodes&&) noexcept;
  HyperNodes& operator=(HyperNodes&&) noexcept;
  ~HyperNodes();

  /// Errors: kInvalid naming the HyperNode and a node that belongs to another as well.
  Result<HyperNodeTree> tree(const std::vector<const api::Node*>& nodes);
  /// Names of nodes that were held against all patterns until now.
  std::int64_t names_matched() const;
  /// And how many of their characters that took, with each pattern.
  std::int64_t characters_looked_at() const;

 private:
  struct Known;
  explicit HyperNodes(std::unique_ptr<Known> known);
  std::unique_ptr<Known> known_;
};

/// Whether Go's regexp would find the pattern in the text, in time text x pattern. Errors:
/// kUnsupported for what is not read (above).
Result<bool> matches_pattern(const std::string& pattern, const std::string& text);

/// Objects that the API server has, as read.
struct TopologyObjects {
  std::vector<Json> configs, peers, hyper_nodes;
};

/// Reads again and again what the same objects say of nodes that come, go and change their labels.
/// Threads: one.
class TopologyReader {
 public:
  explicit TopologyReader(const TopologyObjects& objects);
  /// Total: what cannot be used is left out with a note. The same tree for any order of the nodes.
  /// Errors: only those of build_topology.
  Result<Topology> read(const std::vector<const api::Node*>& nodes);

 private:
  std::vector<LabelLevels> families_;  ///< of the objects, then those of the catalogue
  std::size_t of_objects_ = 0;         ///< so many of them, the first
  std::vector<std::string> notes_;     ///< on the objects
  Result<HyperNodes> hyper_nodes_;
};

/// The same, once.
Result<Topology> read_topology(const std::vector<const api::Node*>& nodes,
                               const TopologyObjects& objects = {});

}  // namespace muster::core
