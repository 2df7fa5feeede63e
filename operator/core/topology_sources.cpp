#include "operator/core/topology_sources.h"

#include <algorithm>
#include <set>

#include "common/check.h"
#include "operator/api/topology_config.h"
#include "operator/core/text.h"

namespace muster::core {
namespace {

constexpr const char* kHostname = "kubernetes.io/hostname";
constexpr const char* kClique = "nvidia.com/gpu.clique";
constexpr std::size_t kMaxValueBytes = 253;
constexpr std::size_t kMaxKeyBytes = 317;
// No published figures exist for what follows; they only have to put far after near.
constexpr double kWithinZone = 100e-6;
constexpr double kWithinRegion = 1e-3;

TopologyLevel level_of(const std::string& key, const std::string& name) {
  TopologyLevel level;
  level.key = key;
  level.name = name;
  return level;
}

TopologyLevel area_of(const std::string& key, const std::string& name, double latency) {
  TopologyLevel level = level_of(key, name);
  level.is_optional = false;
  level.is_area = true;
  level.latency_seconds = latency;
  level.oversubscription = 16;
  return level;
}

/// NVLink between hosts: nodes of other kinds do without.
TopologyLevel fast_of(const std::string& key, const std::string& name) {
  TopologyLevel level = level_of(key, name);
  level.is_optional = true;
  level.is_fast = true;
  level.latency_seconds = 8e-6;
  level.aliases = {"nvlink"};
  return level;
}

LabelLevels family(const std::string& source, std::vector<TopologyLevel> levels) {
  LabelLevels made;
  made.source = source;
  made.levels = {area_of("topology.kubernetes.io/region", "region", kWithinRegion),
                 area_of("topology.kubernetes.io/zone", "zone", kWithinZone)};
  made.levels.insert(made.levels.end(), levels.begin(), levels.end());
  return made;
}

LabelLevels topograph_tiers() {
  std::vector<TopologyLevel> levels;
  // Numbered from the host; more than are ever there.
  for (int tier = 7; tier >= 0; --tier) {
    const std::string name = "tier-" + std::to_string(tier);
    levels.push_back(level_of("fabric.topograph.run/" + name, name));
  }
  levels.push_back(fast_of("accelerator.topograph.run/domain", "nvlink-domain"));
  levels.push_back(fast_of("accelerator.topograph.run/sub-domain", "nvlink-sub-domain"));
  return family("labels of NVIDIA Topograph", std::move(levels));
}

LabelLevels topograph_before_tiers() {
  const std::string prefix = "network.topology.nvidia.com/";
  return family(
      "labels of NVIDIA Topograph before v1",
      {level_of(prefix + "datacenter", "datacenter"), level_of(prefix + "core", "core"),
       level_of(prefix + "spine", "spine"), level_of(prefix + "block", "block"),
       level_of(prefix + "leaf", "leaf"), fast_of(prefix + "accelerator", "accelerator")});
}

LabelLevels gke() {
  const std::string prefix = "cloud.google.com/gce-topology-";
  TopologyLevel host = level_of(prefix + "host", "gce-host");
  host.is_host = true;
  return family("labels of GKE",
                {level_of(prefix + "block", "block"), level_of(prefix + "subblock", "subblock"),
                 fast_of(kClique, "nvlink-clique"), host});
}

/// Numbered from the top; the fourth exists on some instance types only.
LabelLevels eks() {
  const std::string prefix = "topology.k8s.aws/network-node-layer-";
  std::vector<TopologyLevel> levels;
  for (int layer = 1; layer <= 4; ++layer) {
    const std::string name = "layer-" + std::to_string(layer);
    levels.push_back(level_of(prefix + std::to_string(layer), name));
  }
  levels.push_back(fast_of("topology.k8s.aws/ultraserver-id", "ultraserver"));
  levels.push_back(fast_of(kClique, "nvlink-clique"));
  return family("labels of EKS", std::move(levels));
}

LabelLevels oci() {
  const std::string prefix = "oci.oraclecloud.com/host.";
  return family("labels of OCI",
                {level_of(prefix + "network_block_id", "block"),
                 level_of(prefix + "rack_id", "rack"), fast_of(kClique, "nvlink-clique")});
}

bool is_place_name(const std::string& value) {
  if (value.empty() || value.size() > kMaxValueBytes) return false;
  return std::all_of(value.begin(), value.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-' || c == ':';
  });
}

/// The label's value; nullptr when the node does not have it, or something that names no place.
const std::string* place_label(const api::Node& node, const std::string& key) {
  const auto found = node.meta.labels.find(key);
  return found == node.meta.labels.end() || !is_place_name(found->second) ? nullptr
                                                                          : &found->second;
}

/// Whether a node carries what a family is known by: NVLink's labels go with several, and host
/// names with all.
bool describes(const LabelLevels& one, const api::Node& node) {
  const auto is_told_by = [](const TopologyLevel& level) {
    return !level.is_area && !level.is_host && level.key != kHostname;
  };
  const bool has_own = std::any_of(one.levels.begin(), one.levels.end(), [&](const auto& level) {
    return is_told_by(level) && !level.is_optional;
  });
  return std::any_of(one.levels.begin(), one.levels.end(), [&](const TopologyLevel& level) {
    return is_told_by(level) && (!has_own || !level.is_optional) &&
           place_label(node, level.key) != nullptr;
  });
}

// ---- Objects

/// Of a field that the codec has accepted.
double decimal_of(const std::string& text) {
  const auto value = api::parse_topology_decimal(text, "");
  MUSTER_CHECK(value.has_value());
  return *value;
}

/// The last part of a label's key, without what says that it is about topology.
std::string short_name(const std::string& key) {
  std::string name = key.substr(key.rfind('/') + 1);
  for (const std::string prefix : {"gce-topology-", "topology-"}) {
    if (name.starts_with(prefix) && name.size() > prefix.size()) name = name.substr(prefix.size());
  }
  return name;
}

// ---- Many nodes

/// Of one family: the levels that its nodes use, and what is left to say.
class LabelReader {
 public:
  /// `areas`: indices of levels that are there already, by key: a zone is one place, however its
  /// parts are described.
  LabelReader(const LabelLevels& levels, std::vector<const api::Node*> nodes,
              const std::map<std::string, int>& areas)
      : family_(levels), nodes_(std::move(nodes)), areas_(areas) {}

  void append_to(TopologyInput& out) {
    choose_levels();
    for (const std::size_t level : used_) {
      const auto area = areas_.find(family_.levels[level].key);
      const bool is_there = area != areas_.end();
      indices_.push_back(is_there ? area->second : static_cast<int>(out.levels.size()));
      if (!is_there) out.levels.push_back(named(level));
    }
    for (const api::Node* node : nodes_) out.nodes.push_back(path_of(*node));
    for (const auto& [key, count] : gaps_) {
      note(out, std::to_string(count) + (count == 1 ? " node lacks " : " nodes lack ") + key +
                    ", which others have: each stands alone below what is known of it");
    }
    tell_twins(out);
  }

  static void note(TopologyInput& out, const std::string& text) {
    if (out.notes.size() < kMaxTopologyNotes) out.notes.push_back(text);
  }

 private:
  void choose_levels() {
    for (std::size_t i = 0; i < family_.levels.size(); ++i) {
      const TopologyLevel& level = family_.levels[i];
      if (level.key == kHostname) continue;  // every node is a host already
      std::set<std::string> values;
      std::size_t carriers = 0;
      for (const api::Node* node : nodes_) {
        const std::string* value = place_label(*node, level.key);
        if (value == nullptr) continue;
        ++carriers;
        values.insert(*value);
      }
      if (carriers == 0 || (level.is_host && values.size() == carriers)) continue;
      used_.push_back(i);
    }
  }

  /// Every family has a rack, by whatever name: the finest level of the network that all pass.
  TopologyLevel named(std::size_t index) const {
    TopologyLevel level = family_.levels[index];
    std::vector<std::size_t> network;
    for (const std::size_t i : used_) {
      const TopologyLevel& one = family_.levels[i];
      if (!one.is_area && !one.is_fast && !one.is_host) network.push_back(i);
    }
    const auto lend = [&](std::size_t from_below, const std::vector<std::string>& aliases) {
      if (network.size() <= from_below || network[network.size() - 1 - from_below] != index) return;
      for (const std::string& alias : aliases) {
        const bool is_taken = std::any_of(used_.begin(), used_.end(), [&](std::size_t i) {
          return family_.levels[i].name == alias;
        });
        if (!is_taken) level.aliases.push_back(alias);
      }
    };
    lend(0, {"rack", "leaf"});
    lend(1, {"block", "spine"});
    return level;
  }

  NodePath path_of(const api::Node& node) {
    NodePath path{node.meta.name, {}};
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const TopologyLevel& level = family_.levels[used_[i]];
      if (const std::string* value = place_label(node, level.key)) {
        path.steps.push_back({indices_[i], *value});
        continue;
      }
      if (level.is_optional || level.is_host) continue;
      // Finer levels are names within a place that is not known, so they name nothing; where there
      // are none, the node's network just has fewer.
      for (std::size_t j = i + 1; j < used_.size(); ++j) {
        if (place_label(node, family_.levels[used_[j]].key) == nullptr) continue;
        ++gaps_[level.key];
        break;
      }
      break;
    }
    return path;
  }

  /// Names that stand under more than one parent.
  void tell_twins(TopologyInput& out) const {
    const std::size_t begin = out.nodes.size() - nodes_.size();
    for (std::size_t i = 0; i < used_.size(); ++i) {
      const int level = indices_[i];
      std::map<std::string, std::set<std::vector<PathStep>>> parents;
      for (std::size_t n = begin; n < out.nodes.size(); ++n) {
        const auto& steps = out.nodes[n].steps;
        const auto at = std::find_if(steps.begin(), steps.end(),
                                     [&](const PathStep& step) { return step.level == level; });
        if (at != steps.end()) parents[at->value].insert({steps.begin(), at});
      }
      const auto twins = std::count_if(parents.begin(), parents.end(),
                                       [](const auto& one) { return one.second.size() > 1; });
      if (twins == 0) continue;
      note(out, std::to_string(twins) + (twins == 1 ? " value of " : " values of ") +
                    family_.levels[used_[i]].key + (twins == 1 ? " stands" : " stand") +
                    " under more than one parent: taken for different places");
    }
  }

  const LabelLevels& family_;
  std::vector<const api::Node*> nodes_;
  const std::map<std::string, int>& areas_;
  std::vector<std::size_t> used_;
  std::vector<int> indices_;  ///< of the used levels
  std::map<std::string, int> gaps_;
};

/// Adds "a and b" to the source.
void credit(TopologyInput& out, const LabelLevels& one) {
  const bool is_first = out.source.empty();
  out.source += (is_first ? "" : " and ") + one.source;
  out.confidence = is_first ? one.confidence : std::min(out.confidence, one.confidence);
  if (is_first) out.host = one.host;
}

void append_tree(const HyperNodeTree& tree, const std::vector<const api::Node*>& nodes,
                 TopologyInput& out) {
  credit(out, {"HyperNodes of Volcano", Confidence::kMedium, {}, {}});
  const int first = static_cast<int>(out.levels.size());
  out.levels.insert(out.levels.end(), tree.levels.begin(), tree.levels.end());
  for (const api::Node* node : nodes) {
    NodePath path{node->meta.name, tree.paths.at(node->meta.name)};
    for (PathStep& step : path.steps) step.level += first;
    out.nodes.push_back(std::move(path));
  }
}

}  // namespace

const std::vector<LabelLevels>& label_catalogue() {
  static const std::vector<LabelLevels> catalogue{
      topograph_tiers(),
      topograph_before_tiers(),
      gke(),
      eks(),
      oci(),
      family("NVLink domains of Topograph",
             {fast_of("accelerator.topograph.run/domain", "nvlink-domain")}),
      family("GPU Feature Discovery's cliques", {fast_of(kClique, "nvlink-clique")})};
  return catalogue;
}

Result<LabelLevels> read_topology_config(const Json& object) {
  const auto config = api::parse_topology_config(object);
  const std::string what = "TopologyConfig " + head_of(text_at(object, {"metadata", "name"}), 63);
  if (!config) return config.error().with(what);
  LabelLevels made;
  made.source = what;
  made.confidence = Confidence::kHigh;
  for (const api::TopologyConfigLevel& one : config->levels) {
    TopologyLevel level = level_of(one.node_label, one.name);
    level.oversubscription = decimal_of(one.oversubscription);
    level.latency_seconds = static_cast<double>(one.latency_microseconds) * 1e-6;
    level.confidence = Confidence::kHigh;
    made.levels.push_back(std::move(level));
  }
  const auto rate = [](const std::string& gigabits, double& bytes_per_second) {
    if (!gigabits.empty()) bytes_per_second = decimal_of(gigabits) * 1e9 / 8;
  };
  rate(config->gigabits_per_second, made.host.bytes_per_second);
  if (!config->gigabits_per_second.empty()) made.host.confidence = Confidence::kHigh;
  rate(config->local_gigabits_per_second, made.host.local_bytes_per_second);
  return made;
}

Result<LabelLevels> read_peer_topology(const Json& object) {
  JsonReader in(object, "");
  std::string version, name;
  in.required("apiVersion", version, 128);
  const Json* meta = in.object("metadata");
  const Json* spec = in.object("spec");
  MUSTER_RETURN_IF_ERROR(in.status());
  if (meta != nullptr) JsonReader(*meta, "metadata").optional("name", name, 253);
  const bool is_kai = version.starts_with("kai.scheduler/");
  const std::string what = std::string(is_kai ? "KAI" : "Kueue") + " Topology " + head_of(name, 63);
  if (spec == nullptr) return Error(ErrorCode::kInvalid, what + ": spec: is required");
  LabelLevels made;
  made.source = what;
  JsonReader reader(*spec, "spec");
  const Json* levels = reader.array("levels", kMaxTopologyLevels);
  if (auto status = reader.status(); !status) return status.error().with(what);
  if (levels == nullptr || levels->empty()) {
    return Error(ErrorCode::kInvalid, what + ": spec.levels: must have at least one level");
  }
  for (std::size_t i = 0; i < levels->size(); ++i) {
    JsonReader level((*levels)[i], "spec.levels[" + std::to_string(i) + "]");
    TopologyLevel& one = made.levels.emplace_back();
    level.required("nodeLabel", one.key, kMaxKeyBytes);
    if (auto status = level.status(); !status) return status.error().with(what);
    one.name = short_name(one.key);
    one.is_area =
        one.key == "topology.kubernetes.io/zone" || one.key == "topology.kubernetes.io/region";
    one.is_host = one.key.ends_with("gce-topology-host");
  }
  std::set<std::string> keys;
  for (TopologyLevel& level : made.levels) {
    if (!keys.insert(level.key).second) {
      return Error(ErrorCode::kInvalid,
                   what + ": spec.levels: nodeLabel " + head_of(level.key, 63) + " is there twice");
    }
    level.aliases.push_back(level.key.substr(level.key.rfind('/') + 1));
  }
  return made;
}

TopologyReader::TopologyReader(const TopologyObjects& objects)
    : hyper_nodes_(HyperNodes::read(objects.hyper_nodes)) {
  const auto add = [&](Result<LabelLevels> read) {
    if (read) {
      families_.push_back(std::move(*read));
    } else if (notes_.size() < kMaxTopologyNotes) {
      notes_.push_back(read.error().message());
    }
  };
  for (const Json& one : objects.configs) add(read_topology_config(one));
  for (const Json& one : objects.peers) add(read_peer_topology(one));
  of_objects_ = families_.size();
  const auto& catalogue = label_catalogue();
  families_.insert(families_.end(), catalogue.begin(), catalogue.end());
}

Result<Topology> read_topology(const std::vector<const api::Node*>& nodes,
                               const TopologyObjects& objects) {
  return TopologyReader(objects).read(nodes);
}

Result<Topology> TopologyReader::read(const std::vector<const api::Node*>& nodes) {
  TopologyInput input;
  input.notes = notes_;
  const auto tree =
      hyper_nodes_ ? hyper_nodes_->tree(nodes) : Result<HyperNodeTree>(hyper_nodes_.error());
  if (!tree) LabelReader::note(input, tree.error().message());

  std::vector<std::vector<const api::Node*>> described(families_.size());
  std::vector<const api::Node*> in_tree, unknown;
  for (const api::Node* node : nodes) {
    const auto by = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) {
        if (!describes(families_[i], *node)) continue;
        described[i].push_back(node);
        return true;
      }
      return false;
    };
    if (by(0, of_objects_)) continue;
    if (tree && tree->paths.contains(node->meta.name)) {
      in_tree.push_back(node);
    } else if (!by(of_objects_, families_.size())) {
      unknown.push_back(node);
    }
  }
  std::map<std::string, int> areas;
  const auto append = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      if (described[i].empty()) continue;
      credit(input, families_[i]);
      LabelReader(families_[i], std::move(described[i]), areas).append_to(input);
    }
  };
  append(0, of_objects_);
  if (!in_tree.empty()) append_tree(*tree, in_tree, input);
  const LabelLevels zones = family("zones", {});
  for (const TopologyLevel& level : zones.levels) {
    const bool is_used = std::any_of(nodes.begin(), nodes.end(), [&](const api::Node* node) {
      return place_label(*node, level.key) != nullptr;
    });
    if (!is_used) continue;
    areas[level.key] = static_cast<int>(input.levels.size());
    input.levels.push_back(level);
  }
  append(of_objects_, families_.size());
  if (!unknown.empty()) {
    // Only the zone is left, if that.
    const bool is_flat = input.source.empty();
    if (is_flat) {
      input.source = input.levels.empty() ? "nothing: no node says where it stands"
                                          : "zone labels alone: no node says more";
    } else {
      const std::string many = unknown.size() == 1 ? " node says" : " nodes say";
      LabelReader::note(input, std::to_string(unknown.size()) + many +
                                   " nothing of the network: each stands alone");
    }
    input.confidence = Confidence::kLow;
    LabelReader(zones, std::move(unknown), areas).append_to(input);
  }
  return build_topology(std::move(input));
}

}  // namespace muster::core
