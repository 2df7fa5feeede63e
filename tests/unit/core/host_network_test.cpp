// Gangs in the network of their nodes: one worker a node, whatever job it is of.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "operator/core/inventory.h"
#include "operator/core/schedule.h"

using namespace muster;
using namespace muster::core;

namespace {

struct HostCluster {
  std::vector<api::Node> nodes;
  std::vector<api::Pod> pods;
  std::vector<WaitingGang> gangs;

  explicit HostCluster(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      api::Node& node = nodes.emplace_back();
      node.meta.name = name;
      node.ready = true;
      // What a node says of it counts for nothing.
      node.allocatable = {
          {"cpu", 64'000}, {"memory", std::int64_t{64} << 30}, {kMasterPortResource, 5}};
    }
  }
  WaitingGang& gang(const std::string& name, int count, int min) {
    api::TrainingJob job;
    job.meta.namespace_name = "ns";
    job.meta.name = job.meta.uid = name;
    job.spec.worker.host_network = true;
    job.spec.worker.count = count;
    job.spec.worker.min = min;
    return gangs.emplace_back(gang_of(job));
  }
  void pod(const std::string& node, bool holds_port) {
    api::Pod& made = pods.emplace_back();
    made.meta.name = "p" + std::to_string(pods.size());
    made.node_name = node;
    made.requests.master_port = holds_port;
  }
  GangVerdict verdict(const std::string& name) const {
    ClusterSnapshot snapshot{{}, {}, {}, gangs};
    for (const auto& one : nodes) snapshot.nodes.push_back(&one);
    for (const auto& one : pods) snapshot.pods.push_back(&one);
    return schedule(snapshot).verdicts.at({"ns", name});
  }
  std::vector<std::string> places(const std::string& name) const {
    const GangVerdict said = verdict(name);
    if (!said.placement) return {};
    std::vector<std::string> places = said.placement->node_of_slot;
    std::sort(places.begin(), places.end());
    return places;
  }
};

using HostNodes = std::vector<std::string>;

}  // namespace

TEST_CASE("of a gang in its nodes' network no two workers share a node") {
  HostCluster cluster({"a", "b", "c"});
  cluster.gang("j", 3, 3);
  CHECK(cluster.places("j") == HostNodes{"a", "b", "c"});
  cluster.gangs.clear();
  cluster.gang("j", 4, 2);
  CHECK(cluster.places("j") == HostNodes{"a", "b", "c"});
  cluster.gangs.clear();
  cluster.gang("j", 4, 4);
  const GangVerdict said = cluster.verdict("j");
  CHECK_FALSE(said.placement);
  CHECK_MESSAGE(said.why_not.find("host-port-29500 1}; room for 3;") != std::string::npos,
                said.why_not);
}

TEST_CASE("a node whose port another job's worker holds, or anybody's pod, takes no other") {
  HostCluster cluster({"a", "b", "c", "d"});
  cluster.gang("j", 2, 2);
  cluster.gang("k", 2, 2);
  HostNodes both = cluster.places("j");
  for (const std::string& one : cluster.places("k")) both.push_back(one);
  std::sort(both.begin(), both.end());
  CHECK(both == HostNodes{"a", "b", "c", "d"});

  cluster.pod("a", true);
  cluster.pod("b", false);
  CHECK(cluster.places("j").size() == 2);
  CHECK(cluster.places("k").empty());
  cluster.pods.back().requests.master_port = true;
  CHECK(cluster.places("j") == HostNodes{"c", "d"});
  const std::string why = cluster.verdict("k").why_not;
  CHECK_MESSAGE(why.find("; node c has cpu 63, host-port-29500 0,") != std::string::npos, why);
  // Whoever is in a network of its own is not kept off.
  cluster.gang("l", 5, 5).per_worker.master_port = false;
  CHECK(cluster.places("l").size() == 5);
  // An end sets the port free.
  cluster.pods.front().phase = api::PodPhase::kSucceeded;
  cluster.gangs.erase(cluster.gangs.begin() + 1, cluster.gangs.end());
  cluster.gang("k", 1, 1);
  CHECK(cluster.places("k").size() == 1);
}

TEST_CASE("along a topology, too, a gang in its nodes' network has one worker a node") {
  HostCluster cluster({"a", "b", "c", "d"});
  for (api::Node& node : cluster.nodes) {
    const bool is_first = node.meta.name < "c";
    node.meta.labels = {{"cloud.google.com/gce-topology-block", "x"},
                        {"cloud.google.com/gce-topology-subblock", is_first ? "1" : "2"}};
  }
  cluster.gang("j", 2, 2).required_level = "rack";
  cluster.pod("a", true);
  CHECK(cluster.places("j") == HostNodes{"c", "d"});
  cluster.gang("k", 2, 2).required_level = "rack";
  CHECK(cluster.places("k").empty());
}

TEST_CASE("slots that join a gang in its nodes' network go where none of it stands") {
  HostCluster cluster({"a", "b", "c"});
  cluster.pod("a", true);
  WaitingGang& gang = cluster.gang("j", 1, 1);
  gang.wish.slots = {1};
  gang.wish.beside = {"a"};
  const HostNodes places = cluster.places("j");
  REQUIRE(places.size() == 1);
  CHECK(places.front() != "a");
}
