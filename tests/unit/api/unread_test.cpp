#include "operator/api/unread.h"

#include <doctest/doctest.h>

#include "operator/api/pod.h"
#include "tests/test_main.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

Json parse_read(Kind kind, const Json& object) {
  const auto parsed = parse_json(dump_json(object), unread_of(kind));
  REQUIRE(parsed);
  return *parsed;
}

/// As kubelet and API server leave it: with all that parse_pod reads, and what it does not.
Json running_pod() {
  TrainingJob job = *parse_training_job(full_program_job());
  job.status.queue = "research";
  Json pod = to_json(make_pod(job, {1, 2, "node-1", ""}, PodOptions{}));
  pod["metadata"]["managedFields"] = Json::array({{{"manager", "muster"}}});
  pod["metadata"]["labels"]["env"] = "volumes";
  pod["metadata"]["annotations"]["image"] = "tolerations";
  pod["spec"]["nodeName"] = "node-1";
  pod["spec"]["schedulingGates"] = Json::array({{{"name", "kueue.x-k8s.io/admission"}}});
  pod["spec"]["initContainers"] = pod["spec"]["containers"];
  const Json terminated{{"exitCode", 3}, {"reason", "Error"}, {"message", "no data"}};
  pod["status"] = {{"phase", "Failed"},
                   {"podIP", "10.1.2.3"},
                   {"podIPs", Json::array({{{"ip", "10.1.2.3"}}})},
                   {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}},
                                               {{"type", "DisruptionTarget"},
                                                {"status", "True"},
                                                {"reason", "EvictionByEvictionAPI"},
                                                {"message", "volumes"}}})},
                   {"initContainerStatuses",
                    Json::array({{{"name", "proxy"}, {"state", {{"waiting", Json::object()}}}}})},
                   {"containerStatuses", Json::array({{{"name", "worker"},
                                                       {"image", "worker:1"},
                                                       {"imageID", "sha256:1"},
                                                       {"lastState", {{"terminated", terminated}}},
                                                       {"state", {{"terminated", terminated}}}}})}};
  return pod;
}

}  // namespace

TEST_CASE("what is left out of a pod nobody reads, and the rest is less than half of it") {
  const Json whole = running_pod();
  const Json read = parse_read(Kind::kPod, whole);
  const auto pod = parse_pod(read);
  REQUIRE(pod);
  Pod expected = *parse_pod(whole);
  CHECK(expected.meta.labels.size() > 2);
  expected.meta.labels = {
      {"muster.dev/slot", "1"}, {"muster.dev/attempt", "2"}, {"muster.dev/queue", "research"}};
  expected.meta.annotations.clear();
  CHECK(*pod == expected);
  CHECK(pod->requests.cpu_millis > 0);
  CHECK(pod->required_node == "node-1");
  CHECK(pod->held_by_kueue);
  CHECK(pod->is_disrupted);
  CHECK(pod->termination->exit_code == 3);
  CHECK(pod->image_id == "sha256:1");
  CHECK(dump_json(read).size() * 2 < dump_json(whole).size());
}

TEST_CASE("no list or text that a tenant can write into a pod is kept but for its requests") {
  const std::string text(100'000, 'x');
  const Json texts = Json::array({text});
  const Json ports = std::vector<Json>(50'000, Json{{"name", "a"}});
  const Json filler{{"name", "c"},
                    {"image", text},
                    {"command", texts},
                    {"args", texts},
                    {"workingDir", text},
                    {"env", texts},
                    {"ports", ports},
                    {"resizePolicy", texts},
                    {"resources", {{"limits", {{"a/b", text}}}, {"claims", texts}}}};
  const std::vector<Json> terms(50'000, Json::object());
  const Json affinity{
      {"podAffinity", texts},
      {"nodeAffinity",
       {{"preferredDuringSchedulingIgnoredDuringExecution", texts},
        {"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", terms}}}}}};
  Json pod{{"metadata", {{"name", "p"}}},
           {"spec",
            {{"containers", Json::array({filler})},
             {"initContainers", Json::array({filler})},
             {"ephemeralContainers", Json::array({filler})},
             {"affinity", affinity},
             {"nodeSelector", {{"a", text}}},
             {"hostAliases", texts},
             {"dnsConfig", texts},
             {"readinessGates", texts},
             {"resourceClaims", texts},
             {"subdomain", text}}}};
  CHECK(dump_json(parse_read(Kind::kPod, pod)).size() < 400);
}

TEST_CASE("what is left out of a node nobody reads") {
  Node node;
  node.meta.name = "node-1";
  node.meta.labels["images"] = "capacity";
  node.ready = true;
  node.taints.push_back({"spot", "true", "NoSchedule"});
  node.allocatable = {{"cpu", 4000}, {"memory", 1 << 30}};
  Json whole = to_json(node);
  whole["metadata"]["annotations"] = {{"muster.dev/pcie", "{}"}};
  const Node expected = *parse_node(whole);
  whole["metadata"]["annotations"]["theirs"] = std::string(100'000, 'x');
  whole["status"]["images"] = Json::array({{{"names", Json::array({"worker:1"})}}});
  const Json read = parse_read(Kind::kNode, whole);
  CHECK_FALSE(read["status"].contains("images"));
  CHECK(*parse_node(read) == expected);
  CHECK(parse_node(read)->allocatable == node.allocatable);
}

TEST_CASE("of a job everything is read but who wrote what, and a copy of it") {
  Json whole = full_training_job();
  whole["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = "rack";
  const Json read = parse_read(Kind::kTrainingJob, whole);
  CHECK(read == whole);
  whole["metadata"]["managedFields"] = Json::array({1});
  whole["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "{}";
  CHECK(parse_read(Kind::kTrainingJob, whole) == read);
}

TEST_CASE("the annotations and labels of what tenants make are not kept") {
  const std::string long_text(100'000, 'x');
  for (const Kind kind : {Kind::kPod, Kind::kPersistentVolumeClaim, Kind::kKueueWorkload}) {
    const Json meta{{"name", "p"}, {"labels", {{"a", "b"}}}, {"annotations", {{"a", long_text}}}};
    const Json read = parse_read(kind, Json{{"metadata", meta}});
    CHECK(dump_json(read).size() < 100);
  }
}

TEST_CASE("the end of a watched list is told of every kind") {
  const Json ends{{"k8s.io/initial-events-end", "true"}};
  const Json line{{"type", "BOOKMARK"}, {"object", {{"metadata", {{"annotations", ends}}}}}};
  for (int kind = 0; kind <= static_cast<int>(Kind::kKueueWorkload); ++kind) {
    CHECK(parse_read(static_cast<Kind>(kind), line) == line);
  }
}
