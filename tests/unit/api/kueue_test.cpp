#include "operator/api/kueue.h"

#include <doctest/doctest.h>

#include "operator/api/pod.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

constexpr const char* kLabels = "/metadata/labels";
constexpr const char* kAnnotations = "/metadata/annotations";

Json in_queue(const std::string& queue) {
  return with(least_program_job(), kLabels, Json{{"kueue.x-k8s.io/queue-name", queue}});
}

}  // namespace

TEST_CASE("the pods of a gang that started in a queue of Kueue are one group of fixed size") {
  Json json = in_queue("team");
  json["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high";
  json["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = "example.com/rack";
  auto job = *parse_training_job(json);
  job.meta.uid = "u";
  CHECK(kueue_queue_wanted(job) == "team");
  job.status.start_attempt = 3;
  job.status.target_workers = 2;
  // The label alone is a wish: what counts is where the gang has started.
  CHECK_FALSE(make_pod(job, {0, 3, "", ""}, {}).meta.labels.contains("kueue.x-k8s.io/queue-name"));
  job.status.kueue_queue = "team";
  const Pod pod = make_pod(job, {1, 4, "", ""}, {});
  CHECK(pod.meta.labels.at("kueue.x-k8s.io/queue-name") == "team");
  CHECK(pod.meta.labels.at("kueue.x-k8s.io/priority-class") == "high");
  CHECK(pod.meta.labels.at("kueue.x-k8s.io/pod-group-name") == service_name(job) + "-3");
  CHECK(pod.meta.annotations.at("kueue.x-k8s.io/pod-group-total-count") == "2");
  CHECK(pod.meta.annotations.at("kueue.x-k8s.io/retriable-in-group") == "false");
  CHECK(pod.meta.annotations.at("kueue.x-k8s.io/podset-required-topology") == "example.com/rack");
  CHECK(pod.meta.annotations.at("kueue.x-k8s.io/pod-group-pod-index-label") == "muster.dev/slot");
  CHECK_FALSE(pod.spec.contains("affinity"));
  CHECK(check_restricted(pod));
}

TEST_CASE("labels that Kueue would not take, or that two rules would share, are refused by name") {
  CHECK(refusal(in_queue("team.a-1")) == "");
  CHECK(refusal(in_queue("")) == "");
  const std::string label = "metadata.labels.kueue.x-k8s.io/queue-name";
  for (const auto& bad : {std::string("Team"), std::string("a b"), std::string("a/b"),
                          std::string(64, 'a'), std::string("a\n")}) {
    CHECK(refusal(in_queue(bad)).starts_with(label + ": must be the name of a LocalQueue"));
  }
  Json json = in_queue("team");
  json["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "High!";
  CHECK(refusal(json).find("WorkloadPriorityClass") != std::string::npos);
  CHECK(refusal(with(in_queue("team"), "/spec/queueName", "research"))
            .starts_with("spec.queueName: must be left out where " + label));
  CHECK(refusal(with(in_queue("team"), "/spec/topology", Json{{"required", "rack"}}))
            .starts_with("spec.topology: must be left out where " + label));
  const auto annotated = [](const char* key, const char* value) {
    return with(in_queue("team"), kAnnotations, Json{{key, value}});
  };
  CHECK(refusal(annotated("kueue.x-k8s.io/podset-unconstrained-topology", "true")) == "");
  CHECK(refusal(annotated("kueue.x-k8s.io/podset-unconstrained-topology", "yes")).find("true or") !=
        std::string::npos);
  CHECK(refusal(annotated("kueue.x-k8s.io/podset-preferred-topology", "a b")).find("label of a") !=
        std::string::npos);
}

TEST_CASE("outside of Kueue its annotations ask for what spec.topology does") {
  const auto annotated = [](const char* key, const char* value) {
    return with(least_program_job(), kAnnotations, Json{{key, value}});
  };
  const auto wish = [](const Json& json) {
    const TopologyWish found = topology_wanted(*parse_training_job(json));
    return found.required + "/" + found.preferred;
  };
  const std::string prefix = "kueue.x-k8s.io/podset-";
  const Json required = annotated("kueue.x-k8s.io/podset-required-topology", "example.com/rack");
  CHECK(wish(required) == "example.com/rack/");
  CHECK(wish(annotated("kueue.x-k8s.io/podset-preferred-topology", "example.com/rack")) ==
        "/example.com/rack");
  CHECK(wish(annotated("kueue.x-k8s.io/podset-unconstrained-topology", "true")) == "/");
  CHECK(wish(with(least_program_job(), "/spec/topology", Json{{"preferred", "block"}})) ==
        "/block");
  CHECK(wish(with(required, kLabels, Json{{"kueue.x-k8s.io/queue-name", "team"}})) == "/");
  CHECK(refusal(with(required, "/spec/topology", Json{{"preferred", "block"}})) ==
        "spec.topology: must be left out where metadata.annotations." + prefix +
            "required-topology is set, which asks for the same");
  const std::string group = prefix + "group-name";
  CHECK(refusal(annotated(group.c_str(), "2"))
            .starts_with("metadata.annotations." + group + ": must be left out"));
  CHECK(refusal(annotated("kueue.x-k8s.io/podset-required-topology", "a b")).find("label of a") !=
        std::string::npos);
}

TEST_CASE("what Kueue does to a pod is read back") {
  const Json json = *parse_json(R"({"metadata": {"name": "p"},
    "spec": {"schedulingGates": [{"name": "else/where"}, {"name": "kueue.x-k8s.io/topology"}]},
    "status": {"phase": "Running", "conditions": [{"type": "TerminationTarget", "status": "True",
      "reason": "WorkloadEvictedDueToPreempted", "message": "Preempted for another"}]}})");
  const Pod pod = *parse_pod(json);
  CHECK(pod.held_by_kueue);
  CHECK(pod.kueue_stop == "WorkloadEvictedDueToPreempted");
  CHECK(pod.kueue_stop_message == "Preempted for another");
  CHECK(*parse_pod(to_json(pod)) == pod);
  Json other = json;
  other["spec"]["schedulingGates"].erase(1);
  other["status"]["conditions"][0]["status"] = "False";
  CHECK_FALSE(parse_pod(other)->held_by_kueue);
  CHECK(parse_pod(other)->kueue_stop.empty());
}

TEST_CASE("a Workload says why it is not admitted, and to whom") {
  Json json = *parse_json(R"({"metadata": {"name": "digits-abcde-0", "namespace": "ns"},
    "spec": {"active": true}, "status": {"conditions": [
      {"type": "Admitted", "status": "False", "message": "no reservation"},
      {"type": "QuotaReserved", "status": "False", "message": "2 more cpu needed"}]}})");
  for (int i = 0; i < 100; ++i) {
    json["metadata"]["ownerReferences"].push_back(
        Json{{"kind", "Pod"}, {"name", "digits-abcde-" + std::to_string(i) + "-0"}, {"uid", "u"}});
  }
  const KueueWorkload workload = *parse_kueue_workload(json);
  CHECK(workload.meta.key() == ObjectKey{"ns", "digits-abcde-0"});
  CHECK(workload.pod == "digits-abcde-0-0");
  CHECK(workload.says == "2 more cpu needed");
  json["status"]["conditions"][1]["status"] = "True";
  CHECK(parse_kueue_workload(json)->says == "no reservation");
  json["status"]["conditions"][0]["status"] = "True";
  CHECK(parse_kueue_workload(json)->says == "");
  json["spec"]["active"] = false;
  CHECK(parse_kueue_workload(json)->says.find("deactivated") != std::string::npos);
  json["spec"]["active"] = true;
  json["status"]["conditions"] = Json::array(
      {Json{{"type", "QuotaReserved"}, {"status", "False"}, {"message", std::string(9000, 'x')}},
       7});
  CHECK(parse_kueue_workload(json)->says == std::string(512, 'x'));
  json["status"]["conditions"][0]["message"] = std::string("no\0 quota", 9);
  CHECK(parse_kueue_workload(json)->says == "no? quota");
  json["metadata"].erase("name");
  CHECK_FALSE(parse_kueue_workload(json));
}
