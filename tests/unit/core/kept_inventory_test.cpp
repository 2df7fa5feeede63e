#include "operator/core/kept_inventory.h"

#include <doctest/doctest.h>

#include "common/rng.h"
#include "operator/core/topology_sources.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

namespace {

constexpr const char* kBlock = "cloud.google.com/gce-topology-block";
constexpr const char* kRack = "cloud.google.com/gce-topology-subblock";

api::Resources resources(std::int64_t cpu, int gpus) {
  api::Resources made;
  made.cpu_millis = cpu;
  made.memory_bytes = 1 << 20;
  made.gpus = gpus;
  return made;
}

/// A small cluster as an API server has it, told to a kept inventory as it changes.
class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed), is_read_(rng_.below(8) != 0) {
    for (std::uint64_t i = rng_.below(12); i > 0; --i) set_node(number(20));
  }

  void event() {
    switch (rng_.below(12)) {
      case 0:
        return set_node(number(20));
      case 1:
        return remove_node(number(20));
      case 2:
      case 3:
      case 4:
        return change_node();
      case 5:
      case 6:
        return promise(number(4));
      case 7:
        return remove_pod(number(30));
      default:
        return set_pod(number(30));
    }
  }

  /// Kept and made anew, field by field; what is decided on either; and that nothing of it stays.
  void check() {
    const ClusterSnapshot anew = snapshot();
    Inventory made = inventory_of(anew);
    KeptInventory::Asked asked = kept_.inventory(is_read_ ? topology_ : nullptr);
    if (asked.remade) ++remade[*asked.remade];
    // As the shapes of gangs are remembered.
    (void)asked.inventory.room(shapes_[rng_.below(shapes_.size())]);
    REQUIRE(asked.inventory.difference_from(made) == "");
    if (rng_.below(4) != 0) return;
    ClusterSnapshot on_kept;
    on_kept.inventory = &asked.inventory;
    ClusterSnapshot on_made = anew;
    on_kept.gangs = on_made.gangs = gangs();
    REQUIRE(schedule(on_kept).verdicts == schedule(on_made).verdicts);
    REQUIRE(asked.inventory.difference_from(made) == "");
  }

  std::map<Remade, int> remade;

 private:
  int number(std::uint64_t below) { return static_cast<int>(rng_.below(below)); }
  static std::string node_name(int node) { return "n" + std::to_string(100 + node); }

  void tell(const std::string& name) {
    const auto found = nodes_.find(name);
    const auto news = kept_.take_node(name, found == nodes_.end() ? nullptr : &found->second);
    if (news == KeptInventory::News::kPlaces) is_topology_old_ = true;
    if (!is_topology_old_ || rng_.below(3) == 0) return;
    read_topology_again();
  }
  /// As the operator's TopologyBook does it.
  void read_topology_again() {
    is_topology_old_ = false;
    Topology now = *read_topology(kept_.nodes());
    if (!topology_ || *topology_ != now) topology_ = std::make_shared<const Topology>(now);
  }

  void set_node(int which) {
    api::Node& node = nodes_[node_name(which)];
    node.meta.name = node_name(which);
    node.meta.labels = {{"kubernetes.io/hostname", node.meta.name}, {"disk", "ssd"}};
    if (rng_.below(8) != 0) node.meta.labels[kBlock] = "b" + std::to_string(number(2));
    if (rng_.below(8) != 0) node.meta.labels[kRack] = "r" + std::to_string(number(3));
    node.ready = true;
    node.allocatable = {{"cpu", 1000 * number(9)}, {"memory", 1 << 30}};
    if (rng_.below(2) == 0) node.allocatable["nvidia.com/gpu"] = number(9);
    if (rng_.below(4) == 0) node.allocatable["pods"] = number(5);
    tell(node.meta.name);
  }
  void remove_node(int which) {
    nodes_.erase(node_name(which));
    tell(node_name(which));
  }
  void change_node() {
    if (nodes_.empty()) return;
    auto entry = nodes_.begin();
    std::advance(entry, number(nodes_.size()));
    api::Node& node = entry->second;
    switch (rng_.below(10)) {
      case 0:
        node.ready = !node.ready;
        break;
      case 1:
        node.unschedulable = !node.unschedulable;
        break;
      case 2:
        node.taints = {{"team", std::to_string(number(2)), "NoSchedule"}};
        break;
      case 3:
        node.taints.clear();
        break;
      case 4:
        node.allocatable["cpu"] = 1000 * number(9);
        break;
      case 5:
        node.allocatable.erase("nvidia.com/gpu");
        break;
      case 6:
        node.allocatable[rng_.below(3) == 0 ? "amd.com/gpu" : "nvidia.com/gpu"] = number(5);
        break;
      case 7:
        node.meta.labels["disk"] = rng_.below(2) == 0 ? "ssd" : "tape";
        break;
      case 8:
        node.meta.labels[kRack] = "r" + std::to_string(number(3));
        break;
      default:
        node.meta.resource_version = std::to_string(number(1000));
        break;
    }
    tell(entry->first);
  }

  void set_pod(int which) {
    api::Pod& pod = pods_[{"ns", std::to_string(which)}];
    pod.meta.namespace_name = "ns";
    pod.meta.name = std::to_string(which);
    // Of some the node is gone, or has not been seen yet.
    if (rng_.below(2) == 0) pod.required_node = node_name(number(20));
    if (rng_.below(3) == 0) pod.node_name = node_name(number(20));
    if (rng_.below(2) == 0) pod.requests = resources(500 * number(4), number(3));
    if (rng_.below(8) == 0) pod.requests.devices = {{"amd.com/gpu", 1}, {"x.io/nic", 2}};
    pod.requests.master_port = rng_.below(4) == 0;
    pod.meta.owner_references.clear();
    if (rng_.below(2) == 0)
      pod.meta.owner_references = {{"muster.dev/v1", "TrainingJob", "j", "u", true}};
    if (rng_.below(4) == 0) pod.meta.owner_references = {{"apps/v1", "DaemonSet", "d", "u", true}};
    pod.phase = rng_.below(4) == 0 ? api::PodPhase::kSucceeded : api::PodPhase::kRunning;
    kept_.take_pod(pod.meta.key(), &pod);
  }
  void remove_pod(int which) {
    const api::ObjectKey key{"ns", std::to_string(which)};
    pods_.erase(key);
    kept_.take_pod(key, nullptr);
  }
  void promise(int which) {
    std::vector<Assumed> promised;
    for (int i = number(4); i > 0; --i) {
      promised.push_back({node_name(number(20)), resources(1000, number(2))});
    }
    const api::ObjectKey job{"ns", "job-" + std::to_string(which)};
    promised_[job] = promised;
    kept_.promise(job, promised);
  }

  std::vector<WaitingGang> gangs() {
    std::vector<WaitingGang> gangs;
    for (int i = number(4); i > 0; --i) {
      WaitingGang& gang = gangs.emplace_back();
      gang.job = {"ns", "waiting-" + std::to_string(i)};
      gang.count = 1 + number(6);
      gang.min = 1 + number(static_cast<std::uint64_t>(gang.count));
      gang.per_worker = resources(1000, number(2));
      gang.per_worker.master_port = rng_.below(4) == 0;
      if (rng_.below(3) == 0) gang.required_level = rng_.below(2) == 0 ? "rack" : "host";
      if (rng_.below(3) == 0) gang.preferred_level = "rack";
      if (rng_.below(4) == 0) gang.tolerations = {{"team", "Exists", "", ""}};
      if (rng_.below(4) == 0) gang.node_selector = {{"disk", "ssd"}};
    }
    return gangs;
  }

  ClusterSnapshot snapshot() {
    if (is_topology_old_ || !topology_) read_topology_again();
    ClusterSnapshot cluster;
    for (const auto& [name, node] : nodes_) cluster.nodes.push_back(&node);
    for (const auto& [key, pod] : pods_) cluster.pods.push_back(&pod);
    for (const auto& [job, list] : promised_) {
      cluster.assumed.insert(cluster.assumed.end(), list.begin(), list.end());
    }
    if (is_read_) return cluster;
    std::set<std::string> names;
    for (const auto& [name, node] : nodes_) names.insert(name);
    cluster.topology = std::make_shared<const Topology>(lone_nodes(names));
    return cluster;
  }

  static PodShape shape(int gpus, bool tolerates) {
    PodShape made;
    made.requests = amounts_of(resources(1000, gpus));
    if (tolerates) made.tolerations = {{"team", "Exists", "", ""}};
    return made;
  }

  Rng rng_;
  bool is_read_;  ///< false: of where nodes stand nothing is known
  std::map<std::string, api::Node> nodes_;
  std::map<api::ObjectKey, api::Pod> pods_;
  std::map<api::ObjectKey, std::vector<Assumed>> promised_;
  KeptInventory kept_;
  std::shared_ptr<const Topology> topology_;
  bool is_topology_old_ = true;
  std::vector<PodShape> shapes_{shape(0, false), shape(1, false), shape(1, true)};
};

}  // namespace

TEST_CASE("over random events: an inventory that is kept is the one that would be made anew") {
  constexpr int kSequences = test::tries(10'000), kEvents = 8;
  std::map<Remade, int> remade;
  for (int i = 0; i < kSequences; ++i) {
    World world(test::seed() + static_cast<std::uint64_t>(i));
    INFO("sequence ", i);
    world.check();
    for (int event = 0; event < kEvents; ++event) {
      world.event();
      world.check();
    }
    for (const auto& [why, times] : world.remade) remade[why] += times;
  }
  // Most events are followed, and every reason to make it anew was tried.
  CHECK(remade.size() == 4);
  const int all = remade[Remade::kNodes] + remade[Remade::kTopology] + remade[Remade::kChanges];
  MESSAGE("made anew ", all, " times in ", kSequences * kEvents, " events");
  CHECK(all < kSequences * kEvents / 3);
}

TEST_CASE(
    "a node that says nothing new is no news, and one that says more is only where it counts") {
  api::Node node;
  node.meta.name = "a";
  node.meta.labels = {{kRack, "r1"}};
  node.ready = true;
  node.allocatable = {{"cpu", 1000}};
  KeptInventory kept;
  using News = KeptInventory::News;
  CHECK(kept.take_node("a", &node) == News::kPlaces);
  // Until somebody asks, nobody knows what it said before.
  CHECK(kept.take_node("a", &node) == News::kPlaces);
  const auto topology = std::make_shared<const Topology>(*read_topology(kept.nodes()));
  CHECK(kept.inventory(topology).remade == Remade::kFirst);
  CHECK_FALSE(kept.inventory(topology).remade);
  node.meta.resource_version = "2";
  CHECK(kept.take_node("a", &node) == News::kNothing);
  node.ready = false;
  CHECK(kept.take_node("a", &node) == News::kRoom);
  node.meta.labels["disk"] = "tape";
  CHECK(kept.take_node("a", &node) == News::kPlaces);
  // The tree is the same all the same.
  CHECK_FALSE(kept.inventory(topology).remade);
  node.allocatable["example.com/new"] = 1;
  CHECK(kept.take_node("a", &node) == News::kRoom);
  CHECK(kept.inventory(topology).remade == Remade::kChanges);
  CHECK(kept.inventory(std::make_shared<const Topology>(*topology)).remade == Remade::kTopology);
  CHECK(kept.take_node("a", nullptr) == News::kPlaces);
  CHECK(kept.take_node("a", nullptr) == News::kNothing);
  CHECK(kept.inventory(nullptr).remade == Remade::kNodes);
  CHECK(kept.inventory(nullptr).inventory.size() == 0);
}
