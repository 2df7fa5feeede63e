#include "operator/core/volumes.h"

#include <doctest/doctest.h>

#include "common/rng.h"
#include "operator/core/node_terms.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

namespace {

api::Node node(const std::string& name, const std::string& rack) {
  api::Node made;
  made.meta.name = name;
  made.meta.labels = {{"kubernetes.io/hostname", name}, {"rack", rack}, {"size", "8"}};
  return made;
}

struct Storage {
  std::vector<api::Node> nodes{node("n1", "r1"), node("n2", "r2"), node("n3", "r2")};
  std::vector<api::PersistentVolume> volumes;
  std::vector<api::PersistentVolumeClaim> claims;

  StorageSnapshot snapshot() const {
    StorageSnapshot snapshot;
    for (const auto& one : nodes) snapshot.nodes.push_back(&one);
    for (const auto& one : volumes) snapshot.volumes.push_back(&one);
    for (const auto& one : claims) snapshot.claims[one.meta.key()] = &one;
    return snapshot;
  }
  VolumeLimits limits(const api::TrainingJob& job) const {
    return VolumeReach(snapshot()).limits(job);
  }
};

api::TrainingJob job_with(const std::string& checkpoint, const std::string& worker = "") {
  api::TrainingJob job;
  job.meta.namespace_name = "ns";
  job.spec.training.emplace();
  job.spec.training->checkpoint.emplace();
  job.spec.training->checkpoint->volume_claim_name = checkpoint;
  if (!worker.empty()) {
    job.spec.worker.pod_fields["volumes"] =
        Json::array({{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", worker}}}},
                     {{"name", "tmp"}, {"emptyDir", Json::object()}}});
  }
  return job;
}

api::PersistentVolume volume(const std::string& name, const std::string& rack) {
  api::PersistentVolume made;
  made.meta.name = name;
  made.storage_class = "local";
  made.capacity_bytes = 100;
  made.phase = "Available";
  made.is_reachable_by_all = false;
  made.nodes = {{{{"rack", "In", {rack}}}, {}}};
  return made;
}

api::PersistentVolumeClaim claim(const std::string& name, const std::string& bound_to = "") {
  api::PersistentVolumeClaim made;
  made.meta.name = name;
  made.meta.namespace_name = "ns";
  made.storage_class = "local";
  made.request_bytes = 100;
  made.volume_name = bound_to;
  made.phase = bound_to.empty() ? "Pending" : "Bound";
  return made;
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("a job without claims may stand anywhere") {
  CHECK(Storage{}.limits(job_with("")) == VolumeLimits{});
}

TEST_CASE("a claim that is not there is told by name, with the field") {
  CHECK(Storage{}.limits(job_with("digits")).why_not ==
        "there is no PersistentVolumeClaim digits in namespace ns "
        "(spec.training.checkpoint.volumeClaimName); create it");
}

TEST_CASE("slot 0 follows the bound volume of its checkpoint, the others need not") {
  Storage storage;
  storage.volumes = {volume("v1", "r1"), volume("v2", "r2")};
  storage.claims = {claim("digits", "v2")};
  const VolumeLimits limits = storage.limits(job_with("digits"));
  CHECK(limits.first_slot == Names{"n2", "n3"});
  CHECK_FALSE(limits.every_slot);
  CHECK(limits.why_not.empty());
}

TEST_CASE("a waiting claim may take any free volume of its class that is large enough") {
  Storage storage;
  storage.volumes = {volume("v1", "r1"), volume("small", "r2"), volume("other", "r2"),
                     volume("taken", "r2"), volume("bound", "r2")};
  storage.volumes[1].capacity_bytes = 99;
  storage.volumes[2].storage_class = "fast";
  storage.volumes[3].claim = {"ns", "another"};
  storage.volumes[4].phase = "Bound";
  storage.claims = {claim("digits")};
  CHECK(storage.limits(job_with("digits")).first_slot == Names{"n1"});
}

TEST_CASE("without a volume to take, a provisioner is expected to make one anywhere") {
  Storage storage;
  storage.claims = {claim("digits")};
  CHECK(storage.limits(job_with("digits")) == VolumeLimits{});
}

TEST_CASE("a volume that every node reaches limits nothing") {
  Storage storage;
  storage.volumes = {volume("v1", "r1")};
  storage.volumes[0].is_reachable_by_all = true;
  storage.claims = {claim("digits", "v1")};
  CHECK(storage.limits(job_with("digits")) == VolumeLimits{});
}

TEST_CASE("claims of all workers limit all slots, slot 0 by both") {
  Storage storage;
  storage.volumes = {volume("v1", "r1"), volume("v2", "r2")};
  storage.volumes[0].nodes.push_back(
      {{}, {{"metadata.name", "In", {"n3"}}}});  // rack r1, or node n3
  storage.claims = {claim("digits", "v1"), claim("data", "v2")};
  const VolumeLimits limits = storage.limits(job_with("digits", "data"));
  CHECK(limits.every_slot == Names{"n2", "n3"});
  CHECK(limits.first_slot == Names{"n3"});
  storage.volumes[0].nodes.pop_back();
  CHECK(storage.limits(job_with("digits", "data")).why_not ==
        "no node reaches all of its volumes (spec.training.checkpoint.volumeClaimName)");
}

TEST_CASE("a claim of all workers that one node alone can have keeps them on one") {
  Storage storage;
  storage.claims = {claim("data")};
  const auto one_node = [&] { return storage.limits(job_with("", "data")).one_node; };
  CHECK(one_node().empty());  // nothing is known of it
  const std::string why = "claim data is ReadWriteOnce (spec.worker.volumes)";
  storage.claims[0].access_modes = {"ReadWriteOnce"};
  CHECK(one_node() == why);
  for (const char* more : {"ReadWriteMany", "ReadOnlyMany"}) {
    storage.claims[0].access_modes = {"ReadWriteOnce", more};
    CHECK(one_node().empty());
  }
  // Slot 0 alone mounts the checkpoint's.
  storage.claims[0].access_modes = {"ReadWriteOnce"};
  CHECK(storage.limits(job_with("data")) == VolumeLimits{});
}

TEST_CASE("of a bound claim the volume says how many nodes can have it") {
  Storage storage;
  storage.claims = {claim("data", "v")};
  storage.claims[0].access_modes = {"ReadWriteOnce"};
  storage.volumes = {volume("v", "r2")};
  const auto one_node = [&] { return storage.limits(job_with("", "data")).one_node; };
  CHECK_FALSE(one_node().empty());
  storage.volumes[0].access_modes = {"ReadWriteOnce", "ReadWriteMany"};
  CHECK(one_node().empty());
  storage.volumes[0].access_modes = {"ReadWriteOnce"};
  CHECK_FALSE(one_node().empty());
  storage.volumes[0].is_attached = false;
  CHECK(one_node().empty());
}

TEST_CASE("a claim of one pod alone is none of several workers") {
  Storage storage;
  storage.claims = {claim("data")};
  storage.claims[0].access_modes = {"ReadWriteOncePod"};
  api::TrainingJob job = job_with("", "data");
  CHECK(storage.limits(job).why_not.empty());
  job.spec.worker.max = 4;
  CHECK(storage.limits(job).why_not ==
        "claim data is ReadWriteOncePod, for one pod alone, and up to 4 workers mount it "
        "(spec.worker.volumes)");
  CHECK(storage.limits(job_with("data")).why_not.empty());
}

TEST_CASE("a claim that can never be mounted is told") {
  Storage storage;
  storage.claims = {claim("digits", "gone")};
  CHECK(
      storage.limits(job_with("digits")).why_not.find("bound to volume gone, which is not there") !=
      std::string::npos);
  storage.claims[0].phase = "Lost";
  CHECK(storage.limits(job_with("digits")).why_not.find("has lost its volume gone") !=
        std::string::npos);
  storage.claims[0].meta.deletion_time = WallTime{};
  CHECK(storage.limits(job_with("digits")).why_not.find("is being deleted") != std::string::npos);
  storage.claims = {claim("digits", "v9")};
  storage.volumes = {volume("v9", "r9")};
  CHECK(storage.limits(job_with("digits")).why_not.find("no node of the cluster reaches") !=
        std::string::npos);
}

TEST_CASE("jobs whose volumes reach the same nodes share their names") {
  Storage storage;
  storage.volumes = {volume("v1", "r2"), volume("v2", "r2"), volume("v3", "r1"),
                     volume("v4", "r1")};
  storage.volumes[3].nodes.push_back(storage.volumes[0].nodes.front());
  storage.claims = {claim("a", "v1"), claim("b", "v2"), claim("c", "v3"), claim("d", "v4")};
  VolumeReach reach(storage.snapshot());
  const NodeLimit a = reach.limits(job_with("a")).first_slot;
  const NodeLimit b = reach.limits(job_with("b", "a")).first_slot;
  CHECK(*a == Names{"n2", "n3"});
  CHECK(&*a == &*b);
  CHECK(*reach.limits(job_with("c")).first_slot == Names{"n1"});
  CHECK(*reach.limits(job_with("d")).first_slot == Names{"n1", "n2", "n3"});
  CHECK(reach.limits(job_with("c", "a")).why_not.find("no node reaches all") != std::string::npos);
}

TEST_CASE("of thousands of volumes that lie on one node each none asks all nodes") {
  constexpr int kMany = 2000;
  Storage storage;
  storage.nodes.clear();
  Names all;
  for (int i = 0; i < kMany; ++i) {
    const std::string name = "node-" + std::to_string(i);
    all.insert(name);
    storage.nodes.push_back(node(name, "r"));
    api::PersistentVolume& local = storage.volumes.emplace_back(volume("v-" + name, ""));
    local.nodes = {{{{"kubernetes.io/hostname", "In", {name}}}, {}}};
  }
  storage.volumes[0].claim = {"ns", "named"};
  storage.volumes[1].claim = {"ns", "bound"};
  storage.volumes[1].phase = "Bound";
  storage.claims = {claim("any"), claim("too"), claim("large"), claim("named"),
                    claim("bound", "v-node-1")};
  storage.claims[2].request_bytes = 101;
  VolumeReach reach(storage.snapshot());
  const auto of = [&](const char* name) { return reach.limits(job_with(name)).first_slot; };
  const NodeLimit any = of("any"), too = of("too"), named = of("named");
  CHECK(any->size() == kMany - 2);
  CHECK_FALSE(any.allows("node-0"));
  CHECK(&*any == &*too);
  // It may have the one that names it, too.
  CHECK(named->size() == kMany - 1);
  CHECK(named.allows("node-0"));
  CHECK_FALSE(of("large"));
  CHECK(*of("bound") == Names{"node-1"});
  CHECK(reach.nodes_asked() <= kMany);
}

TEST_CASE("over random terms: a volume reaches the nodes that its terms select") {
  Rng rng(test::seed());
  const auto pick = [&](std::vector<std::string> of) { return of[rng.below(of.size())]; };
  for (int round = 0; round < 200; ++round) {
    Storage storage;
    for (api::Node& one : storage.nodes) {
      one.meta.labels["rack"] = pick({"r1", "r2"});
      if (rng.below(3) == 0) one.meta.labels.erase("size");
    }
    api::PersistentVolume& local = storage.volumes.emplace_back(volume("v", ""));
    local.nodes.clear();
    for (std::uint64_t terms = rng.below(3); terms > 0; --terms) {
      api::NodeTerm& term = local.nodes.emplace_back();
      for (std::uint64_t all = rng.below(3); all > 0; --all) {
        term.labels.push_back({pick({"rack", "size", "kubernetes.io/hostname"}),
                               pick({"In", "In", "NotIn", "Exists"}),
                               {pick({"r1", "r2", "8", "n1"}), pick({"r1", "8", "n2"})}});
      }
      if (rng.below(4) == 0) term.fields = {{"metadata.name", "NotIn", {"n3"}}};
    }
    storage.claims = {claim("digits", "v")};
    Names selected;
    for (const api::Node& one : storage.nodes) {
      if (selects(local.nodes, one)) selected.insert(one.meta.name);
    }
    const VolumeLimits limits = storage.limits(job_with("digits"));
    CHECK(limits.why_not.empty() == !selected.empty());
    if (!selected.empty()) CHECK(limits.first_slot == selected);
  }
}

TEST_CASE("limits of nodes are equal where their names are") {
  const NodeLimit any, none(Names{}), one(Names{"a"}), same(Names{"a"}), other(Names{"b"});
  CHECK(any == NodeLimit());
  CHECK(any != none);
  CHECK(any < none);
  CHECK(one == same);
  CHECK(one < other);
  CHECK(any.allows("a"));
  CHECK_FALSE(none.allows("a"));
  CHECK(one.allows("a"));
}

TEST_CASE("node requirements mean what the API server means by them") {
  const auto reach = [](api::NodeRequirement requirement) {
    Storage storage;
    storage.nodes[0].meta.labels.erase("size");
    storage.nodes[1].meta.labels["size"] = "big";
    storage.volumes = {volume("v", "")};
    storage.volumes[0].nodes = {{{std::move(requirement)}, {}}};
    storage.claims = {claim("digits", "v")};
    const NodeLimit limit = storage.limits(job_with("digits")).first_slot;
    return limit ? *limit : Names{};
  };
  CHECK(reach({"size", "Exists", {}}) == Names{"n2", "n3"});
  CHECK(reach({"size", "DoesNotExist", {}}) == Names{"n1"});
  CHECK(reach({"size", "In", {"8", "9"}}) == Names{"n3"});
  CHECK(reach({"size", "NotIn", {"8"}}) == Names{"n1", "n2"});
  CHECK(reach({"size", "Gt", {"7"}}) == Names{"n3"});
  CHECK(reach({"size", "Gt", {"8"}}) == Names{});
  CHECK(reach({"size", "Lt", {"9"}}) == Names{"n3"});
  CHECK(reach({"size", "Lt", {"9", "10"}}) == Names{});
  CHECK(reach({"size", "Near", {"8"}}) == Names{});
  const auto reach_by_name = [](const std::string& op, std::vector<std::string> names) {
    Storage storage;
    storage.volumes = {volume("v", "")};
    storage.volumes[0].nodes = {{{}, {{"metadata.name", op, std::move(names)}}}};
    storage.claims = {claim("digits", "v")};
    const NodeLimit limit = storage.limits(job_with("digits")).first_slot;
    return limit ? *limit : Names{};
  };
  CHECK(reach_by_name("In", {"n2"}) == Names{"n2"});
  CHECK(reach_by_name("NotIn", {"n1"}) == Names{"n2", "n3"});
  Storage none;
  none.volumes = {volume("v", "")};
  none.volumes[0].nodes = {{}};
  none.claims = {claim("digits", "v")};
  CHECK_FALSE(none.limits(job_with("digits")).why_not.empty());
}
