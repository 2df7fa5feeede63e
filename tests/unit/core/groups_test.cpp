// Groups of a gang's workers that stay together: which slots they are, and where these go when the
// gang starts, when some of them join it, and when it starts again.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "operator/core/gang_place.h"
#include "operator/core/schedule.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::core;

namespace {

using Names = std::vector<std::string>;

/// Two blocks of two racks of two hosts, n0 to n7, with room for so many workers each.
struct GroupCluster {
  std::vector<api::Node> nodes;
  std::vector<WaitingGang> gangs{};

  explicit GroupCluster(const std::vector<int>& cpus) {
    for (std::size_t i = 0; i < cpus.size(); ++i) {
      api::Node& node = nodes.emplace_back();
      node.meta.name = "n" + std::to_string(i);
      node.meta.labels = {
          {"cloud.google.com/gce-topology-block", "b" + std::to_string(i / 4)},
          {"cloud.google.com/gce-topology-subblock", "r" + std::to_string(i / 2 % 2)}};
      node.ready = true;
      node.allocatable = {{"cpu", cpus[i] * 1000}, {"memory", std::int64_t{1} << 36}};
    }
  }
  WaitingGang& add(int workers, const std::vector<SlotGroups>& groups,
                   const std::string& name = "j") {
    WaitingGang& gang = gangs.emplace_back();
    gang.job = {"ns", name};
    gang.uid = name;
    gang.count = gang.min = workers;
    gang.per_worker.cpu_millis = 1000;
    gang.groups = groups;
    return gang;
  }
  GangVerdict verdict(const std::string& name = "j") const {
    ClusterSnapshot snapshot{{}, {}, {}, gangs};
    for (const auto& one : nodes) snapshot.nodes.push_back(&one);
    return core::schedule(snapshot).verdicts.at({"ns", name});
  }
  Names places(const std::string& name = "j") const {
    const GangVerdict found = verdict(name);
    return found.placement ? found.placement->node_of_slot : Names{};
  }
};

SlotGroups pairs(const std::string& level, bool is_required = true) {
  return {std::string("spec.topology.groups[0].") + (is_required ? "required" : "preferred"),
          "Tensor group", level, is_required, 2};
}
/// Slots with one of so many stages.
SlotGroups stages(int count, const std::string& level) {
  return {"spec.topology.groups[0].required", "Data group", level, true, 1, count};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

api::TrainingJob split_job(int workers, const Split& split, int processes = 1) {
  api::TrainingJob job = test::SnapshotBuilder("j").workers(workers).engine().snapshot().job;
  job.spec.worker.processes = processes;
  job.spec.training->split = split;
  return job;
}

}  // namespace

TEST_CASE("groups follow from how the model is split, and from the processes of a worker") {
  api::TrainingJob job = split_job(8, {2, 2});
  job.spec.topology_groups = {{"Data", "block", ""}, {"Tensor", "", "rack"}};
  const std::vector<SlotGroups> both = gang_of(job).groups;
  REQUIRE(both.size() == 2);
  CHECK(both[0] ==
        SlotGroups{"spec.topology.groups[1].required", "Tensor group", "rack", true, 2, 0});
  CHECK(both[1] ==
        SlotGroups{"spec.topology.groups[0].preferred", "Data group", "block", false, 2, 4});
  CHECK(both[0].size(8) == 2);
  CHECK(both[1].size(8) == 4);
  CHECK(slots_by_group(both, 8) == std::vector<int>{0, 1, 4, 5, 2, 3, 6, 7});
  job.spec.topology_groups = {{"Pipeline", "", "rack"}};
  CHECK(gang_of(job).groups.at(0).size(8) == 4);
  // A worker with two processes has both slices of a stage, one with four a copy.
  job = split_job(4, {2, 2}, 2);
  job.spec.topology_groups = {{"Tensor", "", "rack"}};
  CHECK(gang_of(job).groups.empty());
  job.spec.topology_groups = {{"Data", "", "rack"}};
  CHECK(slots_by_group(gang_of(job).groups, 4) == std::vector<int>{0, 2, 1, 3});
  job = split_job(4, {2, 2}, 4);
  job.spec.topology_groups = {{"Data", "", "rack"}};
  CHECK(gang_of(job).groups.at(0).size(4) == 4);
  job.spec.topology_groups = {{"Pipeline", "", "rack"}};
  CHECK(gang_of(job).groups.empty());
  job.spec.topology_groups.clear();
  job.meta.annotations = {{"kueue.x-k8s.io/podset-slice-required-topology", "example.com/rack"},
                          {"kueue.x-k8s.io/podset-slice-size", "2"}};
  CHECK(gang_of(job).groups.at(0).size(4) == 2);
  CHECK(gang_of(job).groups.at(0).level == "example.com/rack");
}

TEST_CASE("slots of a group are within one domain, or the gang waits") {
  GroupCluster cluster({2, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack")});
  const GangVerdict fits = cluster.verdict();
  REQUIRE(fits.placement);
  CHECK(fits.placement->node_of_slot == Names{"n0", "n0", "n2", "n2"});
  CHECK(says(fits.placement->why, "; every Tensor group (2) is within one rack"));
  gang.groups = {stages(2, "rack")};
  CHECK(cluster.places() == Names{"n0", "n2", "n0", "n2"});
  gang.groups = {pairs("rack")};
  gang.count = gang.min = 6;
  CHECK(says(cluster.verdict().why_not,
             "each 2 within one rack (spec.topology.groups[0].required); there is room for 4 so"));
  // As many whole copies as there is room for.
  gang.min = gang.together = 2;
  CHECK(cluster.places().size() == 4);
  gang.groups.clear();
  CHECK(cluster.places().size() == 6);
}

TEST_CASE("a gang without groups does not hear what one with groups was refused with") {
  GroupCluster cluster({2, 1, 2, 1, 0, 0, 0, 0});
  cluster.add(6, {pairs("rack")}, "a");
  cluster.add(6, {}, "b");
  CHECK(cluster.places("a").empty());
  CHECK(cluster.places("b").size() == 6);
}

TEST_CASE("groups that are preferred are kept where there is room, and else it is told") {
  GroupCluster cluster({2, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack", false)});
  CHECK(says(cluster.verdict().placement->why, "every Tensor group (2) is within one rack"));
  gang.count = gang.min = 6;
  const GangVerdict split = cluster.verdict();
  REQUIRE(split.placement);
  CHECK(split.placement->node_of_slot == Names{"n0", "n0", "n1", "n2", "n2", "n3"});
  CHECK(says(split.placement->why,
             "2 of 3 Tensor groups are within one rack (spec.topology.groups[0].preferred)"));
  gang.groups = {pairs("row", false)};
  CHECK(says(cluster.verdict().placement->why, "spec.topology.groups[0].preferred is row, and no"));
  gang.groups = {pairs("row")};
  CHECK(says(cluster.verdict().why_not, "spec.topology.groups[0].required is row, and no node"));
}

TEST_CASE("where pods go without Muster groups cannot be required") {
  GroupCluster cluster({2, 2, 2, 2});
  WaitingGang& gang = cluster.add(4, {pairs("rack")});
  gang.unplaced = true;
  CHECK(cluster.verdict().why_not.starts_with(
      "spec.topology.groups[0].required needs scheduling: Placed"));
  // The one that has to go is named.
  gang.groups = {pairs("rack", false), pairs("rack")};
  gang.groups[1].field = "spec.topology.groups[1].required";
  CHECK(cluster.verdict().why_not.starts_with("spec.topology.groups[1].required needs"));
  gang.groups = {pairs("rack", false)};
  CHECK(cluster.places() == Names(4, ""));
}

TEST_CASE("groups are kept where nodes may be taken in part alone") {
  GroupCluster cluster({2, 2, 2, 2});
  ClusterSnapshot snapshot;
  for (const auto& one : cluster.nodes) snapshot.nodes.push_back(&one);
  Rooms rooms(snapshot);
  NodeCaps caps(cluster.nodes.size(), 1);
  WaitingGang& gang = cluster.add(4, {pairs("host")});
  CHECK_FALSE(place(gang, rooms, &caps).placement);
  gang.count = gang.min = 2;
  caps[3] = 2;
  const GangVerdict verdict = place(gang, rooms, &caps);
  REQUIRE(verdict.placement);
  CHECK(verdict.placement->node_of_slot == Names{"n3", "n3"});
  // Those that join are held back alike.
  gang.wish = {{2, 3}, {"n3"}, false};
  gang.stands = {{0, "n3"}, {1, "n3"}};
  caps[2] = 2;
  CHECK(place(gang, rooms, &caps).placement->node_of_slot == Names{"n2", "n2"});
}

TEST_CASE("all on one node for a claim's sake is within any level") {
  GroupCluster cluster({2, 1, 4, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("row")});
  gang.volumes.one_node = "claim data is ReadWriteOnce";
  CHECK(cluster.places() == Names(4, "n2"));
}

TEST_CASE("slot 0 is in the group that stands where its volume is") {
  GroupCluster cluster({2, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack")});
  gang.volumes.first_slot = NodeLimit::Names{"n3"};
  CHECK(cluster.places() == Names{"n3", "n2", "n0", "n0"});
  gang.groups = {stages(2, "rack")};
  CHECK(cluster.places() == Names{"n3", "n0", "n2", "n0"});
  cluster.nodes[3].ready = false;
  CHECK(says(cluster.verdict().why_not, "volume of its checkpoint (n3)"));
  // The one with the volume has room, but not for a whole group around it.
  cluster.nodes[3].ready = true;
  cluster.nodes[2].ready = false;
  gang.count = gang.min = 2;
  gang.groups = {pairs("rack")};
  CHECK(says(cluster.verdict().why_not, "volume of its checkpoint (n3)"));
}

TEST_CASE("a preferred host without slot 0's volume does not take groups apart") {
  GroupCluster cluster({4, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack")});
  gang.preferred_level = "host";
  CHECK(cluster.places() == Names(4, "n0"));
  gang.volumes.first_slot = NodeLimit::Names{"n3"};
  CHECK(cluster.places() == Names{"n3", "n2", "n0", "n0"});
}

TEST_CASE("slot 0 that joins with its group is where its volume is") {
  GroupCluster cluster({1, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(2, {pairs("rack")});
  gang.wish = {{0, 1}, {"n2"}, false};
  gang.stands = {{2, "n2"}, {3, "n2"}};
  gang.volumes.first_slot = NodeLimit::Names{"n1"};
  CHECK(cluster.places() == Names{"n1", "n0"});
  cluster.nodes[1].ready = false;
  CHECK(says(cluster.verdict().why_not, "volume of its checkpoint (n1)"));
}

TEST_CASE("who joins stands in the narrowest of its groups' places, whichever kind that is of") {
  GroupCluster cluster({2, 2, 0, 0, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(1, {pairs("block"), pairs("rack")});
  gang.groups[1].each = 4;
  gang.wish = {{0}, {"n2"}, false};
  gang.stands = {{1, "n2"}, {2, "n2"}, {3, "n2"}};
  CHECK(cluster.places().empty());
  cluster.nodes[3].allocatable["cpu"] = 1000;
  CHECK(cluster.places() == Names{"n3"});
}

TEST_CASE("of a copy that joins the smaller groups are kept where the larger need not be") {
  GroupCluster cluster({0, 0, 1, 0, 2, 0, 0, 0, 2, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack", false), pairs("block", false)});
  gang.groups[1].each = 4;
  gang.wish = {{4, 5, 6, 7}, {"n0"}, false};
  gang.stands = {{0, "n0"}, {1, "n0"}, {2, "n0"}, {3, "n0"}};
  CHECK(cluster.places() == Names{"n4", "n4", "n8", "n8"});
}

TEST_CASE("where one of a copy comes later, the pairs of the others are whole") {
  GroupCluster cluster({0, 0, 0, 0, 2, 0, 2, 0});
  WaitingGang& gang = cluster.add(3, {pairs("rack"), pairs("block")});
  gang.groups[1].each = 4;
  gang.wish = {{4, 6, 7}, {"n0"}, false};
  gang.stands = {{0, "n0"}, {1, "n0"}, {2, "n0"}, {3, "n0"}};
  CHECK(cluster.places() == Names{"n4", "n6", "n6"});
}

TEST_CASE("a lost worker's place is taken beside the others of its group, or waited for") {
  GroupCluster cluster({1, 1, 2, 1, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(1, {pairs("rack")});
  gang.wish = {{1}, {"n0", "n2"}, false};
  gang.stands = {{0, "n0"}, {2, "n2"}, {3, "n2"}};
  CHECK(cluster.places() == Names{"n0"});
  cluster.nodes[0].ready = false;
  CHECK(cluster.places() == Names{"n1"});
  cluster.nodes[1].ready = false;
  CHECK(cluster.verdict().why_not ==
        "needs 1 x {cpu 1, memory 512Mi} beside the others of its Tensor group, within one rack "
        "(spec.topology.groups[0].required), and there is no room now");
  gang.groups = {pairs("rack", false)};
  CHECK(cluster.places() == Names{"n3"});
  // The gang's own level holds for those, too.
  gang.required_level = "rack";
  CHECK(says(cluster.verdict().why_not,
             "the others of its gang, within one rack (spec.topology.required)"));
}

TEST_CASE("workers of one stage join the others of it, each in its own rack") {
  GroupCluster cluster({2, 0, 2, 0, 0, 0, 0, 0});
  WaitingGang& gang = cluster.add(2, {stages(2, "rack")});
  gang.together = 2;
  gang.wish = {{4, 5}, {"n0", "n2"}, false};
  gang.stands = {{0, "n0"}, {1, "n2"}, {2, "n0"}, {3, "n2"}};
  CHECK(cluster.places() == Names{"n0", "n2"});
  CHECK(cluster.verdict().placement->domain_of_slot == Names{"b0/r0", "b0/r1"});
  cluster.nodes[2].ready = false;  // half a copy is of no use, and takes nothing
  CHECK(cluster.places().empty());
  cluster.add(2, {}, "k");
  CHECK(cluster.places("k") == Names{"n0", "n0"});
}

TEST_CASE(
    "a group of which nobody stands joins as a whole, as near to the others as there is room") {
  GroupCluster cluster({1, 0, 1, 0, 1, 1, 0, 0});
  WaitingGang& gang = cluster.add(2, {pairs("rack")});
  gang.wish = {{2, 3}, {"n0"}, false};
  gang.stands = {{0, "n0"}, {1, "n0"}};
  CHECK(cluster.places() == Names{"n4", "n5"});
  gang.stands = {{0, "n5"}, {1, "n5"}};
  cluster.nodes[0].allocatable["cpu"] = 2000;
  CHECK(cluster.places() == Names{"n4", "n5"});
  gang.stands = {{0, "n0"}, {1, "n0"}};
  cluster.nodes[0].allocatable["cpu"] = 1000;
  cluster.nodes[3].allocatable["cpu"] = 1000;
  CHECK(cluster.places() == Names{"n2", "n3"});
  // Within the copy's block, where that is asked for as well.
  SlotGroups copies = pairs("block");
  copies.each = 4;
  gang.groups.push_back(copies);
  CHECK(cluster.places() == Names{"n2", "n3"});
  cluster.nodes[3].ready = false;
  CHECK(cluster.places().empty());
}

TEST_CASE("of a gang that starts again groups move as a whole, or all of it") {
  GroupCluster cluster({1, 1, 2, 1, 2, 0, 0, 0});
  WaitingGang& gang = cluster.add(4, {pairs("rack")});
  gang.stood = {"n0", "n1", "n2", "n2"};
  CHECK(cluster.places() == gang.stood);
  SUBCASE("both of a pair are lost") {
    cluster.nodes[0].ready = cluster.nodes[1].ready = false;
    const GangVerdict verdict = cluster.verdict();
    REQUIRE(verdict.placement);
    CHECK(verdict.placement->node_of_slot == Names{"n4", "n4", "n2", "n2"});
    CHECK(verdict.placement->why ==
          "2 of 4 stay where they were; every Tensor group (2) is within one rack");
  }
  SUBCASE("one of a pair, beside which there is no room") {
    cluster.nodes[1].ready = false;
    CHECK(cluster.places() == Names{"n2", "n2", "n4", "n4"});
  }
  SUBCASE("those who stay are in groups that are no longer whole") {
    gang.stood = {"n0", "n2", "n1", "n2"};
    CHECK(cluster.places() == Names{"n0", "n1", "n2", "n2"});
  }
}

TEST_CASE("who joins a gang with groups knows where each of the others stands") {
  api::TrainingJob job = split_job(4, {1, 2});
  job.spec.topology_groups = {{"Data", "", "rack"}};
  job.status.placement = {{0, 0, "a", ""}, {1, 0, "b", ""}, {2, 0, "c", ""}, {3, 0, "d", ""}};
  const WaitingGang gang = gang_of(job, {{1}, {"a", "c"}});
  CHECK(gang.stands == std::map<int, std::string>{{0, "a"}, {2, "c"}});
  CHECK(gang_of(job).stands.empty());
}
