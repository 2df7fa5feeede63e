#include "operator/core/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "common/json.h"
#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

namespace {

constexpr std::int64_t kGi = std::int64_t{1} << 30;

api::Node node(const std::string& name, int cpus, int gigabytes = 64) {
  api::Node made;
  made.meta.name = name;
  made.ready = true;
  made.allocatable = {{"cpu", cpus * 1000}, {"memory", gigabytes * kGi}};
  return made;
}

WaitingGang gang(const std::string& name, int count, int min, int cpus = 1) {
  WaitingGang made;
  made.job = {"ns", name};
  made.uid = name;
  made.count = count;
  made.min = min;
  made.per_worker.cpu_millis = cpus * 1000;
  return made;
}

struct Cluster {
  std::vector<api::Node> nodes;
  std::vector<api::Pod> pods;
  std::vector<Assumed> assumed;
  std::vector<WaitingGang> gangs;
  std::vector<RunningGang> running{};

  std::map<api::ObjectKey, GangVerdict> schedule() const {
    ClusterSnapshot snapshot{{}, {}, assumed, gangs};
    snapshot.running = running;
    for (const auto& one : nodes) snapshot.nodes.push_back(&one);
    for (const auto& one : pods) snapshot.pods.push_back(&one);
    return core::schedule(snapshot).verdicts;
  }
  GangVerdict only() const { return schedule().begin()->second; }
};

using Nodes = std::vector<std::string>;

}  // namespace

TEST_CASE("a gang takes as few nodes as it can") {
  Cluster cluster{{node("a", 2), node("b", 8), node("c", 3)}, {}, {}, {gang("j", 4, 4)}};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b", "b", "b"});
  cluster.gangs = {gang("j", 10, 10)};
  CHECK(cluster.only().placement->node_of_slot ==
        Nodes{"b", "b", "b", "b", "b", "b", "b", "b", "a", "a"});
}

TEST_CASE("of nodes that hold the rest of a gang the tightest is taken") {
  Cluster cluster{{node("a", 8), node("b", 3), node("c", 2), node("d", 8)}, {}, {}, {}};
  const auto nodes_of = [&](int workers) {
    cluster.gangs = {gang("j", workers, workers)};
    return cluster.only().placement->node_of_slot;
  };
  CHECK(nodes_of(1) == Nodes{"c"});
  CHECK(nodes_of(3) == Nodes{"b", "b", "b"});
  CHECK(nodes_of(4) == Nodes{"a", "a", "a", "a"});
  CHECK(nodes_of(10) == Nodes{"a", "a", "a", "a", "a", "a", "a", "a", "c", "c"});
  CHECK(nodes_of(21).size() == 21);
}

TEST_CASE("a gang that does not fit hears what is missing and takes nothing") {
  Cluster cluster{{node("local", 2)}, {}, {}, {gang("j", 4, 4), gang("k", 2, 2)}};
  const auto verdicts = cluster.schedule();
  const auto& refused = verdicts.at({"ns", "j"});
  CHECK_FALSE(refused.placement.has_value());
  CHECK(refused.why_not ==
        "needs 4 x {cpu 1, memory 512Mi}; room for 2; node local has cpu 2, memory 64Gi free");
  CHECK(verdicts.at({"ns", "k"}).placement.has_value());
}

TEST_CASE(
    "of many nodes that do not suffice the three roomiest are named, of those alike the first") {
  // Along the tree they stand in another order than by their names.
  Cluster cluster{{}, {}, {}, {gang("j", 9, 9, 2)}};
  for (const auto& [name, cpus, rack] : {std::tuple{"f", 2, "r1"},
                                         {"e", 4, "r2"},
                                         {"d", 2, "r3"},
                                         {"c", 2, "r2"},
                                         {"b", 1, "r1"},
                                         {"a", 1, "r3"}}) {
    cluster.nodes.push_back(node(name, cpus));
    cluster.nodes.back().meta.labels["network.topology.nvidia.com/leaf"] = rack;
  }
  CHECK(cluster.only().why_not ==
        "needs 9 x {cpu 2, memory 512Mi}; room for 5; node e has cpu 4, memory 64Gi free; node c "
        "has cpu 2, memory 64Gi free; node d has cpu 2, memory 64Gi free; 3 more nodes have less");
}

TEST_CASE("room for more pods than a gang can have is told apart, too") {
  const int workers = kMaxPodsCounted;
  Cluster cluster{{node("a", 10'000, 1 << 20), node("b", 5'000, 1 << 20)}, {}, {}, {}};
  cluster.gangs = {gang("j", workers, workers)};
  CHECK(cluster.only().placement->node_of_slot == Nodes(as_index(workers), "b"));
}

TEST_CASE("a gang of which nine of ten fit holds none of the room, and who comes later starts") {
  Cluster cluster{{}, {}, {}, {gang("ten", 10, 10)}};
  for (int i = 0; i < 9; ++i) {
    cluster.nodes.push_back(node("n" + std::to_string(i), 1));
    cluster.gangs.push_back(gang("one" + std::to_string(i), 1, 1));
  }
  std::set<std::string> taken;
  for (const auto& [job, verdict] : cluster.schedule()) {
    CHECK(verdict.placement.has_value() == (job.name != "ten"));
    if (verdict.placement) taken.insert(verdict.placement->node_of_slot[0]);
  }
  CHECK(taken.size() == 9);
}

TEST_CASE("a gang starts with what there is between min and count") {
  Cluster cluster{{node("a", 3)}, {}, {}, {gang("j", 5, 2)}};
  CHECK(cluster.only().placement->node_of_slot.size() == 3);
  cluster.gangs = {gang("j", 5, 4)};
  CHECK_FALSE(cluster.only().placement.has_value());
}

TEST_CASE("a gang whose workers belong together starts with whole copies of its model") {
  WaitingGang pairs = gang("j", 6, 2);
  pairs.together = 2;
  Cluster cluster{{node("a", 3), node("b", 2)}, {}, {}, {pairs}};
  CHECK(cluster.only().placement->node_of_slot.size() == 4);
  cluster.nodes = {node("a", 1), node("b", 2)};
  CHECK(cluster.only().placement->node_of_slot.size() == 2);
  cluster.nodes = {node("a", 1)};
  CHECK_FALSE(cluster.only().placement.has_value());
}

TEST_CASE("who trains already and only grows comes after those who wait to start") {
  WaitingGang grows = gang("a", 2, 1);
  grows.wish.slots = {2, 3};
  Cluster cluster{{node("n", 3)}, {}, {}, {grows, gang("b", 2, 2)}};
  CHECK(cluster.schedule().at({"ns", "a"}).placement->node_of_slot.size() == 2);
  CHECK_FALSE(cluster.schedule().at({"ns", "b"}).placement.has_value());
  cluster.gangs[0].wish.only_grows = true;
  CHECK(cluster.schedule().at({"ns", "a"}).placement->node_of_slot.size() == 1);
  CHECK(cluster.schedule().at({"ns", "b"}).placement.has_value());
}

TEST_CASE("nodes that refuse pods are not used, and the reason names them") {
  Cluster cluster{{node("a", 9), node("b", 9), node("c", 9), node("d", 9), node("e", 9)},
                  {},
                  {},
                  {gang("j", 1, 1)}};
  cluster.nodes[0].ready = false;
  cluster.nodes[1].unschedulable = true;
  cluster.nodes[2].taints = {{"gpu", "yes", "NoSchedule"}};
  cluster.nodes[4].taints = {{"ToBeDeletedByClusterAutoscaler", "1", "NoSchedule"}};
  cluster.gangs[0].node_selector = {{"zone", "x"}};
  CHECK(
      cluster.only().why_not ==
      "needs 1 x {cpu 1, memory 512Mi}; room for 0; 1 x not ready; 1 x cordoned; 1 x tainted, e.g. "
      "gpu (spec.worker.tolerations); 1 x not selected (spec.worker.nodeSelector); 1 x being "
      "emptied; where nodes come on demand: spec.scheduling: Unplaced");
  cluster.nodes[3].meta.labels = {{"zone", "x"}};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"d"});
  cluster.nodes[3].ready = false;
  cluster.nodes[2].meta.labels = {{"zone", "x"}};
  cluster.gangs[0].tolerations = {{"gpu", "Equal", "no", ""}};
  CHECK_FALSE(cluster.only().placement.has_value());
  cluster.gangs[0].tolerations = {{"gpu", "Exists", "", "NoSchedule"}};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"c"});
}

TEST_CASE("nodes are selected by expressions over labels and names") {
  Cluster cluster{{node("a", 9), node("b", 9), node("c", 9)}, {}, {}, {gang("j", 1, 1)}};
  cluster.nodes[0].meta.labels = {{"gen", "5"}, {"pool", "old"}};
  cluster.nodes[1].meta.labels = {{"gen", "12"}, {"pool", "new"}, {"spare", ""}};
  cluster.nodes[2].meta.labels = {{"gen", "x"}};
  const auto places = [&](std::vector<api::NodeTerm> terms) {
    cluster.gangs[0].node_terms = std::move(terms);
    const GangVerdict verdict = cluster.only();
    return verdict.placement ? verdict.placement->node_of_slot[0] : verdict.why_not;
  };
  const auto by_label = [&](const std::string& key, const std::string& op,
                            const std::vector<std::string>& values = {}) {
    return places({{{{key, op, values}}, {}}});
  };
  CHECK(by_label("pool", "In", {"new", "newer"}) == "b");
  CHECK(by_label("pool", "NotIn", {"new", "old"}) == "c");
  CHECK(by_label("spare", "Exists") == "b");
  CHECK(by_label("pool", "DoesNotExist") == "c");
  CHECK(by_label("gen", "Gt", {"5"}) == "b");
  CHECK(by_label("gen", "Lt", {"12"}) == "a");
  CHECK(by_label("gen", "Gt", {"12"}).find("3 x not selected (spec.worker.affinity)") !=
        std::string::npos);
  // Of a node's name, and of a label that no two nodes have alike.
  CHECK(places({{{}, {{"metadata.name", "In", {"c"}}}}}) == "c");
  CHECK(places({{{{"pool", "Exists", {}}}, {{"metadata.name", "NotIn", {"a"}}}}}) == "b");
  for (api::Node& one : cluster.nodes) one.meta.labels["kubernetes.io/hostname"] = one.meta.name;
  CHECK(by_label("kubernetes.io/hostname", "In", {"b"}) == "b");
  // All of one term, any of several; a term that says nothing selects nothing.
  CHECK(places({{{{"gen", "Gt", {"5"}}, {"pool", "In", {"old"}}}, {}},
                {{{"pool", "In", {"old"}}}, {}}}) == "a");
  CHECK(places({{}}).find("not selected") != std::string::npos);
  // It counts beside equal labels.
  cluster.gangs[0].node_selector = {{"pool", "old"}};
  CHECK(by_label("gen", "Exists") == "a");
  CHECK(by_label("gen", "Gt", {"5"}).find("(spec.worker.nodeSelector and affinity)") !=
        std::string::npos);
}

TEST_CASE("gangs that differ in their expressions alone are told apart") {
  Cluster cluster{{node("a", 1), node("b", 9)}, {}, {}, {gang("i", 2, 2), gang("j", 2, 2)}};
  cluster.nodes[0].meta.labels["pool"] = "old";
  cluster.nodes[1].meta.labels["pool"] = "new";
  cluster.gangs[0].node_terms = {{{{"pool", "In", {"old"}}}, {}}};
  cluster.gangs[1].node_terms = {{{{"pool", "In", {"new"}}}, {}}};
  const auto verdicts = cluster.schedule();
  CHECK_FALSE(verdicts.at({"ns", "i"}).placement);
  CHECK(verdicts.at({"ns", "j"}).placement->node_of_slot == Nodes{"b", "b"});
}

TEST_CASE("who fits no node even if it were empty hears how nodes are waited for that come") {
  Cluster cluster{{node("a", 4), node("b", 8)}, {}, {}, {gang("j", 1, 1, 9)}};
  const std::string words = "; where nodes come on demand: spec.scheduling: Unplaced";
  const auto hears = [&] {
    const GangVerdict verdict = cluster.only();
    REQUIRE_FALSE(verdict.placement);
    return verdict.why_not.ends_with(words);
  };
  CHECK(hears());
  cluster.gangs[0].preferred_level = "host";
  CHECK(hears());
  cluster.gangs[0].required_level = "host";  // needs places
  CHECK_FALSE(hears());
  cluster.gangs = {gang("j", 1, 1, 8)};
  api::Pod pod;
  pod.node_name = "b";
  pod.requests.cpu_millis = 1000;
  cluster.pods = {pod};
  CHECK_FALSE(hears());  // the node is only occupied
  cluster.nodes[1].ready = false;
  cluster.nodes[1].taints = {{"node.kubernetes.io/not-ready", "", "NoExecute"}};
  CHECK_FALSE(hears());  // or away
  cluster.nodes[1].taints.push_back({"dedicated", "", "NoSchedule"});
  CHECK(hears());
  cluster.nodes[1] = node("b", 8);
  cluster.gangs[0].node_selector = {{"pool", "large"}};
  CHECK(hears());
  cluster.nodes[1].meta.labels = {{"pool", "large"}};
  CHECK_FALSE(hears());
  cluster.gangs[0].per_worker.gpus = 1;
  CHECK(hears());
  cluster.gangs[0].nodes_may_come = false;
  CHECK_FALSE(hears());
}

TEST_CASE("of nodes that refuse by taints one with room names its own") {
  Cluster cluster{{node("a", 9), node("b", 0), node("c", 9)}, {}, {}, {gang("j", 2, 2)}};
  for (api::Node& one : cluster.nodes) one.taints = {{"of-" + one.meta.name, "", "NoExecute"}};
  cluster.nodes[0].allocatable["cpu"] = 0;
  CHECK(cluster.only().why_not.find("3 x tainted, e.g. of-c (spec") != std::string::npos);
  cluster.nodes[2].taints = {{"soft", "", "PreferNoSchedule"}};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"c", "c"});
}

TEST_CASE("a node that is tainted by the name of a device is for jobs that ask for it") {
  api::TrainingJob job;
  job.meta.namespace_name = "ns";
  job.meta.name = "j";
  Cluster cluster{{node("a", 9)}, {}, {}, {gang_of(job)}};
  cluster.nodes[0].allocatable["nvidia.com/gpu"] = 8;
  cluster.nodes[0].allocatable["rdma/hca"] = 8;
  cluster.nodes[0].taints = {{"nvidia.com/gpu", "present", "NoSchedule"},
                             {"rdma/hca", "", "NoExecute"}};
  CHECK(cluster.only().why_not.find("1 x tainted, e.g. nvidia.com/gpu (spec") != std::string::npos);
  job.spec.worker.resources.gpus = 1;
  cluster.gangs = {gang_of(job)};
  CHECK(cluster.only().why_not.find("1 x tainted, e.g. rdma/hca (spec") != std::string::npos);
  job.spec.worker.resources.devices["rdma/hca"] = 1;
  cluster.gangs = {gang_of(job)};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"a"});
  // Where the network is known, places are found another way.
  cluster.gangs[0].preferred_level = "host";
  CHECK(cluster.only().placement);
  cluster.nodes[0].taints.push_back({"team", "a", "NoSchedule"});
  CHECK_FALSE(cluster.only().placement);
}

TEST_CASE("a resource that a node does not have is none, and GPUs count") {
  Cluster cluster{{node("a", 9)}, {}, {}, {gang("j", 2, 2)}};
  cluster.gangs[0].per_worker.gpus = 2;
  CHECK_FALSE(cluster.only().placement.has_value());
  cluster.nodes[0].allocatable["nvidia.com/gpu"] = 3;
  CHECK_FALSE(cluster.only().placement.has_value());
  cluster.nodes[0].allocatable["nvidia.com/gpu"] = 4;
  CHECK(cluster.only().placement.has_value());
}

TEST_CASE("all kinds of devices that a worker asks for must be on its node") {
  Cluster cluster{{node("a", 9), node("b", 9)}, {}, {}, {gang("j", 2, 2)}};
  api::Resources& worker = cluster.gangs[0].per_worker;
  worker.gpus = 1;
  worker.devices = {{"vpc.amazonaws.com/efa", 2}, {"rdma/hca", 1}};
  for (api::Node& one : cluster.nodes) one.allocatable["nvidia.com/gpu"] = 8;
  cluster.nodes[0].allocatable["vpc.amazonaws.com/efa"] = 8;
  cluster.nodes[1].allocatable["vpc.amazonaws.com/efa"] = 4;
  cluster.nodes[1].allocatable["rdma/hca"] = 2;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b"});
  cluster.nodes[1].allocatable["vpc.amazonaws.com/efa"] = 3;
  CHECK(cluster.only().why_not.find("rdma/hca 1, vpc.amazonaws.com/efa 2") != std::string::npos);
}

TEST_CASE("a pod's place has room for whichever of its containers takes most") {
  api::TrainingJob job;
  job.meta.name = "j";
  job.spec.worker.count = job.spec.worker.min = 2;
  api::InitContainer fetch{"fetch", {}, job.spec.worker.resources, Json::object()};
  fetch.resources.memory_bytes = 5 * kGi;
  fetch.resources.ephemeral_bytes = 20 * kGi;
  job.spec.worker.init_containers = {fetch};
  const WaitingGang gang = gang_of(job);
  CHECK(gang.per_worker == api::pod_resources(job.spec.worker));
  Cluster cluster{{node("a", 9, 9)}, {}, {}, {gang}};
  cluster.nodes[0].allocatable["ephemeral-storage"] = 40 * kGi;
  CHECK(cluster.only().why_not.find("{cpu 1, memory 5Gi, ephemeral-storage 20Gi}") !=
        std::string::npos);
  cluster.nodes[0].allocatable["memory"] = 10 * kGi;
  CHECK(cluster.only().placement);
  CHECK(running_gang(job, {}).per_worker == gang.per_worker);
  // A queue's quota goes by the same.
  CHECK(holder_of(job, {}, {{0, 0, "a", ""}}, {}, WallTime{})->per_worker == gang.per_worker);
}

TEST_CASE("a node's own disk is counted where a worker asks for some of it") {
  Cluster cluster{{node("a", 9)}, {}, {}, {gang("j", 2, 2)}};
  cluster.gangs[0].per_worker.ephemeral_bytes = 20 * kGi;
  CHECK(cluster.only().why_not.find("{cpu 1, memory 512Mi, ephemeral-storage 20Gi}") !=
        std::string::npos);
  cluster.nodes[0].allocatable["ephemeral-storage"] = 50 * kGi;
  CHECK(cluster.only().placement);
  api::Pod pod;
  pod.node_name = "a";
  pod.requests.devices["ephemeral-storage"] = 11 * kGi;
  cluster.pods = {pod};
  CHECK(cluster.only().why_not.find("ephemeral-storage 39Gi") != std::string::npos);
}

TEST_CASE("running pods and promised capacity are not given away twice") {
  Cluster cluster{{node("a", 4)}, {}, {}, {gang("j", 2, 2)}};
  api::Pod pod;
  pod.required_node = "a";
  pod.requests.cpu_millis = 2000;
  pod.meta.owner_references = {{"muster.dev/v1alpha1", "TrainingJob", "j", "u", true}};
  cluster.pods = {pod};
  CHECK(cluster.only().placement.has_value());
  cluster.assumed = {{"a", pod.requests}};
  CHECK_FALSE(cluster.only().placement.has_value());
  cluster.pods[0].phase = api::PodPhase::kSucceeded;
  CHECK(cluster.only().placement.has_value());
}

TEST_CASE("a job is over by its deadline, and when its workers' grace has passed") {
  api::TrainingJob job;
  CHECK_FALSE(gang_of(job).ends_within);
  job.spec.active_deadline_seconds = 3000;
  CHECK(gang_of(job).ends_within == seconds(3000));
  job.spec.worker.pod_fields = Json{{"terminationGracePeriodSeconds", 7200}};
  CHECK(gang_of(job).ends_within == seconds(3000 + 7200 - 30));
  job.spec.worker.pod_fields = Json{{"terminationGracePeriodSeconds", 5}};
  CHECK(gang_of(job).ends_within == seconds(3000));
  job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
  CHECK_FALSE(gang_of(job).ends_within);
}

TEST_CASE("what a stranger's pod is pinned to is not taken until it stands there") {
  Cluster cluster{{node("a", 4)}, {}, {}, {gang("j", 1, 1)}};
  api::Pod pod;
  pod.required_node = "a";
  pod.requests.cpu_millis = 1'000'000;
  cluster.pods = {pod};
  CHECK(cluster.only().placement.has_value());
  cluster.pods[0].node_name = "a";
  CHECK_FALSE(cluster.only().placement.has_value());
}

TEST_CASE("however much pods ask for, a full node stays full") {
  Cluster cluster{{node("a", 4)}, {}, {}, {gang("j", 1, 1)}};
  api::Pod pod;
  pod.node_name = "a";
  pod.requests.memory_bytes = INT64_MAX;
  cluster.pods = {pod, pod, pod};
  CHECK_FALSE(cluster.only().placement.has_value());
}

TEST_CASE("devices of any name that a pod has are not given away twice") {
  const std::string device = "aws.amazon.com/neuron";
  Cluster cluster{{node("a", 9)}, {}, {}, {gang("j", 1, 1)}};
  cluster.nodes[0].allocatable[device] = 2;
  cluster.gangs[0].per_worker.gpus = 2;
  cluster.gangs[0].per_worker.gpu_resource = device;
  CHECK(cluster.only().placement.has_value());
  const auto read = api::parse_pod(*parse_json(R"({"metadata": {"name": "p"}, "spec": {
    "nodeName": "a", "containers": [
      {"resources": {"requests": {"aws.amazon.com/neuron": "1", "nvidia.com/gpu": "1"}}}]}})"));
  cluster.pods = {*read};
  CHECK_FALSE(cluster.only().placement.has_value());
}

TEST_CASE("slot 0 goes where its volume is, the others where there is room") {
  Cluster cluster{{node("a", 8), node("b", 2), node("c", 1)}, {}, {}, {gang("j", 4, 4)}};
  cluster.gangs[0].volumes.first_slot = std::set<std::string>{"b", "c"};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b", "a", "a"});
  cluster.gangs[0].volumes.first_slot = std::set<std::string>{"d"};
  CHECK_FALSE(cluster.only().placement);
  CHECK(cluster.only().why_not.find("volume of its checkpoint (d)") != std::string::npos);
}

TEST_CASE("a volume of all workers keeps them on its nodes") {
  Cluster cluster{{node("a", 8), node("b", 2)}, {}, {}, {gang("j", 2, 2)}};
  cluster.gangs[0].volumes.every_slot = std::set<std::string>{"b"};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b"});
  cluster.gangs[0].count = cluster.gangs[0].min = 3;
  CHECK(cluster.only().why_not.find("1 x without its volumes (spec.worker.volumes)") !=
        std::string::npos);
}

TEST_CASE("a gang with a claim that one node alone can have stands on one node") {
  Cluster cluster{{node("a", 2), node("b", 3)}, {}, {}, {gang("j", 3, 3)}};
  const std::string claim = "claim data is ReadWriteOnce (spec.worker.volumes)";
  cluster.gangs[0].volumes.one_node = claim;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b", "b"});
  CHECK(cluster.only().placement->why.ends_with("; all on one node: " + claim));
  cluster.gangs[0].count = cluster.gangs[0].min = 4;
  CHECK(cluster.only().why_not ==
        "needs 4 x {cpu 1, memory 512Mi}: needs room for 4 on one node, because " + claim +
            "; the roomiest, b, has room for 3; 3 would fit as they are");
  cluster.gangs[0].min = 1;
  CHECK(cluster.only().placement->node_of_slot.size() == 3);
  // Who joins goes where the others are, who has nobody beside it anywhere.
  cluster.gangs[0].wish = {{3}, {"a"}, false};
  cluster.gangs[0].count = 1;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"a"});
  cluster.nodes[0].allocatable["cpu"] = 0;
  CHECK(cluster.only().why_not.ends_with("1 x not where the others are, and " + claim));
  cluster.gangs = {gang("j", 1, 1)};
  cluster.gangs[0].volumes.one_node = claim;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b"});
  CHECK(cluster.only().placement->why.empty());
  // Nothing is known of where these go.
  cluster.gangs = {gang("j", 4, 4)};
  cluster.gangs[0].volumes.one_node = claim;
  cluster.gangs[0].unplaced = true;
  CHECK(cluster.only().placement->node_of_slot.size() == 4);
}

TEST_CASE("a required level of the network is kept on one node, or waited for") {
  Cluster cluster{{node("a", 2), node("b", 3)}, {}, {}, {gang("j", 3, 3)}};
  cluster.gangs[0].required_level = "rack";
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b", "b"});
  cluster.gangs[0].count = 4;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"b", "b", "b"});
  cluster.gangs[0].min = 4;
  const GangVerdict refused = cluster.only();
  CHECK_FALSE(refused.placement.has_value());
  CHECK(refused.why_not.starts_with("spec.topology.required is rack, and no node says in which"));
  CHECK(refused.why_not.ends_with("Needs 4 x {cpu 1, memory 512Mi} on a node; room for 3"));
  cluster.gangs[0].required_level.clear();
  CHECK(cluster.only().placement.has_value());
  cluster.gangs[0].required_level = "rack";
  cluster.gangs[0].unplaced = true;
  CHECK(cluster.only().why_not.ends_with("or scheduling: Placed"));
  cluster.gangs[0].count = cluster.gangs[0].min = 1;
  CHECK(cluster.only().placement.has_value());

  api::TrainingJob job;
  job.spec.topology_required = "rack";
  CHECK(gang_of(job).required_level == "rack");
  job.spec.topology_preferred = "zone";
  CHECK(gang_of(job).preferred_level == "zone");
  job.spec.topology_required.clear();
  job.spec.topology_preferred.clear();
  job.meta.annotations["kueue.x-k8s.io/podset-required-topology"] = "example.com/rack";
  CHECK(gang_of(job).required_level == "example.com/rack");
}

namespace {

/// Two blocks of two racks of two hosts with 2 processors each: n0 to n7.
Cluster racks() {
  Cluster cluster;
  for (int i = 0; i < 8; ++i) {
    cluster.nodes.push_back(node("n" + std::to_string(i), 2));
    cluster.nodes.back().meta.labels = {
        {"cloud.google.com/gce-topology-block", "b" + std::to_string(i / 4)},
        {"cloud.google.com/gce-topology-subblock", "r" + std::to_string(i / 2 % 2)}};
  }
  return cluster;
}

}  // namespace

TEST_CASE("a gang on one node for its claim's sake may have asked for more of the network") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 3, 2)};
  cluster.gangs[0].volumes.one_node = "claim data is ReadWriteOnce";
  for (const char* level : {"", "rack", "block", "host", "unheard-of"}) {
    cluster.gangs[0].required_level = level;
    const Nodes nodes = cluster.only().placement->node_of_slot;
    CHECK(nodes.size() == 2);
    CHECK(nodes.front() == nodes.back());
  }
}

TEST_CASE("a required level that nodes' labels tell of is kept over several nodes") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 4, 4)};
  cluster.gangs[0].required_level = "rack";
  const GangVerdict fits = cluster.only();
  REQUIRE(fits.placement);
  CHECK(fits.placement->node_of_slot == Nodes{"n0", "n0", "n1", "n1"});
  CHECK(fits.placement->domain_of_slot == Nodes{"b0/r0", "b0/r0", "b0/r0", "b0/r0"});
  CHECK(fits.placement->why.starts_with("subblock b0/r0 is the lowest domain with room for 4"));
  cluster.gangs[0].count = 6;  // as many as fit
  CHECK(cluster.only().placement->node_of_slot.size() == 4);
  cluster.gangs[0].min = 6;
  CHECK(cluster.only().why_not ==
        "needs 6 x {cpu 1, memory 512Mi}: needs room for 6 within one rack; the roomiest, b0/r0, "
        "has room for 4; it would fit with required: block (b0 has room for 8); 4 would fit as "
        "they are");
  cluster.gangs[0].required_level = "block";
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n0", "n0", "n1", "n1", "n2", "n2"});
}

TEST_CASE(
    "a preferred level is kept if there is room, and gangs after each other share what is left") {
  Cluster cluster = racks();
  cluster.gangs = {gang("a", 3, 3), gang("b", 3, 3), gang("c", 2, 2), gang("d", 8, 8)};
  for (WaitingGang& one : cluster.gangs) one.preferred_level = "rack";
  cluster.gangs[2].preferred_level.clear();
  const auto verdicts = cluster.schedule();
  const auto domains = [&](const std::string& name) {
    const Nodes& all = verdicts.at({"ns", name}).placement->domain_of_slot;
    return std::set<std::string>(all.begin(), all.end());
  };
  CHECK(domains("a").size() == 1);
  CHECK(domains("b").size() == 1);
  CHECK(domains("a") != domains("b"));
  CHECK(domains("c").size() == 1);  // did not ask
  CHECK(verdicts.at({"ns", "c"}).placement->node_of_slot.size() == 2);
  CHECK(domains("d").size() == 4);  // 8 of what the others left
}

TEST_CASE("a gang that asks for nothing stands close together where the network is known") {
  Cluster cluster = racks();
  // The roomiest nodes are far apart.
  for (const int roomy : {0, 5})
    cluster.nodes[static_cast<std::size_t>(roomy)] = node("n" + std::to_string(roomy), 3);
  cluster.nodes[0].meta.labels = racks().nodes[0].meta.labels;
  cluster.nodes[5].meta.labels = racks().nodes[5].meta.labels;
  cluster.gangs = {gang("j", 4, 2)};
  const GangVerdict verdict = cluster.only();
  REQUIRE(verdict.placement);
  const Nodes& domains = verdict.placement->domain_of_slot;
  CHECK(std::set<std::string>(domains.begin(), domains.end()).size() == 1);
  CHECK(verdict.placement->why.find("is the lowest domain with room for 4") != std::string::npos);
  // More than a rack holds: one block.
  cluster.gangs = {gang("j", 8, 8)};
  const GangVerdict eight = cluster.only();
  REQUIRE(eight.placement);
  for (const std::string& domain : eight.placement->domain_of_slot) {
    CHECK(domain.starts_with("b0"));
  }
  // Nothing is known: the fewest nodes, and no domain.
  for (api::Node& one : cluster.nodes) one.meta.labels.clear();
  cluster.gangs = {gang("j", 4, 4)};
  const GangVerdict flat = cluster.only();
  CHECK(flat.placement->node_of_slot == Nodes{"n0", "n0", "n0", "n1"});
  CHECK(flat.placement->domain_of_slot.empty());
  CHECK(flat.placement->why ==
        "no topology is known, so the network between its nodes is a guess (confidence low)");
  cluster.gangs = {gang("j", 3, 3)};
  CHECK(cluster.only().placement->why.empty());  // on one node
}

TEST_CASE("who grows by whole copies of its model leaves others the room of a part") {
  api::TrainingJob split;
  split.meta.namespace_name = "ns";
  split.meta.name = "a-split";
  split.spec.worker.count = split.spec.worker.max = 4;
  split.spec.worker.resources.cpu_millis = 1000;
  split.spec.worker.min = 2;
  split.spec.training.emplace();
  api::TrainingJob whole = split;
  whole.meta.name = "b-whole";
  split.spec.training->split.pipeline = 2;
  PlaceWish copies, one;
  copies.slots = {2, 3};
  one.slots = {3};
  copies.only_grows = one.only_grows = true;
  Cluster cluster{{node("a", 1)}, {}, {}, {gang_of(split, copies), gang_of(whole, one)}};
  CHECK(cluster.gangs[0].min == 2);
  auto verdicts = cluster.schedule();
  CHECK_FALSE(verdicts.at(cluster.gangs[0].job).placement);
  CHECK(verdicts.at(cluster.gangs[1].job).placement);
  cluster.nodes[0] = node("a", 2);
  verdicts = cluster.schedule();
  CHECK(verdicts.at(cluster.gangs[0].job).placement->node_of_slot.size() == 2);
  // Whoever takes a lost worker's place completes its copy, and is placed alone.
  copies.only_grows = false;
  CHECK(gang_of(split, copies).min == 1);
  one.slots = {1, 2};
  CHECK(gang_of(split, one).min == 1);
}

TEST_CASE("close together, too, a gang whose workers belong together starts with whole copies") {
  WaitingGang pairs = gang("j", 6, 2);
  pairs.together = 2;
  Cluster cluster = racks();
  for (api::Node& one : cluster.nodes) one.allocatable["cpu"] = 0;
  cluster.nodes.front().allocatable["cpu"] = 5'000;
  cluster.gangs = {pairs};
  const GangVerdict verdict = cluster.only();
  CHECK(verdict.placement->node_of_slot.size() == 4);
  CHECK_FALSE(verdict.placement->domain_of_slot.empty());
}

TEST_CASE("uplinks of PCIe switches that nodes tell of are part of the predicted exchange") {
  Cluster cluster = racks();
  for (api::Node& one : cluster.nodes) {
    one.allocatable["cpu"] = 64'000;
    one.allocatable["nvidia.com/gpu"] = 8;
    one.pcie.emplace().switches = {{"0000:10:00.0", 1'000'000'000}, {"0000:20:00.0", 0}};
    for (int i = 0; i < 8; ++i) one.pcie->gpus.push_back({"", {}, i / 4});
  }
  WaitingGang all = gang("all", 8, 8);
  all.per_worker.gpus = 1;
  all.per_worker.gpu_resource = "nvidia.com/gpu";
  cluster.gangs = {all};
  const std::string bound = "bound by the uplink of PCIe switch 0000:10:00.0 of host n";
  CHECK(cluster.only().placement->why.find(bound) != std::string::npos);
  cluster.gangs.front().per_worker.gpus = 0;
  CHECK(cluster.only().placement->why.find("PCIe") == std::string::npos);
}

TEST_CASE("a gang keeps off the links of those that run") {
  Cluster cluster = racks();
  for (api::Node& one : cluster.nodes) one.allocatable["cpu"] = 4000;
  // It runs in both racks of the first block, which are fuller, so the tightest that holds all.
  cluster.running = {{{"ns", "a"}, {"n0", "n1", "n2", "n3"}, {1e9, 1, 0.9}}};
  for (const std::string name : {"n0", "n1", "n2", "n3"}) {
    cluster.assumed.push_back({name, gang("a", 1, 1).per_worker});
  }
  cluster.gangs = {gang("b", 10, 10)};
  const auto block_of = [](const GangVerdict& verdict) {
    std::set<std::string> blocks;
    for (const auto& domain : verdict.placement->domain_of_slot) blocks.insert(domain.substr(0, 2));
    return blocks;
  };
  const GangVerdict beside = cluster.only();
  CHECK(block_of(beside) == std::set<std::string>{"b1"});
  CHECK(beside.placement->why.find("rather than on") != std::string::npos);
  CHECK(beside.placement->why.find("ns/a uses") != std::string::npos);
  cluster.running.clear();
  CHECK(block_of(cluster.only()) == std::set<std::string>{"b0"});
}

TEST_CASE("a gang keeps off the links of one that was given its places a moment before") {
  Cluster cluster = racks();
  for (std::size_t i = 0; i < 8; ++i) cluster.nodes[i].allocatable["cpu"] = i < 4 ? 4000 : 1000;
  const WaitingGang first = gang("first", 4, 4, 3), second = gang("second", 4, 4);
  cluster.gangs = {first, second};
  for (const bool is_anybody_there : {false, true}) {
    CAPTURE(is_anybody_there);
    cluster.running.clear();
    // It sends to nobody, and takes no room that is counted here.
    if (is_anybody_there) cluster.running = {{{"ns", "lone"}, {"n7"}, {1e9, 1, 0.9}}};
    const auto both = cluster.schedule();
    CHECK(both.at({"ns", "first"}).placement->domain_of_slot[0].starts_with("b0"));
    CHECK(both.at({"ns", "second"}).placement->domain_of_slot[0].starts_with("b1"));
  }
  // If the first one sent nothing, both blocks would do.
  for (const std::string name : {"n0", "n1", "n2", "n3"}) {
    cluster.assumed.push_back({name, first.per_worker});
  }
  cluster.gangs = {second};
  CHECK(cluster.only().placement->domain_of_slot[0].starts_with("b0"));
}

TEST_CASE("whom a gang meets below a PCIe switch is named, and who came a moment before as well") {
  Cluster cluster{{node("a", 64)}, {}, {}, {}};
  api::Node& only = cluster.nodes.front();
  only.allocatable["nvidia.com/gpu"] = 8;
  only.pcie.emplace().switches = {{"0000:10:00.0"}, {"0000:20:00.0"}};
  for (int i = 0; i < 8; ++i) only.pcie->gpus.push_back({"", {}, i / 4});
  const auto asking = [](const std::string& name, int gpus) {
    WaitingGang made = gang(name, 1, 1);
    made.per_worker.gpus = gpus;
    made.per_worker.gpu_resource = "nvidia.com/gpu";
    return made;
  };
  cluster.running = {{{"ns", "runs"}, {"a"}, {}, asking("runs", 2).per_worker}};
  cluster.assumed = {{"a", cluster.running[0].per_worker}};
  cluster.gangs = {asking("first", 3), asking("second", 3)};
  const auto both = cluster.schedule();
  CHECK(both.at({"ns", "first"}).placement->why.empty());
  CHECK(both.at({"ns", "second"}).placement->why ==
        "on a ns/first and ns/runs hold 5 of 8 GPUs, so one of its 2 PCIe switches is shared");
  cluster.running[0].per_worker.gpu_resource = "amd.com/gpu";
  CHECK(cluster.schedule()
            .at({"ns", "second"})
            .placement->why.starts_with("on a ns/first and others hold 5 of 8"));
}

TEST_CASE("a gang of one takes a roomier node rather than share a PCIe switch") {
  Cluster cluster{{node("a", 64), node("b", 64)}, {}, {}, {}};
  for (api::Node& one : cluster.nodes) {
    one.allocatable["nvidia.com/gpu"] = 8;
    one.pcie.emplace().switches = {{"0000:10:00.0"}, {"0000:20:00.0"}};
    for (int i = 0; i < 8; ++i) one.pcie->gpus.push_back({"", {}, i / 4});
  }
  for (const char* name : {"j0", "j1", "j2"}) {
    cluster.gangs.push_back(gang(name, 1, 1));
    cluster.gangs.back().per_worker.gpus = 3;
    cluster.gangs.back().per_worker.gpu_resource = "nvidia.com/gpu";
  }
  cluster.gangs[2].per_worker.gpus = 2;
  const auto verdicts = cluster.schedule();
  const auto nodes_of = [&](const char* name) {
    return verdicts.at({"ns", name}).placement->node_of_slot;
  };
  CHECK(nodes_of("j0") == Nodes{"a"});
  CHECK(nodes_of("j1") == Nodes{"a"});
  CHECK(nodes_of("j2") == Nodes{"b"});  // a has 2, one below each switch
}

TEST_CASE("of places alike the one that leaves most for gangs of the sizes that run and wait") {
  Cluster cluster = racks();
  cluster.nodes.resize(4);
  // A host in each rack has room: for 3 and for 4.
  const int room[] = {3, 0, 4, 0};
  for (std::size_t i = 0; i < 4; ++i) cluster.nodes[i].allocatable["cpu"] = 1000 * room[i];
  cluster.gangs = {gang("j", 2, 2)};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n2", "n2"});
  CHECK(cluster.only().placement->why.find("breaks up the least room") != std::string::npos);
  // Many of 4 run: what holds one is kept. Those with GPUs are another matter.
  for (const std::string name : {"a", "b", "c"}) {
    cluster.running.push_back({{"ns", name}, {"x", "y"}, {}, gang(name, 2, 2, 2).per_worker});
  }
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n0", "n0"});
  for (RunningGang& one : cluster.running) one.per_worker.gpus = 8;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n2", "n2"});
}

TEST_CASE("what a running job sends is what its workers report; what is no figure is none") {
  api::TrainingJob job;
  job.meta.namespace_name = "ns";
  job.meta.name = "a";
  job.status.model_parameters = 1000;
  job.status.progress.emplace();
  job.status.progress->step_milliseconds = "250.5";
  job.status.progress->exchange_milliseconds = "50";
  std::vector<api::SlotPlacement> places(3);
  places[0].node = "n1";
  places[2].node = "n2";
  const RunningGang gang = running_gang(job, places);
  CHECK(gang.job == api::ObjectKey{"ns", "a"});
  CHECK(gang.nodes == Nodes{"n1", "n2"});
  CHECK(gang.step == StepFacts{4000, 0.2505, 0.05});
  CHECK(gang_of(job).step == gang.step);
  for (const std::string none : {"", "nan", "inf", "-5", "1e999", "12x", "0x10"}) {
    job.status.progress->step_milliseconds = none;
    CHECK(running_gang(job, {}).step.step_seconds == 0);
  }
}

TEST_CASE("a lost worker's place is taken as near to the others as there is room") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 2, 1)};
  cluster.gangs[0].wish = {{2, 3}, {"n6"}, false};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n6", "n6"});
  cluster.nodes[6].unschedulable = true;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n7", "n7"});
  cluster.nodes[7].ready = false;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n4", "n4"});
  for (const std::size_t gone : {4, 5}) cluster.nodes[gone].ready = false;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n0", "n0"});
}

TEST_CASE(
    "how much a gang exchanges is what its workers say, else what a model tells, else a guess") {
  api::TrainingJob job;
  CHECK(gradient_bytes_of(job) == kUsualGradientBytes);
  job.spec.training.emplace();
  job.spec.training->model = Json{{"mlp", {{"hidden", {128}}}}};
  CHECK(gradient_bytes_of(job) == kUsualGradientBytes);
  job.spec.training->model =
      Json{{"gpt", {{"layers", 2}, {"heads", 2}, {"width", 8}, {"contextLength", 16}}}};
  // Tables of tokens and positions, two blocks, the last normalisation.
  CHECK(gradient_bytes_of(job) == 4.0 * (256 * 8 + 16 * 8 + 2 * (12 * 64 + 13 * 8) + 2 * 8));
  job.spec.training->model["gpt"]["vocabularySize"] = 50'257;
  CHECK(gradient_bytes_of(job) == 4.0 * (50'257 * 8 + 16 * 8 + 2 * (12 * 64 + 13 * 8) + 2 * 8));
  job.status.model_parameters = 1000;
  CHECK(gradient_bytes_of(job) == 4000);
}

TEST_CASE("slots of a split model are beside those to which they send most") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 8, 8)};
  cluster.gangs[0].together = 2;
  cluster.gangs[0].mesh = MeshWork{2, 1, 1e6, 1e9};
  CHECK(cluster.only().placement->node_of_slot ==
        Nodes{"n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"});
  cluster.gangs[0].mesh = MeshWork{2, 1, 1e9, 1e6};
  const GangPlacement placed = *cluster.only().placement;
  CHECK(placed.node_of_slot == Nodes{"n0", "n2", "n0", "n2", "n1", "n3", "n1", "n3"});
  CHECK(placed.domain_of_slot[1] == "b0/r1");
  CHECK(placed.why.find("workers with the same stage are beside each other") != std::string::npos);
  cluster.gangs[0].volumes.first_slot = std::set<std::string>{"n3"};
  CHECK(cluster.only().placement->node_of_slot ==
        Nodes{"n3", "n2", "n0", "n2", "n1", "n0", "n1", "n3"});
}

TEST_CASE("slots that join a gang stay within its required domain") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 3, 1)};
  cluster.gangs[0].required_level = "rack";
  cluster.gangs[0].wish = {{1, 2, 3}, {"n4"}, false};
  const GangVerdict joins = cluster.only();
  CHECK(joins.placement->node_of_slot == Nodes{"n4", "n4", "n5"});
  CHECK(joins.placement->domain_of_slot == Nodes{"b1/r0", "b1/r0", "b1/r0"});
  cluster.nodes[4].ready = cluster.nodes[5].ready = false;
  CHECK_FALSE(cluster.only().placement);
}

TEST_CASE("slot 0 stands where its volume is, and the others around it") {
  Cluster cluster = racks();
  cluster.gangs = {gang("j", 4, 4)};
  cluster.gangs[0].preferred_level = "rack";
  cluster.gangs[0].volumes.first_slot = std::set<std::string>{"n7"};
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n7", "n7", "n6", "n6"});
  cluster.gangs[0].count = cluster.gangs[0].min = 1;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n7"});
  cluster.gangs[0].count = cluster.gangs[0].min = 5;
  const Nodes five = cluster.only().placement->node_of_slot;
  CHECK(five.size() == 5);
  CHECK(five[0] == "n7");
  CHECK(std::all_of(five.begin(), five.end(), [](const auto& name) { return name >= "n4"; }));
  cluster.gangs[0].preferred_level.clear();
  cluster.gangs[0].required_level = "host";
  cluster.gangs[0].count = cluster.gangs[0].min = 2;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"n7", "n7"});
  cluster.nodes[7].unschedulable = true;
  CHECK(cluster.only().why_not.find("volume of its checkpoint (n7)") != std::string::npos);
}

TEST_CASE("an unplaced gang is let through without a node") {
  Cluster cluster{{}, {}, {}, {gang("j", 2, 2)}};
  CHECK(
      cluster.only().why_not ==
      "needs 2 x {cpu 1, memory 512Mi}; room for 0; there is no node; where nodes come on demand: "
      "spec.scheduling: Unplaced");
  cluster.gangs[0].unplaced = true;
  CHECK(cluster.only().placement->node_of_slot == Nodes{"", ""});
}

TEST_CASE("a gang like one that was refused hears what it would hear alone") {
  Rng rng(test::seed());
  int refused = 0, refused_alike = 0;
  for (int trial = 0; trial < 200; ++trial) {
    CAPTURE(trial);
    Cluster cluster;
    const int nodes = 1 + static_cast<int>(rng.below(6));
    for (int i = 0; i < nodes; ++i) {
      cluster.nodes.push_back(node("n" + std::to_string(i), 1 + static_cast<int>(rng.below(8)), 8));
    }
    for (int i = 0; i < 12; ++i) {
      const int count = 1 + static_cast<int>(rng.below(3));
      WaitingGang one =
          gang("j" + std::to_string(10 + i), count, 1 + static_cast<int>(rng.below(2)),
               2 + static_cast<int>(rng.below(3)));
      one.count = std::max(one.count, one.min);
      if (rng.below(4) == 0) one.avoid.insert("n0");
      if (rng.below(4) == 0) one.required_level = "host";
      if (rng.below(4) == 0) one.volumes.first_slot = std::set<std::string>{"n0", "n1"};
      if (rng.below(4) == 0) one.nodes_may_come = false;
      one.step.gradient_bytes = static_cast<double>(rng.below(1000));
      cluster.gangs.push_back(one);
    }
    const auto verdicts = cluster.schedule();
    Cluster alone = cluster;
    std::set<std::string> heard;
    for (const WaitingGang& one : cluster.gangs) {
      const GangVerdict& verdict = verdicts.at(one.job);
      alone.gangs = {one};
      const GangVerdict expected = alone.only();
      REQUIRE(verdict.placement.has_value() == expected.placement.has_value());
      CHECK(verdict.why_not == expected.why_not);
      refused += verdict.placement ? 0 : 1;
      if (!verdict.placement && !heard.insert(verdict.why_not).second) ++refused_alike;
      if (!verdict.placement) continue;
      heard.clear();
      for (const std::string& name : verdict.placement->node_of_slot) {
        alone.assumed.push_back({name, one.per_worker});
      }
    }
  }
  CHECK(refused > 500);
  CHECK(refused_alike > 100);
}

TEST_CASE("over random clusters: capacity holds, gangs are whole, order changes nothing") {
  Rng rng(test::seed());
  int placed = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    Cluster cluster;
    const std::size_t nodes = rng.below(6);
    for (std::size_t i = 0; i < nodes; ++i) {
      cluster.nodes.push_back(node("n" + std::to_string(i), static_cast<int>(rng.below(9)),
                                   static_cast<int>(rng.below(6))));
      cluster.nodes.back().ready = rng.below(8) != 0;
      cluster.nodes.back().unschedulable = rng.below(8) == 0;
    }
    for (std::size_t i = rng.below(6); nodes > 0 && i > 0; --i) {
      api::Pod pod;
      pod.meta.name = "p" + std::to_string(i);
      pod.node_name = "n" + std::to_string(rng.below(nodes));
      pod.requests.cpu_millis = static_cast<std::int64_t>(rng.below(4000));
      cluster.pods.push_back(pod);
    }
    for (std::size_t i = rng.below(5); i > 0; --i) {
      const int min = 1 + static_cast<int>(rng.below(5));
      cluster.gangs.push_back(gang("j" + std::to_string(i), min + static_cast<int>(rng.below(3)),
                                   min, 1 + static_cast<int>(rng.below(3))));
    }
    const auto verdicts = cluster.schedule();
    CHECK(verdicts.size() == cluster.gangs.size());

    std::map<std::string, std::int64_t> cpu, memory;
    for (const auto& pod : cluster.pods) {
      cpu[pod.node_name] += pod.requests.cpu_millis;
      memory[pod.node_name] += pod.requests.memory_bytes;
    }
    std::set<std::string> used;
    for (const auto& one : cluster.gangs) {
      const auto& verdict = verdicts.at(one.job);
      CHECK(verdict.placement.has_value() == verdict.why_not.empty());
      if (!verdict.placement) {
        ++refused;
        continue;
      }
      ++placed;
      const auto workers = static_cast<int>(verdict.placement->node_of_slot.size());
      CHECK(workers >= one.min);
      CHECK(workers <= one.count);
      for (const auto& name : verdict.placement->node_of_slot) {
        used.insert(name);
        cpu[name] += one.per_worker.cpu_millis;
        memory[name] += one.per_worker.memory_bytes;
      }
    }
    for (const auto& one : cluster.nodes) {
      if (!used.contains(one.meta.name)) continue;
      CHECK(one.ready);
      CHECK_FALSE(one.unschedulable);
      CHECK(cpu[one.meta.name] <= one.allocatable.at("cpu"));
      CHECK(memory[one.meta.name] <= one.allocatable.at("memory"));
    }
    // A gang is refused only if no choice of nodes could hold its fewest workers.
    if (cluster.gangs.size() == 1 && !verdicts.begin()->second.placement) {
      std::int64_t room = 0;
      const auto& one = cluster.gangs[0];
      for (const auto& host : cluster.nodes) {
        if (!host.ready || host.unschedulable) continue;
        const auto& name = host.meta.name;
        room += std::max<std::int64_t>(
            0,
            std::min((host.allocatable.at("cpu") - cpu[name]) / one.per_worker.cpu_millis,
                     (host.allocatable.at("memory") - memory[name]) / one.per_worker.memory_bytes));
      }
      CHECK(room < one.min);
    }
    Cluster turned = cluster;
    std::reverse(turned.nodes.begin(), turned.nodes.end());
    std::reverse(turned.pods.begin(), turned.pods.end());
    CHECK(turned.schedule() == verdicts);
  }
  CHECK(placed > 1000);
  CHECK(refused > 500);
}
