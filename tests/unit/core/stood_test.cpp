// Where a gang goes that starts again: who can stays where it stood.
#include <doctest/doctest.h>

#include "operator/core/gang_place.h"
#include "operator/core/schedule.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::core;

namespace {

using HostNames = std::vector<std::string>;

/// Two racks of five hosts with one processor each: h0 to h4 in r0, h5 to h9 in r1.
struct TwoRacks {
  std::vector<api::Node> hosts;
  std::vector<api::Pod> pods{};
  std::vector<WaitingGang> gangs{};

  TwoRacks() {
    for (int i = 0; i < 10; ++i) {
      api::Node& host = hosts.emplace_back();
      host.meta.name = "h" + std::to_string(i);
      host.meta.labels = {{"cloud.google.com/gce-topology-block", "b0"},
                          {"cloud.google.com/gce-topology-subblock", i < 5 ? "r0" : "r1"}};
      host.ready = true;
      host.allocatable = {{"cpu", 1000}, {"memory", std::int64_t{1} << 36}};
    }
  }
  WaitingGang& again(const std::string& name, const HostNames& stood) {
    WaitingGang& gang = gangs.emplace_back();
    gang.job = {"ns", name};
    gang.uid = name;
    gang.count = gang.min = static_cast<int>(stood.size());
    gang.per_worker.cpu_millis = 1000;
    gang.stood = stood;
    return gang;
  }
  void lose(std::size_t host) { hosts[host].ready = false; }
  GangVerdict verdict(const std::string& name) const {
    ClusterSnapshot snapshot{{}, {}, {}, gangs};
    for (const auto& one : hosts) snapshot.nodes.push_back(&one);
    for (const auto& one : pods) snapshot.pods.push_back(&one);
    return core::schedule(snapshot).verdicts.at({"ns", name});
  }
  HostNames nodes(const std::string& name) const {
    const GangVerdict found = verdict(name);
    return found.placement ? found.placement->node_of_slot : HostNames{};
  }
};

}  // namespace

TEST_CASE("of a gang that starts again whoever has room where it stood stays") {
  TwoRacks racks;
  WaitingGang& gang = racks.again("j", {"h5", "h6", "h7", "h8"});
  for (const char* field : {"required", "preferred", ""}) {
    gang.required_level = field == std::string("required") ? "rack" : "";
    gang.preferred_level = field == std::string("preferred") ? "rack" : "";
    racks.hosts[7].ready = false;
    const GangVerdict verdict = racks.verdict("j");
    REQUIRE(verdict.placement);
    CHECK(verdict.placement->node_of_slot == HostNames{"h5", "h6", "h9", "h8"});
    CHECK(verdict.placement->domain_of_slot == HostNames(4, "b0/r1"));
    CHECK(verdict.placement->why == "3 of 4 stay where they were");
    // The node may have come back meanwhile.
    racks.hosts[7].ready = true;
    CHECK(racks.nodes("j") == gang.stood);
  }
  SUBCASE("a node that is left out is as good as lost") {
    gang.avoid = {"h5"};
    CHECK(racks.nodes("j") == HostNames{"h9", "h6", "h7", "h8"});
  }
  SUBCASE("and so is one that somebody else has taken, or that is not there") {
    api::Pod& other = racks.pods.emplace_back();
    other.node_name = "h6";
    other.requests.cpu_millis = 500;
    CHECK(racks.nodes("j") == HostNames{"h5", "h9", "h7", "h8"});
    gang.stood[1] = "h77";
    CHECK(racks.nodes("j") == HostNames{"h5", "h9", "h7", "h8"});
  }
  SUBCASE("a slot that had no place gets one beside the others") {
    gang.stood = {"h5", "", "h7", "h8"};
    CHECK(racks.nodes("j") == HostNames{"h5", "h6", "h7", "h8"});
    gang.count = gang.min = 5;  // more than stood
    CHECK(racks.nodes("j") == HostNames{"h5", "h6", "h7", "h8", "h9"});
    gang.count = gang.min = 2;
    gang.stood[1] = "h6";
    CHECK(racks.nodes("j") == HostNames{"h5", "h6"});
  }
  SUBCASE("where none has, or others find the nodes, it is placed like any other") {
    gang.stood = {"", "h77", "h78", ""};
    CHECK(racks.nodes("j") == HostNames{"h0", "h1", "h2", "h3"});
    gang.stood = {"h5", "h6", "h7", "h8"};
    gang.unplaced = true;
    CHECK(racks.nodes("j") == HostNames(4, ""));
  }
}

TEST_CASE("where nothing is known of the network, too, and it hears so") {
  TwoRacks racks;
  for (api::Node& host : racks.hosts) host.meta.labels.clear();
  racks.again("j", {"h5", "h6", "h7", "h8"});
  racks.lose(7);
  const GangVerdict verdict = racks.verdict("j");
  REQUIRE(verdict.placement);
  CHECK(verdict.placement->node_of_slot == HostNames{"h5", "h6", "h0", "h8"});
  CHECK(verdict.placement->domain_of_slot.empty());
  CHECK(verdict.placement->why.starts_with("3 of 4 stay where they were; no topology is known"));
}

TEST_CASE("within a required level all of a gang moves that has no room beside those who stay") {
  TwoRacks racks;
  WaitingGang& gang = racks.again("j", {"h5", "h6", "h7", "h8"});
  racks.lose(7);
  racks.lose(9);
  gang.required_level = "rack";
  CHECK(racks.nodes("j") == HostNames{"h0", "h1", "h2", "h3"});
  // What it could not keep is free for others.
  racks.again("k", {"", "", ""}).required_level = "rack";
  CHECK(racks.nodes("k") == HostNames{"h5", "h6", "h8"});
  racks.gangs.pop_back();
  // Those who would stay may not be in one place any more, as where the job asks for more now.
  racks.gangs[0].stood = {"h5", "h6", "h0", "h1"};
  CHECK(racks.nodes("j") == HostNames{"h0", "h1", "h2", "h3"});
}

TEST_CASE("a preferred level comes before the nodes where a gang stood, if it has room anywhere") {
  TwoRacks racks;
  WaitingGang& gang = racks.again("j", {"h5", "h6", "h7", "h8"});
  gang.preferred_level = "rack";
  racks.lose(7);
  racks.lose(9);
  SUBCASE("all move to a rack that has room for them") {
    CHECK(racks.nodes("j") == HostNames{"h0", "h1", "h2", "h3"});
    CHECK(racks.verdict("j").placement->domain_of_slot == HostNames(4, "b0/r0"));
    gang.stood = {"h5", "h6", "h0", "h1"};  // each has room, but not in one rack
    CHECK(racks.nodes("j") == HostNames{"h0", "h1", "h2", "h3"});
  }
  SUBCASE("where no rack has, those stay who can, and what was tried is free for others") {
    racks.lose(3);
    racks.lose(4);
    const GangVerdict verdict = racks.verdict("j");
    REQUIRE(verdict.placement);
    CHECK(verdict.placement->node_of_slot == HostNames{"h5", "h6", "h0", "h8"});
    CHECK(verdict.placement->why.starts_with("3 of 4 stay where they were"));
    racks.again("k", {"", ""});
    CHECK(racks.nodes("k") == HostNames{"h1", "h2"});
  }
  SUBCASE("nor does a rack count that has room for the least it may start with alone") {
    racks.lose(3);
    racks.lose(4);
    gang.min = 1;
    CHECK(racks.nodes("j") == HostNames{"h5", "h6", "h0", "h8"});
  }
  SUBCASE("a level that nobody knows is none") {
    for (api::Node& host : racks.hosts) host.meta.labels.clear();
    CHECK(racks.nodes("j") == HostNames{"h5", "h6", "h0", "h8"});
  }
  SUBCASE("without a wish those stay who can") {
    gang.preferred_level.clear();
    CHECK(racks.nodes("j") == HostNames{"h5", "h6", "h0", "h8"});
  }
}

TEST_CASE("who can stay where it stood does not hear why one that stood nowhere was refused") {
  TwoRacks racks;
  for (api::Node& host : racks.hosts) host.allocatable["cpu"] = 2000;
  racks.again("new", {"", ""}).stood.clear();
  racks.again("again", {"h0", "h1"});
  for (WaitingGang& gang : racks.gangs) gang.required_level = "rack";
  ClusterSnapshot snapshot;
  for (const auto& one : racks.hosts) snapshot.nodes.push_back(&one);
  Rooms rooms(snapshot);
  // Half of each node is kept for others: the tree counts whole nodes, but who stood there knows
  // that a half suffices.
  const NodeCaps caps(racks.hosts.size(), 1);
  CHECK_FALSE(place(racks.gangs[0], rooms, &caps).placement);
  const GangVerdict verdict = place(racks.gangs[1], rooms, &caps);
  REQUIRE(verdict.placement);
  CHECK(verdict.placement->node_of_slot == racks.gangs[1].stood);
}

TEST_CASE("slot 0 of a gang that starts again goes where its volume is") {
  TwoRacks racks;
  WaitingGang& gang = racks.again("j", {"h5", "h6", "h7", "h8"});
  gang.volumes.first_slot = NodeLimit::Names{"h0", "h9"};
  CHECK(racks.nodes("j") == HostNames{"h9", "h6", "h7", "h8"});
  racks.lose(9);
  CHECK(racks.nodes("j") == HostNames{"h0", "h6", "h7", "h8"});
  gang.required_level = "rack";
  CHECK(racks.nodes("j").front() == "h0");
  CHECK(racks.verdict("j").placement->domain_of_slot == HostNames(4, "b0/r0"));
  gang.required_level.clear();
  gang.volumes.one_node = "claim data is ReadWriteOnce";  // a host has room for one worker
  CHECK(racks.nodes("j").empty());
}

TEST_CASE("of two gangs that start again at once none holds what the other lacks") {
  TwoRacks racks;
  racks.again("a", {"h5", "h6", "h7", "h8"});
  racks.again("b", {"h0", "h1", "h2", "h3"});
  for (WaitingGang& gang : racks.gangs) gang.required_level = "rack";
  racks.lose(8);
  racks.lose(3);
  CHECK(racks.nodes("a") == HostNames{"h5", "h6", "h7", "h9"});
  CHECK(racks.nodes("b") == HostNames{"h0", "h1", "h2", "h4"});
  // One rack is left for both: the first has it, and the other waits without a place.
  racks.lose(9);
  CHECK(racks.nodes("a") == HostNames{"h0", "h1", "h2", "h4"});
  CHECK(racks.nodes("b").empty());
  // Each wants a node of the other's, which the first gets: the other finds one elsewhere.
  racks = TwoRacks();
  racks.again("a", {"h0", "h5"});
  racks.again("b", {"h5", "h0"});
  CHECK(racks.nodes("a") == HostNames{"h0", "h5"});
  CHECK(racks.nodes("b").size() == 2);
}

TEST_CASE("where a gang stood is in status from the restart to the next start") {
  auto job = test::make_job("j").workers(2).all_running();
  job.edit().gone_nodes = {"m"};
  job.edit().job.status.placement[1].node = job.edit().pods[1].node_name = "m";
  test::apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.placement.empty());
  CHECK(job.snapshot().job.status.last_nodes == HostNames{"n", "m"});
  CHECK(gang_of(job.snapshot().job).stood == HostNames{"n", "m"});
  CHECK(gang_of(job.snapshot().job, {{1}, {"n"}}).stood.empty());  // those that only join
  SUBCASE("which forgets it") {
    test::apply(job.edit(), job.plan());
    job.at(test::kNow + seconds(11)).fits_on("o");
    test::apply(job.edit(), job.plan());
    CHECK(job.snapshot().job.status.placement.size() == 2);
    CHECK(job.snapshot().job.status.last_nodes.empty());
  }
  SUBCASE("or to a suspension, which nobody knows the length of") {
    job.suspended_spec();
    test::apply(job.edit(), job.plan());
    CHECK(job.snapshot().job.status.last_nodes.empty());
  }
}
