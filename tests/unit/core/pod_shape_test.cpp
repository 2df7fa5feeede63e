// One large worker on a node in place of many small ones, where spec.worker.shape is Free.
#include "operator/core/pod_shape.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/contract.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::core;

namespace {

using SlotNodes = std::vector<std::string>;

/// Of one processor and one process each.
api::TrainingJob free_job(int workers) {
  api::TrainingJob job = test::SnapshotBuilder("j").engine().workers(workers).snapshot().job;
  job.spec.worker.shape = "Free";
  return job;
}

api::Node node_with(std::string name, int processors) {
  api::Node node;
  node.meta.name = std::move(name);
  node.ready = true;
  node.allocatable = {{"cpu", processors * 1000}, {"memory", std::int64_t{1} << 40}};
  return node;
}

GangPlacement placed_on(const WaitingGang& gang, const std::vector<api::Node>& nodes) {
  ClusterSnapshot cluster;
  for (const api::Node& node : nodes) cluster.nodes.push_back(&node);
  cluster.gangs = {gang};
  const GangVerdict verdict = schedule(cluster).verdicts.begin()->second;
  REQUIRE_MESSAGE(verdict.placement, verdict.why_not);
  return *verdict.placement;
}

/// Placed on nodes a, b, ... with so many processors.
GangPlacement placed(const api::TrainingJob& job, const std::vector<int>& processors) {
  std::vector<api::Node> nodes;
  for (const int count : processors) {
    nodes.push_back(node_with(std::string(1, static_cast<char>('a' + nodes.size())), count));
  }
  return placed_on(gang_of(job), nodes);
}

/// r0n0, r0n1, ..., with so many processors, by rack.
std::vector<api::Node> racks_of(const std::vector<std::vector<int>>& racks) {
  std::vector<api::Node> nodes;
  for (std::size_t rack = 0; rack < racks.size(); ++rack) {
    const std::string name = "r" + std::to_string(rack);
    for (std::size_t i = 0; i < racks[rack].size(); ++i) {
      nodes.push_back(node_with(name + "n" + std::to_string(i), racks[rack][i]));
      nodes.back().meta.labels = {{"cloud.google.com/gce-topology-block", name}};
    }
  }
  return nodes;
}

std::set<std::string> names_in(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

TEST_CASE("a gang whose shape is free has one worker on each of its nodes") {
  const GangPlacement two = placed(free_job(16), {8, 8, 8});
  CHECK(two.node_of_slot == SlotNodes{"a", "b"});
  CHECK(two.worker_size == 8);
  CHECK(two.why.ends_with("each is 8 workers in one (spec.worker.shape: Free)"));
  const GangPlacement one = placed(free_job(6), {8, 8});
  CHECK(one.node_of_slot == SlotNodes{"a"});
  CHECK(one.worker_size == 6);
  api::TrainingJob fixed = free_job(16);
  fixed.spec.worker.shape = "Fixed";
  CHECK(placed(fixed, {8, 8, 8}).node_of_slot.size() == 16);
  CHECK(placed(fixed, {8, 8, 8}).worker_size == 1);
}

TEST_CASE("all workers are of one size, the largest of which there is room for all") {
  const GangPlacement three = placed(free_job(12), {8, 4});
  CHECK(three.node_of_slot == SlotNodes{"a", "a", "b"});
  CHECK(three.worker_size == 4);
  const GangPlacement nine = placed(free_job(9), {8, 8});
  CHECK(nine.node_of_slot == SlotNodes{"a", "a", "b"});
  CHECK(nine.worker_size == 3);
  const GangPlacement none = placed(free_job(9), {8, 1});
  CHECK(none.node_of_slot.size() == 9);
  CHECK(none.worker_size == 1);
  CHECK(none.why.find("shape") == std::string::npos);
  const GangPlacement sevens = placed(free_job(16), {7, 7, 7});
  CHECK(sevens.node_of_slot == SlotNodes{"a", "a", "a", "b", "b", "b", "c", "c"});
  CHECK(sevens.worker_size == 2);
}

TEST_CASE("in a rack as few nodes are taken as hold large workers, however short the exchange") {
  const std::vector<int> eights(10, 8), fours(10, 4);
  api::TrainingJob fixed = free_job(16);
  fixed.spec.worker.shape = "Fixed";
  // Where each sends for itself, more cards are better.
  CHECK(names_in(placed_on(gang_of(fixed), racks_of({eights, eights})).node_of_slot).size() > 2);

  const GangPlacement two = placed_on(gang_of(free_job(16)), racks_of({eights, eights}));
  CHECK(two.worker_size == 8);
  CHECK(names_in(two.node_of_slot).size() == 2);
  CHECK(names_in(two.domain_of_slot).size() == 1);
  CHECK(two.domain_of_slot.size() == 2);

  const GangPlacement four = placed_on(gang_of(free_job(16)), racks_of({fours, fours}));
  CHECK(four.worker_size == 4);
  CHECK(names_in(four.node_of_slot).size() == 4);
  CHECK(names_in(four.domain_of_slot).size() == 1);
}

TEST_CASE("no gang stands further apart for the sake of large workers") {
  SUBCASE("on two racks where small ones have room in one") {
    const auto nodes = racks_of({{8, 2, 2, 2, 2, 2, 2, 2, 2, 2}, {8}});
    const GangPlacement near = placed_on(gang_of(free_job(16)), nodes);
    CHECK(near.worker_size == 2);
    CHECK(names_in(near.domain_of_slot).size() == 1);
  }
  SUBCASE("on more racks than small ones") {
    const auto nodes = racks_of({{8, 2, 2, 2, 2}, {8, 2, 2, 2, 2}, {8}});
    const GangPlacement near = placed_on(gang_of(free_job(24)), nodes);
    CHECK(near.worker_size == 2);
    CHECK(names_in(near.domain_of_slot).size() == 2);
  }
  SUBCASE("within the level that it must keep") {
    WaitingGang gang = gang_of(free_job(16));
    gang.required_level = "block";
    const auto nodes = racks_of({{8, 4, 4}, {8}});
    CHECK(names_in(placed_on(gang, nodes).domain_of_slot).size() == 1);
    CHECK(placed_on(gang, nodes).worker_size == 4);
  }
}

TEST_CASE("slot 0 of large workers is where its volume is") {
  WaitingGang gang = gang_of(free_job(16));
  gang.volumes.first_slot = std::set<std::string>{"r1n3"};
  const std::vector<int> eights(10, 8);
  const GangPlacement two = placed_on(gang, racks_of({eights, eights}));
  CHECK(two.worker_size == 8);
  CHECK(two.node_of_slot.front() == "r1n3");
  CHECK(names_in(two.domain_of_slot).size() == 1);
}

TEST_CASE("large workers are placed for as many pods as they are written as") {
  std::vector<api::Node> nodes{node_with("a", 8), node_with("b", 8), node_with("c", 8)};
  nodes[0].allocatable["pods"] = 4;  // one large worker is one pod, and is counted as eight
  const GangPlacement two = placed_on(gang_of(free_job(16)), nodes);
  CHECK(two.node_of_slot == SlotNodes{"b", "c"});
  CHECK(two.worker_size == 8);
}

TEST_CASE("nodes with room for as many are given as many, so that each has one worker") {
  const GangPlacement even = placed(free_job(16), {10, 10});
  CHECK(even.node_of_slot == SlotNodes{"a", "b"});
  CHECK(even.worker_size == 8);
  const GangPlacement uneven = placed(free_job(16), {10, 6});
  CHECK(uneven.node_of_slot == SlotNodes{"a", "a", "a", "a", "a", "b", "b", "b"});
  CHECK(uneven.worker_size == 2);
  api::TrainingJob fixed = free_job(16);
  fixed.spec.worker.shape = "Fixed";
  const GangPlacement as_asked = placed(fixed, {10, 10});
  CHECK(std::count(as_asked.node_of_slot.begin(), as_asked.node_of_slot.end(), "a") == 10);
}

TEST_CASE("who comes after a gang that was evened out finds the rest of both nodes") {
  std::vector<api::Node> nodes(2);
  for (api::Node& node : nodes) {
    node.meta.name = &node == nodes.data() ? "a" : "b";
    node.ready = true;
    node.allocatable = {{"cpu", 10'000}, {"memory", std::int64_t{1} << 40}};
  }
  ClusterSnapshot cluster;
  for (const api::Node& node : nodes) cluster.nodes.push_back(&node);
  WaitingGang next = gang_of(test::SnapshotBuilder("next").workers(2).snapshot().job);
  next.per_worker.cpu_millis = 2000;
  cluster.gangs = {gang_of(free_job(16)), next};
  const auto verdict = schedule(cluster).verdicts.at(next.job);
  REQUIRE_MESSAGE(verdict.placement, verdict.why_not);
  CHECK(verdict.placement->node_of_slot == SlotNodes{"a", "b"});
}

TEST_CASE("a worker has no more processes than a spec could ask for") {
  api::TrainingJob job = free_job(8);
  job.spec.worker.processes = 16;
  const GangPlacement two = placed(job, {64});
  CHECK(two.node_of_slot == SlotNodes{"a", "a"});
  CHECK(two.worker_size == 4);
}

TEST_CASE("workers become one whose slots follow each other on a known node") {
  const auto enlarged = [](SlotNodes nodes, int largest) {
    GangPlacement placement{std::move(nodes), {}};
    enlarge_workers(placement, largest);
    return std::pair(placement.worker_size, placement.node_of_slot);
  };
  CHECK(enlarged({"a", "a", "b", "b"}, 64) == std::pair(2, SlotNodes{"a", "b"}));
  CHECK(enlarged({"a", "a", "a", "a"}, 3) == std::pair(2, SlotNodes{"a", "a"}));
  CHECK(enlarged({"a", "b", "a", "b"}, 64).first == 1);
  CHECK(enlarged({"a", "b", "b", "a"}, 64).first == 1);
  CHECK(enlarged({"", "", "", ""}, 64).first == 1);
  CHECK(enlarged({}, 64).first == 1);
  GangPlacement racks{{"a", "a", "b", "b"}, {"r0", "r0", "r1", "r1"}};
  enlarge_workers(racks, 64);
  CHECK(racks.domain_of_slot == SlotNodes{"r0", "r1"});
}

TEST_CASE("the scheduler of the cluster is given workers as they were asked for") {
  api::TrainingJob job = free_job(4);
  CHECK(gang_of(job).largest == 64);
  job.spec.scheduling = "Unplaced";
  CHECK(gang_of(job).largest == 1);
}

TEST_CASE("a gang that starts again may have workers of another size, and stays where it was") {
  api::TrainingJob job = free_job(16);
  job.status.worker_size = 8;
  job.status.last_nodes = {"b", "c"};
  job.spec.worker = api::with_size(job.spec.worker, 8);
  const WaitingGang again = gang_of(job);
  CHECK(again.count == 16);
  CHECK(again.min == 16);
  CHECK(again.per_worker.cpu_millis == 1000);
  CHECK(again.stood.size() == 16);
  const GangPlacement same = placed(job, {8, 8, 8});
  CHECK(same.node_of_slot == SlotNodes{"b", "c"});
  CHECK(same.worker_size == 8);
  const GangPlacement small = placed(job, {4, 4, 4, 4});
  CHECK(small.node_of_slot.size() == 4);
  CHECK(small.worker_size == 4);

  // Until its turn it counts as its old pods do, and who replaces one of them is as large.
  PlaceWish wish;
  wish.not_yet = true;
  CHECK(gang_of(job, wish).count == 2);
  CHECK(gang_of(job, wish).per_worker.cpu_millis == 8000);
  CHECK(gang_of(job, wish).largest == 1);
  wish.not_yet = false;
  wish.slots = {1};
  CHECK(gang_of(job, wish).per_worker.cpu_millis == 8000);
  CHECK(gang_of(job, wish).largest == 1);
}

TEST_CASE("a job that asks for more since it is suspended starts with as many, of the same size") {
  auto job = test::make_job("j").engine().workers(32);
  job.edit().job.spec.worker.shape = "Free";
  job.edit().job.status.worker_size = 8;  // when they were 16
  job.edit().job.status.start_count = 2;
  GangPlacement places{SlotNodes{"a", "b", "c", "d"}};
  places.worker_size = 8;
  job.edit().gang = GangVerdict{places, ""};
  const Plan plan = job.plan();
  CHECK(test::status_of(plan).start_count == 4);
  const api::WorkerSpec workers = sized_workers(job.edit().job, test::status_of(plan));
  CHECK(workers.size == 8);
  CHECK(workers.count == 4);
}

TEST_CASE("the size that a gang was placed in is kept in status, and its pods are of that size") {
  auto job = test::make_job("j").engine().workers(16);
  job.edit().job.spec.worker.shape = "Free";
  GangPlacement places{SlotNodes{"a", "b"}};
  places.worker_size = 8;
  job.edit().gang = GangVerdict{places, ""};
  const Plan plan = job.plan();
  CHECK(test::status_of(plan).worker_size == 8);
  CHECK(test::status_of(plan).target_workers == 2);
  CHECK(test::status_of(plan).start_count == 2);
  test::apply(job.edit(), plan);
  CHECK(job.edit().job.status.worker_size == 8);

  api::WorkerSpec& worker = job.edit().job.spec.worker;
  worker = api::with_size(worker, 8);  // as it is read with that status
  job.edit().gang.reset();
  int pods = 0;
  for (const Action& action : job.plan().actions) {
    const auto* create = std::get_if<CreatePod>(&action);
    if (create == nullptr) continue;
    ++pods;
    CHECK(create->pod.requests.cpu_millis == 8000);
    for (const Json& variable : create->pod.spec["containers"][0]["env"]) {
      if (variable["name"] == contract::kEnvProcesses) CHECK(variable["value"] == "8");
    }
  }
  CHECK(pods == 2);

  SUBCASE("and where there is no room for it any more, another one") {
    job.edit().job.status.placement.clear();
    GangPlacement small{SlotNodes(8, "a")};
    small.worker_size = 2;
    job.edit().gang = GangVerdict{small, ""};
    CHECK(test::status_of(job.plan()).worker_size == 2);
    CHECK(test::status_of(job.plan()).start_count == 8);
  }
}
