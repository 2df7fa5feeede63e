// spec.worker.hostNetwork: own programs in the network of their nodes.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/unread.h"
#include "tests/restricted.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

const PodOptions kHostOptions{"https://10.0.0.1:9443", "PEM", "muster-worker:1"};

Pod host_pod(const Json& json = host_network_job()) {
  return make_pod(*parse_training_job(json), {1, 4, "n", ""}, kHostOptions);
}

/// As a watch brings it.
Result<Pod> read_again(const Json& pod) {
  return parse_pod(*parse_json(dump_json(pod), unread_of(Kind::kPod)));
}

bool holds_port(const char* spec) {
  const Json json{{"metadata", {{"name", "p"}}}, {"spec", *parse_json(spec)}};
  const auto pod = read_again(json);
  REQUIRE_MESSAGE(pod, pod.error().message());
  return pod->requests.master_port;
}

}  // namespace

TEST_CASE("an own program may ask for its nodes' network, and the built-in engine may not") {
  CHECK(refusal(host_network_job()) == "");
  CHECK(parse_training_job(host_network_job())->spec.worker.host_network);
  CHECK_FALSE(parse_training_job(full_program_job())->spec.worker.host_network);
  CHECK(names(refusal(with(host_network_job(), "/spec/worker/hostNetwork", "yes")),
              "spec.worker.hostNetwork", "true or false"));
  const Json engine = with(least_training_job(), "/spec/worker/hostNetwork", true);
  CHECK(names(refusal(engine), "spec.worker.hostNetwork", "your own program"));
  CHECK(refusal(with(engine, "/spec/worker/hostNetwork", false)) == "");
  // One that was let in all the same makes no pods.
  const Status verdict = read_training_job(engine).second;
  REQUIRE_FALSE(verdict);
  CHECK(is_about_pods(verdict.error()));
}

TEST_CASE("whether workers are in their nodes' network cannot change while they train") {
  TrainingJob before = *parse_training_job(least_program_job());
  before.status.membership_epoch = 1;
  before.status.placement = {{0, 0, "n", ""}};
  TrainingJob after = before;
  after.spec.worker.host_network = true;
  REQUIRE_FALSE(check_update(before, after));
  CHECK(names(check_update(before, after).error().message(), "spec.worker.hostNetwork",
              "cannot change while the job trains"));
}

TEST_CASE("a pod in its node's network finds names, and holds the port of MASTER_PORT there") {
  const Pod pod = host_pod();
  CHECK(pod.spec["hostNetwork"] == true);
  CHECK(pod.spec["dnsPolicy"] == "ClusterFirstWithHostNet");
  // By these the Service's name of a pod is made, whatever network it is in.
  CHECK(pod.spec["hostname"] == pod.meta.name);
  CHECK(pod.spec["subdomain"] == service_name(*parse_training_job(host_network_job())));
  const Json port{{"containerPort", 29'500}, {"protocol", "TCP"}};
  CHECK(pod.spec["containers"][0]["ports"] ==
        Json::array({port, {{"name", "http"}, {"containerPort", 8080}}}));
  CHECK(pod.requests.master_port);
  CHECK(read_again(to_json(pod))->requests == pod.requests);
  // One that the job lists itself stands once, and first: of long lists the end is not read.
  Json json = host_network_job();
  Json& ports = json["spec"]["worker"]["ports"];
  ports.clear();
  for (int i = 0; i < 20; ++i) {
    ports.push_back({{"name", "a" + std::to_string(i)}, {"containerPort", 29'481 + i}});
  }
  const Pod listed = host_pod(json);
  CHECK(listed.spec["containers"][0]["ports"].size() == 20);
  CHECK(read_again(to_json(listed))->requests == listed.requests);

  const Pod usual = host_pod(with(host_network_job(), "/spec/worker/hostNetwork", false));
  CHECK_FALSE(usual.spec.contains("hostNetwork"));
  CHECK_FALSE(usual.spec.contains("dnsPolicy"));
  CHECK(usual.spec["containers"][0]["ports"].size() == 1);
  CHECK_FALSE(usual.requests.master_port);
  CHECK_FALSE(read_again(to_json(usual))->requests.master_port);
}

TEST_CASE("torchrun of workers in their nodes' network does not tell them apart by host names") {
  Json json = with(host_network_job(), "/spec/worker/min", 1);
  const auto value = [](const Pod& pod, const std::string& name) -> std::string {
    for (const Json& variable : pod.spec["containers"][0]["env"]) {
      if (variable["name"] == name) return variable["value"];
    }
    return "";
  };
  Pod pod = host_pod(json);
  CHECK(value(pod, "PET_RDZV_BACKEND") == "static");
  CHECK(value(pod, "PET_RDZV_CONF").empty());
  CHECK(value(pod, "PET_NNODES") == "2");
  // A gang that has started smaller.
  TrainingJob smaller = *parse_training_job(json);
  smaller.status.target_workers = 1;
  CHECK(value(make_pod(smaller, {0, 4, "n", ""}, kHostOptions), "PET_NNODES") == "1");

  json["spec"]["worker"].erase("hostNetwork");
  pod = host_pod(json);
  CHECK(value(pod, "PET_RDZV_BACKEND") == "c10d");
  CHECK(value(pod, "PET_NNODES") == "1:2");
}

TEST_CASE("a pod is in its node's network only where its namespace may have such pods") {
  const Pod pod = host_pod();
  CHECK(restricted_findings(pod.spec) == std::vector<std::string>{"hostNetwork"});
  for (const std::vector<std::string>& allowed : {std::vector<std::string>{}, {"resear", "b"}}) {
    const Status meets = check_restricted(pod, allowed);
    REQUIRE_FALSE(meets);
    CHECK(meets.error().code() == ErrorCode::kForbidden);
    for (const char* words : {"spec.worker.hostNetwork", "namespace research",
                              "--host-network-namespaces", "worker.hostNetworkNamespaces"}) {
      CHECK_MESSAGE(meets.error().message().find(words) != std::string::npos,
                    meets.error().message());
    }
  }
  CHECK(check_restricted(pod, {"b", "research"}));
  CHECK(check_restricted(pod, {"*"}));
  const auto refused = [&](const char* pointer, const Json& value) {
    Pod changed = pod;
    changed.spec = with(pod.spec, pointer, value);
    return !check_restricted(changed, {"*"});
  };
  CHECK(refused("/hostNetwork", 1));
  CHECK(refused("/hostNetwork", false));
  CHECK(refused("/hostNetwork", nullptr));
  CHECK(refused("/dnsPolicy", "None"));
  CHECK(refused("/dnsPolicy", nullptr));
  CHECK(refused("/hostPID", true));
  CHECK(refused("/containers/0/ports/0/hostPort", 29'500));
}

TEST_CASE("whoever holds the port on its node is known, whatever pod it is") {
  CHECK(
      holds_port(R"({"containers": [{}, {"ports": [{"containerPort": 1, "hostPort": 29500}]}]})"));
  CHECK(holds_port(
      R"({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 29500}]}]})"));
  CHECK(holds_port(R"({"containers": [{}], "initContainers": [{"restartPolicy": "Always",
    "ports": [{"containerPort": 1, "hostPort": 29500}]}]})"));
  CHECK_FALSE(holds_port(R"({"containers": [{"ports": [{"containerPort": 29500}]}]})"));
  CHECK_FALSE(
      holds_port(R"({"containers": [{"ports": [{"hostPort": 80, "containerPort": 29500}]}]})"));
  CHECK_FALSE(
      holds_port(R"({"hostNetwork": true, "containers": [{"ports": [{"containerPort": 80}]}]})"));
  // It has ended before the others begin.
  CHECK_FALSE(holds_port(R"({"containers": [{}], "initContainers": [
    {"ports": [{"containerPort": 1, "hostPort": 29500}]}]})"));
  // What is no port is nobody's, and makes no pod unreadable.
  for (const char* odd :
       {"7", "[7]", "[{}]", R"([{"hostPort": "29500"}])", R"([{"hostPort": 1e99}])"}) {
    CHECK_FALSE(holds_port((R"({"containers": [{"ports": )" + std::string(odd) + "}]}").c_str()));
  }
}

TEST_CASE("a pod that holds the port and is written without its spec holds it when it is read") {
  Pod pod;
  pod.meta.name = "p";
  pod.requests.cpu_millis = 1000;
  pod.requests.master_port = true;
  CHECK(read_again(to_json(pod))->requests == pod.requests);
}
