// Sidecars: spec.worker.initContainers that stay beside the worker.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "operator/api/pod.h"
#include "operator/api/unread.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

TEST_CASE("a sidecar comes on top of the worker, and of what starts after it") {
  const PodOptions options{"https://10.0.0.1:9443", "PEM", "muster-worker:1"};
  Json json = least_program_job();
  Json& worker = json["spec"]["worker"];
  const auto requests = [&](const char* containers) {
    worker["initContainers"] = *parse_json(containers);
    const TrainingJob job = *parse_training_job(json);
    const Pod pod = make_pod(job, {0, 0, "n", ""}, options);
    CHECK(check_restricted(pod));
    CHECK(pod.requests == PodRequests(pod_resources(job.spec.worker)));
    // As the scheduler and the kubelet read it.
    CHECK(parse_pod(to_json(pod))->requests == pod.requests);
    return std::pair(pod.requests.cpu_millis, pod.requests.memory_bytes >> 20);
  };
  using Sums = std::pair<std::int64_t, std::int64_t>;
  worker["resources"] = Json{{"cpu", "2"}, {"memory", "1Gi"}, {"ephemeralStorage", "1Gi"}};
  const std::string tail = R"({"name": "tail", "image": "a", "restartPolicy": "Always",
    "resources": {"cpu": "100m", "memory": "64Mi", "ephemeralStorage": "2Gi"}})";
  const std::string send = R"({"name": "send", "image": "a", "restartPolicy": "Always",
    "resources": {"cpu": "10m", "memory": "8Mi"}})";
  const std::string fetch =
      R"({"name": "fetch", "image": "a", "resources": {"cpu": "3", "memory": "16Mi"}})";
  CHECK(requests(("[" + tail + "," + send + "]").c_str()) == Sums(2110, 1096));
  // What runs before the worker has those beside it that began before it.
  CHECK(requests(("[" + fetch + "," + tail + "]").c_str()) == Sums(3000, 1088));
  CHECK(requests(("[" + tail + "," + fetch + "]").c_str()) == Sums(3100, 1088));
  const Resources sum = pod_resources(parse_training_job(json)->spec.worker);
  CHECK(sum.ephemeral_bytes == std::int64_t{3} << 30);
}

TEST_CASE("a sidecar is waited for until it runs, and is never why a pod has failed") {
  Json json = *parse_json(R"({"metadata": {"name": "p"}, "spec": {"initContainers": [
      {"name": "tail", "restartPolicy": "Always"}, {"name": "fetch"}]},
    "status": {"phase": "Pending", "initContainerStatuses": [
      {"name": "tail", "started": false, "state": {"running": {}}},
      {"name": "fetch", "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  const auto read = [&] {
    const Pod pod = *parse_pod(json);
    CHECK(*parse_pod(*parse_json(dump_json(json), unread_of(Kind::kPod))) == pod);
    return pod;
  };
  CHECK(read().initializing == "tail");
  Json& first = json["status"]["initContainerStatuses"][0];
  Json& second = json["status"]["initContainerStatuses"][1];
  first["started"] = true;
  CHECK(read().initializing == "");
  second = Json{{"name", "fetch"}, {"started", true}, {"state", {{"running", Json::object()}}}};
  CHECK(read().initializing == "fetch");
  // One that does not come up holds up what is after it, and is named.
  second = Json{{"name", "fetch"}, {"state", {{"waiting", {{"reason", "PodInitializing"}}}}}};
  first = *parse_json(R"({"name": "tail", "started": false, "state": {"waiting": {
    "reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}}})");
  CHECK(read().reason == "CrashLoopBackOff");
  CHECK(read().message == "init container tail: back-off 10s restarting");
  // The kubelet ends it when the pod has failed by another.
  json["status"]["phase"] = "Failed";
  first["state"] = Json{{"terminated", {{"exitCode", 137}}}};
  CHECK_FALSE(read().init_failure);
  second["state"] = Json{{"terminated", {{"exitCode", 7}}}};
  CHECK(read().init_failure->container == "fetch");
}
