#include "tests/sim/racks.h"

#include <algorithm>
#include <array>
#include <map>

#include "common/contract.h"

namespace muster::sim {
namespace {

using api::Kind;

constexpr std::array kKinds{Kind::kTopologyConfig, Kind::kKueueTopology, Kind::kKaiTopology,
                            Kind::kHyperNode};
/// The one object of each kind but HyperNode.
constexpr const char* kName = "net";
constexpr const char* kBlock = "example.com/block";
constexpr const char* kRack = "example.com/rack";
/// A catalogue's labels, which count where no object tells.
constexpr const char* kOciBlock = "oci.oraclecloud.com/host.network_block_id";
constexpr const char* kOciRack = "oci.oraclecloud.com/host.rack_id";

struct Place {
  const char *block, *rack, *oci_block, *oci_rack;
};
const std::map<std::string, Place>& places() {
  // Two racks of one name stand in different blocks, and are two places.
  static const std::map<std::string, Place> kPlaces{
      {"a", {"b0", "r0", "n0", "o0"}}, {"b", {"b0", "r0", "n0", "o1"}},
      {"c", {"b0", "r1", "n0", "o0"}}, {"d", {"b0", "r1", "n0", "o1"}},
      {"e", {"b1", "r0", "n1", "o0"}}, {"f", {"b1", "r0", "n1", "o0"}}};
  return kPlaces;
}

struct Hyper {
  std::string name, tier_name;
  int tier;
  const char* type;  ///< of the members
  std::vector<std::string> members;
};
const std::vector<Hyper>& hyper_nodes() {
  static const std::vector<Hyper> kHyperNodes{{"h0", "rack", 1, "Node", {"b", "c"}},
                                              {"h1", "rack", 1, "Node", {"a", "d"}},
                                              {"h2", "rack", 1, "Node", {"e", "f"}},
                                              {"top0", "block", 2, "HyperNode", {"h0", "h1"}},
                                              {"top1", "block", 2, "HyperNode", {"h2"}}};
  return kHyperNodes;
}

Json members_json(const char* type, const std::vector<std::string>& names) {
  Json members = Json::array();
  for (const auto& name : names) {
    members.push_back({{"type", type}, {"selector", {{"exactMatch", Json{{"name", name}}}}}});
  }
  return members;
}

Json object_of(Kind kind, const std::string& name, Json spec) {
  const api::KindInfo& info = api::info_of(kind);
  return {{"apiVersion", info.api_version},
          {"kind", info.kind},
          {"metadata", {{"name", name}}},
          {"spec", std::move(spec)}};
}

/// spec.levels of these labels, coarse to fine.
Json levels_json(Kind kind, const std::vector<std::string>& labels) {
  Json levels = Json::array();
  for (const auto& label : labels) {
    Json level{{"nodeLabel", label}};
    if (kind == Kind::kTopologyConfig) level["name"] = label.substr(label.rfind('/') + 1);
    levels.push_back(std::move(level));
  }
  return levels;
}

/// As Coverage::views names it.
std::string view_of(Kind kind) {
  const api::KindInfo& info = api::info_of(kind);
  const std::string version = info.api_version;
  const bool has_twin = kind == Kind::kKueueTopology || kind == Kind::kKaiTopology;
  return has_twin ? std::string(info.plural) + "." + version.substr(0, version.find('/'))
                  : info.plural;
}

}  // namespace

Racks::Racks(std::uint64_t seed, kube::ApiClient& user) : rng_(seed), user_(user) {
  const std::uint64_t drawn = rng_.below(kKinds.size() + 1);
  source_ = drawn < kKinds.size() ? kKinds[drawn] : Kind::kNode;
  for (const Kind kind : {Kind::kKueueTopology, Kind::kKaiTopology, Kind::kHyperNode}) {
    if (kind != source_ && rng_.below(2) == 0) not_installed_.insert(view_of(kind));
  }
  if (source_ != Kind::kNode) create(source_);
}

const std::vector<std::string>& Racks::nodes() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, place] : places()) names.push_back(name);
    return names;
  }();
  return kNames;
}

Json Racks::labels_of(const std::string& node) {
  const Place& place = places().at(node);
  return {{kBlock, place.block},
          {kRack, place.rack},
          {kOciBlock, place.oci_block},
          {kOciRack, place.oci_rack}};
}

bool Racks::is_installed(Kind kind) const { return !not_installed_.contains(view_of(kind)); }

// What is there already, or not there any more, is refused, and stays as it is.

void Racks::create(Kind kind) {
  if (kind == Kind::kHyperNode) {
    for (const Hyper& one : hyper_nodes()) {
      const Json spec{{"tier", one.tier},
                      {"tierName", one.tier_name},
                      {"members", members_json(one.type, one.members)}};
      (void)user_.create(kind, "", object_of(kind, one.name, spec));
    }
    return;
  }
  (void)user_.create(kind, "",
                     object_of(kind, kName, Json{{"levels", levels_json(kind, {kBlock, kRack})}}));
}

void Racks::remove(Kind kind) {
  if (kind != Kind::kHyperNode) return (void)user_.remove(kind, {"", kName}, {});
  for (const Hyper& one : hyper_nodes()) (void)user_.remove(kind, {"", one.name}, {});
}

void Racks::patch(Kind kind, const std::string& name, const Json& patch) {
  (void)user_.merge_patch(kind, {"", name}, "", patch);
}

void Racks::touch(Kind kind, const std::string& name) {
  const Json annotations{{"example.com/touched", std::to_string(rng_.below(1'000'000))}};
  for (int i = 0; i < 2; ++i) {
    patch(kind, name, Json{{"metadata", {{"annotations", annotations}}}});
  }
}

void Racks::set_members(const std::string& hyper_node, const std::vector<std::string>& nodes) {
  patch(Kind::kHyperNode, hyper_node, Json{{"spec", {{"members", members_json("Node", nodes)}}}});
}

void Racks::label_event() {
  const std::string& node = nodes()[rng_.below(nodes().size())];
  const bool is_oci = source_ == Kind::kNode || rng_.below(3) == 0;
  const char* rack = is_oci ? kOciRack : kRack;
  Json labels = labels_of(node);
  switch (rng_.below(4)) {
    case 0: {  // it is carried to where another one stands
      const Json there = labels_of(nodes()[rng_.below(nodes().size())]);
      labels[rack] = there[rack];
      break;
    }
    case 1:  // what is missing is never the same
      labels[rng_.below(3) == 0 ? (is_oci ? kOciBlock : kBlock) : rack] = nullptr;
      break;
    default:
      break;
  }
  patch(Kind::kNode, node, Json{{"metadata", {{"labels", labels}}}});
}

void Racks::levels_event(Kind kind) {
  const auto set_levels = [&](const std::vector<std::string>& labels) {
    patch(kind, kName, Json{{"spec", {{"levels", levels_json(kind, labels)}}}});
  };
  switch (rng_.below(10)) {
    case 0:
      return remove(kind);
    case 1:
      return set_levels({kRack});
    case 2:
      return set_levels({kBlock});
    case 3:
      // Of a TopologyConfig it is refused, of the others it is what operators cannot use.
      return set_levels({});
    case 4:
    case 5:
      return set_levels({kBlock, kRack});
    case 6:
    case 7:
      return create(kind);
    default:
      return touch(kind, kName);
  }
}

void Racks::hyper_event() {
  const auto& all = hyper_nodes();
  const std::string& any = all[rng_.below(all.size())].name;
  switch (rng_.below(9)) {
    case 0:
      return (void)user_.remove(Kind::kHyperNode, {"", any}, {});
    case 1:
      return remove(Kind::kHyperNode);
    case 2:  // one moves over, and is in both places for a while, so that nothing of it is believed
      return set_members("h0", {"b", "c", "d"});
    case 3:
      return set_members("h1", {"a"});
    case 4:
      set_members("h0", {"b", "c"});
      return set_members("h1", {"a", "d"});
    case 5:
    case 6:
      return create(Kind::kHyperNode);
    default:
      return touch(Kind::kHyperNode, any);
  }
}

void Racks::event() {
  if (rng_.below(30) == 0) not_installed_.clear();
  const std::uint64_t luck = rng_.below(8);
  Kind kind = source_;
  if (luck == 0) kind = kKinds[rng_.below(kKinds.size())];
  if (luck < 3 && luck > 0) kind = Kind::kNode;
  if (!is_installed(kind)) return;
  if (kind == Kind::kNode) return label_event();
  if (kind == Kind::kHyperNode) return hyper_event();
  levels_event(kind);
}

void Racks::calm() {
  for (const Kind kind : kKinds) remove(kind);
  if (source_ != Kind::kNode) create(source_);
  for (const auto& node : nodes()) {
    patch(Kind::kNode, node, Json{{"metadata", {{"labels", labels_of(node)}}}});
  }
}

}  // namespace muster::sim
