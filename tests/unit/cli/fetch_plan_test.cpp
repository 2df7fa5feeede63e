#include "cli/fetch_plan.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "operator/api/pod.h"

using namespace muster;
using namespace muster::cli;

namespace {

/// A job of such a model, with its checkpoints on a claim; complete or at a durable checkpoint.
api::TrainingJob job_of(const char* model, bool is_complete) {
  api::TrainingJob job;
  job.meta.name = "one";
  api::TrainingSpec& training = job.spec.training.emplace();
  training.model = *parse_json(model);
  training.checkpoint.emplace().volume_claim_name = "claim";
  training.checkpoint->path = "/kept";
  if (is_complete) {
    job.status.conditions.push_back({"Complete", "True", "AllWorkersSucceeded", "", 0, {}});
  } else {
    job.status.checkpoint.emplace().step = 7;
  }
  return job;
}

/// Those of all files of a finished job's directory that a plan takes, in the order of an archive.
std::vector<std::string> taken(const FetchPlan& plan) {
  std::vector<std::string> names;
  for (const char* name :
       {"classes.json", "config.json", "inputs.json", "merges.txt", "model.safetensors",
        "record.jsonl", "sample.txt", "step-000000000007/model.safetensors", "vocab.json"}) {
    if (plan.last.empty() || name <= plan.last) {
      if (!plan.wants(name).empty()) names.emplace_back(name);
    }
  }
  return names;
}

/// Those that the pod is asked for.
std::vector<std::string> asked(const FetchPlan& plan) {
  std::vector<std::string> names = plan.names;
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("the pod is asked for no more than a plan takes") {
  for (const char* model : {R"({"mlp": {"hidden": [8]}})", R"({"gpt": {"layers": 1}})"}) {
    for (const bool model_only : {false, true}) {
      CAPTURE(model);
      CAPTURE(model_only);
      const auto complete = plan_fetch(job_of(model, true), model_only);
      CHECK(asked(*complete) == taken(*complete));
    }
    const auto running = job_of(model, false);
    CHECK(asked(*plan_fetch(running, true)) == std::vector<std::string>{"model.safetensors"});
    // Of a checkpoint all: the pod sends what it has.
    CHECK(asked(*plan_fetch(running, false)).empty());
  }
}

TEST_CASE("of a complete job the model comes with what its engine left beside it") {
  using Names = std::vector<std::string>;
  const auto images = job_of(R"({"mlp": {"hidden": [8]}})", true);
  CHECK(taken(*plan_fetch(images, false)) ==
        Names{"classes.json", "inputs.json", "model.safetensors", "record.jsonl"});
  CHECK(taken(*plan_fetch(images, true)) == Names{"model.safetensors"});
  const auto text = job_of(R"({"gpt": {"layers": 1}})", true);
  CHECK(taken(*plan_fetch(text, false)) == Names{"config.json", "merges.txt", "model.safetensors",
                                                 "record.jsonl", "sample.txt", "vocab.json"});
  CHECK(taken(*plan_fetch(text, true)) == Names{"model.safetensors"});
}

TEST_CASE("of a job that is not complete its newest checkpoint comes") {
  const auto plan = plan_fetch(job_of(R"({"gpt": {"layers": 1}})", false), false);
  REQUIRE(plan.has_value());
  CHECK(plan->directory == "/kept/step-000000000007");
  CHECK(plan->wants("manifest.json") == "step-000000000007/manifest.json");
  CHECK(plan->last.empty());
  CHECK_FALSE(plan->notice.empty());
}

TEST_CASE("a checkpoint that was saved with other numbers is told by the field to be another's") {
  api::TrainingJob job = job_of(R"({"cnn": {"channels": [4, 8], "hidden": [8]}})", false);
  job.spec.training->seed = 7;
  const auto told = [&](const char* identity) {
    return told_by_manifest(job, *parse_json(identity));
  };
  CHECK(told(R"({"identity": {"spec.training.seed": 7, "spec.training.batchSize": 64,
                              "spec.training.model.cnn.channels": [4, 8]}})") == "");
  CHECK(told(R"({"identity": {"spec.training.seed": 8}})") ==
        "spec.training.seed was 8 when it was saved, and of this job is 7");
  CHECK(told(R"({"identity": {"spec.training.model.cnn.channels": [4]}})") ==
        "spec.training.model.cnn.channels was [4] when it was saved, and of this job is [4,8]");
  // However long what is kept is.
  const std::string long_text(10'000, 'x');
  CHECK(told(("{\"identity\": {\"spec.training.seed\": [\"" + long_text + "\"]}}").c_str()) ==
        "spec.training.seed was [\"" + long_text.substr(0, 198) +
            " when it was saved, and of this job is 7");
  // What the job leaves to its default, and what has no one way of being written, tells nothing.
  CHECK(told(R"({"identity": {"spec.training.model.cnn.kernelSize": 5, "the model's layers": "x",
                              "spec.training.optimizer.sgd.learningRate": "0.5", "": 1,
                              "spec.training.seed.x": 8, "spec..": 1}})") == "");
  for (const char* damaged : {"[]", "{}", R"({"identity": 1})"}) CHECK(told(damaged) == "");
}

TEST_CASE("the pods that fetch from a job are told from another program's by their labels") {
  const api::TrainingJob job = job_of(R"({"mlp": {"hidden": [8]}})", true);
  const Json labels = make_fetch_pod(job, {})["metadata"]["labels"];
  CHECK(labels["app.kubernetes.io/name"] == "muster");
  std::string all;
  for (const char* mark : {"name", "component", "instance"}) {
    const std::string label = std::string("app.kubernetes.io/") + mark;
    all += (all.empty() ? "" : ",") + label + "=" + labels.value(label, "");
  }
  CHECK(fetch_selector(job) == all);
}

TEST_CASE("the pod that reads a volume has what the workers need to stand there and to read it") {
  api::TrainingJob job = job_of(R"({"mlp": {"hidden": [8]}})", true);
  job.spec.worker.pod_fields = *parse_json(R"({
      "tolerations": [{"operator": "Exists"}], "imagePullSecrets": [{"name": "pull"}],
      "serviceAccountName": "trainer", "runtimeClassName": "kata", "nodeSelector": {"disk": "fast"},
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}},
      "runAsUser": 1000, "supplementalGroups": [2000], "ports": [{"containerPort": 80}]})");
  FetchPodFacts facts;
  facts.name = "fetch";
  const Json anywhere = make_fetch_pod(job, facts)["spec"];
  for (const char* field : {"tolerations", "imagePullSecrets", "serviceAccountName",
                            "runtimeClassName", "nodeSelector", "affinity"}) {
    CAPTURE(field);
    CHECK(anywhere.value(field, Json()) == job.spec.worker.pod_fields[field]);
  }
  CHECK(anywhere["securityContext"]["runAsUser"] == 1000);
  CHECK(anywhere["securityContext"]["supplementalGroups"] == Json{2000});
  CHECK_FALSE(anywhere.contains("ports"));
  facts.node = "node-1";
  const Json pinned = make_fetch_pod(job, facts)["spec"];
  CHECK_FALSE(pinned.contains("nodeSelector"));
  CHECK(pinned["affinity"] == api::required_node_affinity("node-1"));
}
