#include "operator/core/topology.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <regex>

#include "common/file.h"
#include "common/rng.h"
#include "operator/core/topology_sources.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

namespace {

/// Nodes as some provider or tool labels them, and the objects beside them.
struct RecordedCluster {
  std::vector<api::Node> nodes;
  TopologyObjects objects;

  Topology read() const {
    std::vector<const api::Node*> pointers;
    for (const auto& node : nodes) pointers.push_back(&node);
    auto topology = read_topology(pointers, objects);
    REQUIRE(topology);
    return *topology;
  }
};

RecordedCluster recorded(const std::string& file) {
  const auto text = read_file("tests/unit/core/topology/" + file, 1 << 20);
  REQUIRE(text);
  const auto json = parse_json(*text);
  REQUIRE(json);
  REQUIRE((*json)["source"].is_string());
  RecordedCluster cluster;
  for (const Json& one : (*json)["nodes"]) {
    auto node = api::parse_node(one);
    REQUIRE(node);
    cluster.nodes.push_back(*node);
  }
  if (!json->contains("objects")) return cluster;
  for (const Json& one : (*json)["objects"]) {
    (one["kind"] == "HyperNode" ? cluster.objects.hyper_nodes : cluster.objects.peers)
        .push_back(one);
  }
  return cluster;
}

/// "path: node node" of every leaf domain.
std::vector<std::string> leaves_of(const Topology& topology) {
  std::vector<std::string> lines;
  for (std::size_t d = 0; d < topology.domains.size(); ++d) {
    const Domain& domain = topology.domains[d];
    if (domain.height > 0 || domain.nodes == 0) continue;
    std::string line = topology.path_of(static_cast<int>(d)) + ":";
    for (int n = domain.first_node; n < domain.first_node + domain.nodes; ++n) {
      line += " " + topology.nodes[as_index(n)];
    }
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

using Lines = std::vector<std::string>;

api::Node labelled(const std::string& name, std::map<std::string, std::string> labels) {
  api::Node node;
  node.meta.name = name;
  node.meta.labels = std::move(labels);
  return node;
}

Json json_of(const std::string& text) {
  const auto json = parse_json(text);
  REQUIRE(json);
  return *json;
}

std::string refusal(const std::string& hyper_nodes) {
  const Json list = json_of(hyper_nodes);
  const api::Node n0 = labelled("n0", {{"switch", "a"}}), n1 = labelled("n1", {});
  auto read = HyperNodes::read(std::vector<Json>(list.begin(), list.end()));
  if (!read) return read.error().message();
  const auto tree = read->tree({&n0, &n1});
  return tree ? "" : tree.error().message();
}

std::string config_refusal(const std::string& spec) {
  const auto read = read_topology_config(
      json_of(R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TopologyConfig",
          "metadata": {"name": "default"}, "spec": )" +
              spec + "}"));
  return read ? "" : read.error().message();
}

/// What must hold of every tree.
void check_tree(const Topology& topology) {
  std::vector<int> seen(topology.nodes.size(), 0);
  for (std::size_t d = 0; d < topology.domains.size(); ++d) {
    const Domain& domain = topology.domains[d];
    if (d > 0) CHECK(domain.parent < static_cast<int>(d));
    if (d > 0 && domain.level >= 0) {
      CHECK(domain.level > topology.domains[as_index(domain.parent)].level);
    }
    int nodes = 0;
    for (int c = domain.first_child; c < domain.first_child + domain.children; ++c) {
      CHECK(topology.domains[as_index(c)].parent == static_cast<int>(d));
      CHECK(topology.domains[as_index(c)].first_node == domain.first_node + nodes);
      nodes += topology.domains[as_index(c)].nodes;
    }
    if (domain.children > 0) CHECK(nodes == domain.nodes);
    if (domain.children > 0) continue;
    CHECK(domain.height == 0);
    for (int n = domain.first_node; n < domain.first_node + domain.nodes; ++n) {
      ++seen[as_index(n)];
      CHECK(topology.leaf_of_node[as_index(n)] == static_cast<int>(d));
    }
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
}

}  // namespace

TEST_CASE("GKE's labels are read; equal sub-blocks of two blocks are two places") {
  const Topology topology = recorded("gke.json").read();
  CHECK(leaves_of(topology) ==
        Lines{"us-central1/us-central1-b/9d40/0f18: gke-a4-pool-4",
              "us-central1/us-central1-b/9d40/3a77: gke-a4-pool-3",
              "us-central1/us-central1-b/e0b1/3a77: gke-a4-pool-0 gke-a4-pool-1",
              "us-central1/us-central1-b/e0b1/51c2: gke-a4-pool-2",
              "us-central1/us-central1-b/gke-default-pool-0: gke-default-pool-0"});
  CHECK(topology.source == "labels of GKE");
  CHECK(topology.levels_named("rack") == topology.levels_named("subblock"));
  CHECK(topology.levels_named("cloud.google.com/gce-topology-block") ==
        topology.levels_named("block"));
  // Both pools stand in one zone.
  CHECK(topology.domains[2].nodes == 6);
  CHECK(topology.path_of(2) == "us-central1/us-central1-b");
  CHECK(topology.levels_named("zone").size() == 1);
  REQUIRE(topology.notes.size() == 2);
  CHECK(topology.notes[0] ==
        "1 value of cloud.google.com/gce-topology-subblock stands under more than one parent: "
        "taken for different places");
  CHECK(topology.notes[1] == "1 node says nothing of the network: each stands alone");
  CHECK(topology.confidence == Confidence::kLow);
}

TEST_CASE("EKS' layers are numbered from the top, three of them or four") {
  const Topology three = recorded("eks-3-layers.json").read();
  CHECK(leaves_of(three) ==
        Lines{"ap-northeast-2/ap-northeast-2b/nn-c79422f4e61deb9ca/nn-6ff5053c3a4d86db7/"
              "nn-1f0a3c55be9d20c41: ip-10-0-5-9.ap-northeast-2.compute.internal",
              "ap-northeast-2/ap-northeast-2b/nn-c79422f4e61deb9ca/nn-6ff5053c3a4d86db7/"
              "nn-dcbcca51aebf4c95b: ip-10-0-5-152.ap-northeast-2.compute.internal "
              "ip-10-0-5-77.ap-northeast-2.compute.internal"});
  CHECK(three.levels_named("rack") == three.levels_named("layer-3"));
  CHECK(three.levels_named("block") == three.levels_named("layer-2"));
  CHECK(three.confidence == Confidence::kMedium);
  CHECK(three.notes.empty());

  const Topology four = recorded("eks-4-layers.json").read();
  const std::string above = "us-west-2/us-west-2a/nn-67ec43a6722b34afb/nn-39eb76bb31ed2a526/";
  CHECK(leaves_of(four) ==
        Lines{above + "nn-d2e25ce93dad9593e/nn-a0000000000000001/"
                      "4d9f3c1e-5f0a-4c53-8d13-6ac0f1a1b2c3.1: "
                      "ip-10-1-0-1.us-west-2.compute.internal "
                      "ip-10-1-0-2.us-west-2.compute.internal",
              above + "nn-d2e25ce93dad9593e/nn-a0000000000000002: "
                      "ip-10-1-0-3.us-west-2.compute.internal",
              above + "nn-e000000000000000f: ip-10-0-1-136.us-west-2.compute.internal"});
  CHECK(four.levels_named("rack") == four.levels_named("layer-4"));
  REQUIRE(four.levels_named("nvlink").size() == 1);
  CHECK(four.levels[as_index(four.levels_named("nvlink")[0])].is_fast);
  CHECK(four.notes.empty());
}

TEST_CASE("a node of OCI without a network block is in no rack of others") {
  const Topology topology = recorded("oci.json").read();
  const std::string zone = "uk-london-1/UK-LONDON-1-AD-1/";
  CHECK(leaves_of(topology) == Lines{zone + "10.0.10.14: 10.0.10.14",
                                     zone + "8b24e47f2a1/1163795a865: 10.0.10.11 10.0.10.12",
                                     zone + "8b24e47f2a1/77c03b1d9e0: 10.0.10.13"});
  CHECK(topology.notes ==
        Lines{"1 node lacks oci.oraclecloud.com/host.network_block_id, which others have: each "
              "stands alone below what is known of it"});
}

TEST_CASE("Topograph's tiers are numbered from the host, before v1 they had names") {
  CHECK(leaves_of(recorded("topograph-v1.json").read()) ==
        Lines{"core-1/spine-3/leaf-42/clique-7: n1 n2", "core-1/spine-3/leaf-42/n3: n3",
              "core-1/spine-3/x6bd3a1f0c7e94d22: n4", "core-1/spine-4/leaf-42: n5"});
  const Topology before = recorded("topograph-v0.json").read();
  CHECK(leaves_of(before) == Lines{"s3/s2/s1/nvl1: node-0 node-1", "s3/s4/s1: node-2"});
  CHECK(before.levels_named("rack") == before.levels_named("block"));
}

TEST_CASE("Topologies of Kueue and KAI and Volcano's HyperNodes go before labels") {
  for (const std::string peer : {"kueue", "kai"}) {
    RecordedCluster cluster = recorded(peer + ".json");
    for (api::Node& node : cluster.nodes) {
      node.meta.labels["cloud.google.com/gce-topology-block"] = "one";
    }
    const Topology topology = cluster.read();
    CHECK(leaves_of(topology) == Lines{"b1/r1: w1 w2", "b1/r2: w3", "b2/r1: w4"});
    CHECK(topology.level_names() == "block, rack, host");
    CHECK(topology.source.starts_with(peer == "kai" ? "KAI Topology" : "Kueue Topology"));
    CHECK(topology.levels_named("topology-rack") == topology.levels_named("rack"));
  }
  const Topology volcano = recorded("volcano.json").read();
  CHECK(leaves_of(volcano) == Lines{"outside: outside", "s6/s4/s0: node-0 node-1",
                                    "s6/s4/s1: node-2 node-3", "s6/s5/s2: node-4 node-5",
                                    "s6/s5/s3: node-6 node-7"});
  CHECK(volcano.level_names() == "tier-3, spine, rack, host");
}

TEST_CASE("a Topology describes no node by its host name alone") {
  const auto peer = [](const std::string& name, const std::vector<std::string>& keys) {
    Json object = json_of(R"({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology"})");
    object["metadata"]["name"] = name;
    for (const std::string& key : keys) object["spec"]["levels"].push_back({{"nodeLabel", key}});
    return object;
  };
  const std::string hostname = "kubernetes.io/hostname";
  const auto node = [&](const std::string& name, std::map<std::string, std::string> labels) {
    labels[hostname] = name;
    return labelled(name, std::move(labels));
  };
  const RecordedCluster pools{
      {node("a1", {{"a/block", "b1"}, {"a/rack", "r1"}}),
       node("a2", {{"a/block", "b1"}, {"a/rack", "r1"}}),
       node("b1", {{"b/block", "b1"}, {"b/rack", "r1"}}),
       node("b2", {{"b/block", "b1"}, {"b/rack", "r1"}}), node("c1", {})},
      {{},
       {peer("a", {"a/block", "a/rack", hostname}), peer("b", {"b/block", "b/rack", hostname})},
       {}}};
  const Topology both = pools.read();
  CHECK(leaves_of(both) == Lines{"b1/r1: a1 a2", "b1/r1: b1 b2", "c1: c1"});
  CHECK(both.source == "Kueue Topology a and Kueue Topology b");

  const std::string block = "cloud.google.com/gce-topology-block";
  const RecordedCluster gke{{node("n1", {{block, "one"}}), node("n2", {{block, "one"}})},
                            {{}, {peer("hosts", {hostname})}, {}}};
  CHECK(leaves_of(gke.read()) == Lines{"one: n1 n2"});
  CHECK(gke.read().source == "labels of GKE");
}

TEST_CASE("our own TopologyConfig goes before everything") {
  RecordedCluster cluster = recorded("kueue.json");
  cluster.objects.configs = {json_of(R"({"apiVersion": "muster.dev/v1alpha1",
      "kind": "TopologyConfig", "metadata": {"name": "default"}, "spec": {
      "host": {"gigabitsPerSecond": "200"},
      "levels": [{"name": "row", "nodeLabel": "example.com/topology-rack",
                  "oversubscription": "2.5", "latencyMicroseconds": 30}]}})")};
  const Topology topology = cluster.read();
  CHECK(leaves_of(topology) == Lines{"r1: w1 w2 w4", "r2: w3"});
  CHECK(topology.confidence == Confidence::kHigh);
  CHECK(topology.host.bytes_per_second == 25e9);
  CHECK(topology.levels[0].oversubscription == 2.5);
  CHECK(topology.levels[0].latency_seconds == doctest::Approx(30e-6));
  CHECK(topology.levels[0].confidence == Confidence::kHigh);
  CHECK(topology.host.confidence == Confidence::kHigh);
  // Labels alone say where nodes stand, not what is between them; without a rate it is a guess,
  // too.
  CHECK(recorded("kueue.json").read().levels[0].confidence == Confidence::kLow);
  cluster.objects.configs[0]["spec"].erase("host");
  CHECK(cluster.read().host.confidence == Confidence::kLow);
}

TEST_CASE("nodes that say nothing stand each alone, and the confidence is low") {
  const RecordedCluster cluster{{labelled("b", {}), labelled("a", {})}, {}};
  const Topology topology = cluster.read();
  CHECK(leaves_of(topology) == Lines{"a: a", "b: b"});
  CHECK(topology.confidence == Confidence::kLow);
  CHECK(topology.source == "nothing: no node says where it stands");
  CHECK(topology.levels_named("rack").empty());
  CHECK(RecordedCluster{}.read().domains.size() == 1);

  const RecordedCluster zones{
      {labelled("a", {{"topology.kubernetes.io/zone", "z"}}),
       labelled("b", {{"topology.kubernetes.io/zone", "z"}}), labelled("c", {})},
      {}};
  CHECK(leaves_of(zones.read()) == Lines{"c: c", "z/a: a", "z/b: b"});
  CHECK(zones.read().source == "zone labels alone: no node says more");
  CHECK(zones.read().confidence == Confidence::kLow);
}

TEST_CASE("a missing label in the middle cuts a node off from its namesakes") {
  const std::string tier = "fabric.topograph.run/tier-";
  RecordedCluster cluster{
      {labelled("a", {{tier + "0", "l"}, {tier + "1", "s"}}), labelled("b", {{tier + "0", "l"}}),
       labelled("c", {{tier + "0", "l"}}), labelled("d", {{tier + "1", "s"}})},
      {}};
  CHECK(leaves_of(cluster.read()) == Lines{"b: b", "c: c", "s/d: d", "s/l: a"});
}

TEST_CASE("hostile labels name no place") {
  const std::string key = "fabric.topograph.run/tier-0";
  RecordedCluster cluster;
  int i = 0;
  for (const std::string& value :
       {std::string(), std::string("a/b"), std::string("a\nb"), std::string(254, 'x'),
        std::string("\xff\xfe"), std::string("a b"), std::string("a\0b", 3)}) {
    for (int twin = 0; twin < 2; ++twin) {
      cluster.nodes.push_back(labelled("n" + std::to_string(i++), {{key, value}}));
    }
  }
  const Topology topology = cluster.read();
  CHECK(topology.domains.size() == cluster.nodes.size() + 1);
  check_tree(topology);
}

TEST_CASE("a thousand levels, two places for one node, or steps up are refused with a sentence") {
  TopologyInput input;
  input.levels.resize(1000);
  CHECK(build_topology(input).error().message() ==
        "topology: has 1000 levels, more than can be told apart");
  input.levels.resize(100);
  input.nodes = {{"n", {}}};
  for (int i = 0; i < 17; ++i) input.nodes[0].steps.push_back({i, "x"});
  CHECK(build_topology(input).error().message() ==
        "topology: node n stands in 17 levels, at most 16 are read");
  input.nodes[0].steps = {{1, "x"}, {0, "y"}};
  CHECK(build_topology(input).error().message() ==
        "topology: node n stands in levels that do not descend");
  input.nodes = {{"n", {}}, {"n", {{0, "x"}}}};
  CHECK(build_topology(input).error().message() == "topology: node n is there twice");

  std::string levels;
  for (int i = 0; i < 1000; ++i) {
    levels += std::string(i > 0 ? "," : "") + R"({"nodeLabel": "l)" + std::to_string(i) + "\"}";
  }
  const auto peer = read_peer_topology(json_of(
      R"({"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "deep"}, "spec": {"levels": [)" +
      levels + "]}}"));
  REQUIRE_FALSE(peer);
  CHECK(peer.error().message().starts_with("Kueue Topology deep: spec.levels: "));

  RecordedCluster cluster{{labelled("n", {})}, {}};
  cluster.objects.configs = {json_of(
      R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TopologyConfig", "metadata": {"name": "c"}, "spec": {"levels": []}})")};
  CHECK(cluster.read().notes ==
        Lines{"TopologyConfig c: spec.levels: must have at least one level"});
}

TEST_CASE("a TopologyConfig that cannot be right is refused by its field") {
  const auto refused = [](const std::string& level, const std::string& words) {
    const std::string said = config_refusal(R"({"levels": [)" + level + "]}");
    CHECK_MESSAGE(said.find(words) != std::string::npos, said);
  };
  CHECK(config_refusal(R"({"levels": [{"name": "rack", "nodeLabel": "r"}]})").empty());
  refused(R"({"name": "rack"})", "TopologyConfig default: spec.levels[0].nodeLabel: is required");
  refused(R"({"name": "", "nodeLabel": "r"})", "spec.levels[0].name: must be ");
  refused(R"({"name": "host", "nodeLabel": "r"})", "spec.levels[0].name: must not name the host");
  refused(R"({"name": "rack", "nodeLabel": "r", "oversubscription": "0"})",
          "spec.levels[0].oversubscription: must be a decimal number");
  refused(R"({"name": "rack", "nodeLabel": "r", "oversubscription": "nan"})", "oversubscription");
  refused(R"({"name": "rack", "nodeLabel": "r", "latencyMicroseconds": -1})",
          "latencyMicroseconds");
  refused(R"({"name": "rack", "nodeLabel": "r", "speed": 1})", "speed");
  refused(R"({"name": "rack", "nodeLabel": "r"}, {"name": "row", "nodeLabel": "r"})",
          "spec.levels[1].nodeLabel: ");
  refused(R"({"name": "rack", "nodeLabel": "r"}, {"name": "rack", "nodeLabel": "s"})",
          "spec.levels[1].name: ");
  CHECK(config_refusal(R"({"levels": [{"name": "a", "nodeLabel": "r"}],
                           "host": {"gigabitsPerSecond": "-1"}})")
            .find("spec.host.gigabitsPerSecond: must be a decimal") != std::string::npos);
}

TEST_CASE("HyperNodes with two parents or none above them are refused by name") {
  const std::string n0 = R"({"type": "Node", "selector": {"exactMatch": {"name": "n0"}}})";
  const std::string leaf = R"({"metadata": {"name": "a"}, "spec": {"tier": 1, "members": []}})";
  const auto parent = [](const std::string& name, int tier, const std::string& member) {
    return R"({"metadata": {"name": ")" + name + R"("}, "spec": {"tier": )" + std::to_string(tier) +
           R"(, "members": [)" + member + "]}}";
  };
  const std::string a = R"({"type": "HyperNode", "selector": {"exactMatch": {"name": "a"}}})";
  CHECK(refusal("[" + leaf + "," + parent("b", 2, a) + "]").empty());
  CHECK(refusal("[" + leaf + "," + parent("b", 2, a) + "," + parent("c", 2, a) + "]") ==
        "HyperNode a: has two parents, b and c; a place has one");
  CHECK(refusal("[" + leaf + "," + parent("b", 1, a) + "]") ==
        "HyperNode a: its tier must be under that of its parent b");
  CHECK(refusal("[" + parent("a", 2, a) + "]") ==
        "HyperNode a: its tier must be under that of its parent a");
  CHECK(refusal("[" + parent("p", 1, n0) + "," + parent("q", 1, n0) + "]") ==
        "HyperNode q: its member n0 belongs to p as well; a place has one parent");
  const std::string any = R"({"type": "Node", "selector": {"regexMatch": {"pattern": "n"}}})";
  CHECK(refusal("[" + parent("p", 1, n0) + "," + parent("q", 1, any) + "]") ==
        "HyperNode q: its member n0 belongs to p as well; a place has one parent");
  const std::string nothing = R"({"type": "Node", "selector": {}})";
  CHECK(refusal("[" + parent("p", 1, nothing) + "]") ==
        "HyperNode p: spec.members[0].selector: must have exactly one of exactMatch, regexMatch or "
        "labelMatch");
  const std::string group =
      R"({"type": "Node", "selector": {"regexMatch": {"pattern": "(a+)+$"}}})";
  CHECK(refusal("[" + parent("p", 1, group) + "]").find("pattern (a+)+$ is not read") !=
        std::string::npos);
  std::string many;
  for (int i = 0; i < 17; ++i) {
    many += (i > 0 ? "," : "") + parent("h" + std::to_string(i), i, "");
  }
  CHECK(refusal("[" + many + "]") == "HyperNodes: have 17 tiers, at most 16 are read");
}

namespace {

Json hyper_node(const std::string& name, int tier, const Json& members) {
  return {{"kind", "HyperNode"},
          {"metadata", {{"name", name}}},
          {"spec", {{"tier", tier}, {"members", members}}}};
}

Json node_member(const char* selector, const Json& what) {
  return {{"type", "Node"}, {"selector", {{selector, what}}}};
}

Json with_label(const std::string& key, const std::string& value) {
  return node_member("labelMatch", {{"matchLabels", {{key, value}}}});
}

Json with_name_like(const std::string& pattern) {
  return node_member("regexMatch", {{"pattern", pattern}});
}

/// Five places: by name, by patterns, and by one label or two.
TopologyObjects five_hyper_nodes() {
  Json two = with_label("row", "r0");
  two["selector"]["labelMatch"]["matchLabels"]["shelf"] = "s0";
  TopologyObjects objects;
  objects.hyper_nodes = {
      hyper_node("exact", 1, Json::array({node_member("exactMatch", {{"name", "n0"}})})),
      hyper_node("low", 1, Json::array({with_name_like("^n[1-3]$")})),
      hyper_node("high", 1, Json::array({with_name_like("^n[6-9]$"), with_name_like("^m")})),
      hyper_node("shelf", 1, Json::array({two, with_label("row", "r1")})),
      hyper_node("other", 1, Json::array({with_label("room", "b")}))};
  return objects;
}

}  // namespace

TEST_CASE(
    "what HyperNodes say of nodes is the same read once and anew, whatever becomes of nodes") {
  const TopologyObjects objects = five_hyper_nodes();
  TopologyReader kept(objects);
  Rng rng(test::seed());
  std::map<std::string, api::Node> nodes;
  int refused = 0, placed = 0;
  for (int round = 0; round < test::tries(2000); ++round) {
    const std::string name = (rng.below(8) == 0 ? "m" : "n") + std::to_string(rng.below(10));
    if (rng.below(4) == 0) {
      nodes.erase(name);
    } else {
      std::map<std::string, std::string> labels;
      if (rng.below(12) == 0) labels["row"] = "r" + std::to_string(rng.below(3));
      if (rng.below(4) == 0) labels["shelf"] = "s" + std::to_string(rng.below(2));
      if (rng.below(12) == 0) labels["room"] = rng.below(2) == 0 ? "a" : "b";
      nodes[name] = labelled(name, labels);
    }
    std::vector<const api::Node*> all;
    for (const auto& [key, node] : nodes) all.push_back(&node);
    const auto once = kept.read(all), anew = read_topology(all, objects);
    REQUIRE(once);
    REQUIRE(anew);
    CHECK(*once == *anew);
    const std::string note = once->notes.empty() ? "" : once->notes.front();
    refused += note.ends_with("a place has one parent") ? 1 : 0;
    placed += once->source.starts_with("HyperNodes") ? 1 : 0;
  }
  MESSAGE(refused << " times refused, " << placed << " times used");
  CHECK(refused > test::tries(100));
  CHECK(placed > test::tries(100));
}

TEST_CASE("a label that changes holds no node's name against the patterns again") {
  auto read = HyperNodes::read(five_hyper_nodes().hyper_nodes);
  REQUIRE(read);
  api::Node n1 = labelled("n1", {}), n5 = labelled("n5", {{"row", "r1"}});
  const auto home_of = [&](const std::string& name) {
    const auto tree = read->tree({&n1, &n5});
    REQUIRE(tree);
    const auto path = tree->paths.find(name);
    return path == tree->paths.end() ? std::string() : path->second.back().value;
  };
  CHECK(home_of("n1") == "low");
  CHECK(home_of("n5") == "shelf");
  CHECK(read->names_matched() == 2);
  n5.meta.labels = {{"room", "b"}};
  CHECK(home_of("n5") == "other");
  n5.meta.labels = {{"row", "r0"}};
  CHECK(home_of("n5").empty());  // it lacks the other one
  n5.meta.labels["shelf"] = "s0";
  CHECK(home_of("n5") == "shelf");
  CHECK(home_of("n1") == "low");
  CHECK(read->names_matched() == 2);
}

TEST_CASE("a path names all domains from the root down, but those at its end that have no name") {
  Topology topology;
  topology.domains.resize(5);
  const std::vector<std::string> names{"", "a", "", "c", ""};
  for (std::size_t i = 1; i < names.size(); ++i) {
    topology.domains[i].parent = static_cast<int>(i) - 1;
    topology.domains[i].name = names[i];
  }
  CHECK(topology.path_of(-1) == "cluster");
  CHECK(topology.path_of(0) == "cluster");
  CHECK(topology.path_of(1) == "a");
  CHECK(topology.path_of(2) == "a");
  CHECK(topology.path_of(3) == "a//c");
  CHECK(topology.path_of(4) == "a//c");
  topology.domains[1].name.clear();
  CHECK(topology.path_of(2) == "cluster");
  CHECK(topology.path_of(3) == "//c");
}

TEST_CASE("patterns find what Go's regexp finds") {
  const auto finds = [](const std::string& pattern, const std::string& text) {
    const auto found = matches_pattern(pattern, text);
    REQUIRE(found);
    return *found;
  };
  CHECK(finds("node-[01]", "my-node-17"));  // not anchored
  CHECK_FALSE(finds("^node-[01]$", "node-17"));
  CHECK(finds("^node-[0-9]+$", "node-1723"));
  CHECK_FALSE(finds("^node-[0-9]+$", "node-"));
  CHECK(finds("^gpu-node-.*", "gpu-node-"));
  CHECK(finds("^a?b*c\\d$", "c7"));
  CHECK(finds("^a?b*c\\d$", "abbbc7"));
  CHECK_FALSE(finds("^a?b*c\\d$", "aac7"));
  CHECK(finds("a\\.b", "a.b"));
  CHECK_FALSE(finds("a\\.b", "axb"));
  CHECK(finds("^[^a-c]+$", "xyz"));
  CHECK_FALSE(finds("^[^a-c]+$", "xbz"));
  CHECK(finds("", "anything"));
  CHECK(finds("^[a-]$", "-"));
  CHECK(finds("^rack-000-node-[0-9]+$", "rack-000-node-17"));
  CHECK_FALSE(finds("^rack-000-node-[0-9]+$", "rack-001-node-17"));
  CHECK(finds("^ab", "abc"));
  CHECK_FALSE(finds("^abc", "ab"));
  CHECK(finds("^ab$", "ab"));
  CHECK_FALSE(finds("^ab$", "abb"));
  CHECK(finds("^ab+$", "abb"));
  CHECK(finds("^$", ""));
  CHECK_FALSE(finds("^$", "a"));
  // Exponential for those who go back and try again.
  CHECK_FALSE(finds("^a*a*a*a*a*a*a*a*a*a*a*a*b$", std::string(250, 'a')));
  for (const std::string wrong : {"[", "[z-a]", "a{3}", "a|b", "(a)", "\\w", "*", "a**", "\\"}) {
    CHECK_FALSE(matches_pattern(wrong, "a"));
  }
  CHECK_FALSE(matches_pattern(std::string(257, 'a'), "a"));
}

TEST_CASE("over random patterns: found is what the standard library finds") {
  Rng rng(test::seed());
  const auto pick = [&](std::vector<std::string> of) { return of[rng.below(of.size())]; };
  int found = 0;
  for (int round = 0; round < test::tries(3000); ++round) {
    std::string pattern = pick({"", "^"}), text;
    for (std::uint64_t atoms = rng.below(6); atoms > 0; --atoms) {
      pattern +=
          pick({"a", "b", "a", "b", ".", "[ab]", "[^a]"}) + pick({"", "", "", "*", "+", "?"});
    }
    pattern += pick({"", "$"});
    for (std::uint64_t all = rng.below(8); all > 0; --all) text += pick({"a", "b", "c"});
    const auto is_found = matches_pattern(pattern, text);
    REQUIRE(is_found);
    CAPTURE(pattern);
    CAPTURE(text);
    CHECK(*is_found == std::regex_search(text, std::regex(pattern)));
    found += *is_found ? 1 : 0;
  }
  CHECK(found > test::tries(300));
  CHECK(found < test::tries(2700));
}

TEST_CASE("a pattern that says how names begin looks no further at those that begin otherwise") {
  constexpr int kRacks = 50, kNodes = 200;
  std::vector<Json> racks;
  const auto rack = [](int i) { return "rack-" + std::to_string(100 + i); };
  for (int i = 0; i < kRacks; ++i) {
    racks.push_back(
        hyper_node(rack(i), 1, Json::array({with_name_like("^" + rack(i) + "-node-[0-9]+$")})));
  }
  auto read = HyperNodes::read(racks);
  REQUIRE(read);
  std::vector<api::Node> nodes;
  for (int i = 0; i < kNodes; ++i) {
    nodes.push_back(labelled(rack(i % kRacks) + "-node-" + std::to_string(i), {}));
  }
  std::vector<const api::Node*> all;
  for (const api::Node& node : nodes) all.push_back(&node);
  const auto tree = read->tree(all);
  REQUIRE(tree);
  for (int i = 0; i < kNodes; ++i) {
    const auto& path = tree->paths.at(nodes[static_cast<std::size_t>(i)].meta.name);
    CHECK(path.back().value == rack(i % kRacks));
  }
  const auto begins = static_cast<std::int64_t>(rack(0).size());
  const auto longest = static_cast<std::int64_t>(rack(0).size() + std::string("-node-199").size());
  CHECK(read->characters_looked_at() <= kNodes * (kRacks * begins + longest));
}

TEST_CASE("over random labels: the tree is whole, and the order of the nodes changes nothing") {
  Rng rng(test::seed());
  for (int round = 0; round < 300; ++round) {
    RecordedCluster cluster;
    for (std::size_t i = 0, count = rng.below(30); i < count; ++i) {
      std::map<std::string, std::string> labels;
      for (int tier = 0; tier < 4; ++tier) {
        if (rng.below(4) == 0) continue;
        labels["fabric.topograph.run/tier-" + std::to_string(tier)] =
            "s" + std::to_string(rng.below(3));
      }
      if (rng.below(3) == 0) labels["accelerator.topograph.run/domain"] = "d";
      if (rng.below(5) == 0) labels = {{"cloud.google.com/gce-topology-block", "b"}};
      cluster.nodes.push_back(labelled("n" + std::to_string(i), labels));
    }
    const Topology topology = cluster.read();
    check_tree(topology);
    RecordedCluster turned = cluster;
    for (std::size_t i = turned.nodes.size(); i > 1; --i) {
      std::swap(turned.nodes[i - 1], turned.nodes[rng.below(i)]);
    }
    const Topology again = turned.read();
    CHECK(again.nodes == topology.nodes);
    CHECK(again.leaf_of_node == topology.leaf_of_node);
    CHECK(leaves_of(again) == leaves_of(topology));
    CHECK(again.notes == topology.notes);
  }
}
