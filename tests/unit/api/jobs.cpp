#include "tests/unit/api/jobs.h"

#include <doctest/doctest.h>

#include "operator/api/training_job.h"

namespace muster::test {
namespace {

Json parsed(const char* text) {
  auto json = parse_json(text);
  MUSTER_CHECK_MSG(json.has_value(), "a manifest of the tests is not JSON");
  return std::move(json).value();
}

}  // namespace

Json least_training_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
    "spec": {"training": {"epochs": 20, "model": {"mlp": {"hidden": [128]}},
      "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
      "optimizer": {"sgd": {"learningRate": "0.1"}}}}})");
}

Json least_program_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "own"},
    "spec": {"worker": {"command": ["true"]}}})");
}

Json full_training_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "digits", "namespace": "research", "uid": "u-1", "resourceVersion": "17",
      "generation": 3, "labels": {"team": "a"}, "annotations": {"note": "b"},
      "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:04:06Z",
      "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u-0",
                           "controller": true, "blockOwnerDeletion": true}]},
    "spec": {
      "worker": {"count": 2, "min": 1, "max": 4, "processes": 2, "threads": 3,
        "resources": {"cpu": "1500m", "memory": "1Gi", "gpus": 2, "gpuResource": "amd.com/gpu",
          "devices": {"vpc.amazonaws.com/efa": 4, "rdma/hca_a": 1}, "ephemeralStorage": "20Gi"},
        "image": "registry.example/worker:1",
        "initContainers": [{"name": "check", "image": "registry.example/check:1",
          "resources": {"cpu": 2, "memory": "512Mi", "gpus": 1, "devices": {"rdma/hca_a": 1},
            "ephemeralStorage": "30Gi"}}]},
      "training": {"algorithm": "Backpropagation", "mode": "Strict", "seed": 7, "logicalRanks": 32,
        "batchSize": 128, "microBatchSize": 16, "epochs": 20,
        "model": {"mlp": {"hidden": [128, 64], "dropout": "0.1"}},
        "data": {"train": {"idx": {"images": "a", "labels": "b"}},
                 "test": {"idx": {"images": "c", "labels": "d"}}},
        "optimizer": {"sgd": {"learningRate": "0.1", "momentum": "0.9"}},
        "gradientClipping": {"maxNorm": "1.0"},
        "evaluation": {"everyEpochs": 2, "everySteps": 1000000000000, "maxSamples": 1000000000},
        "checkpoint": {"path": "/ckpt", "volumeClaimName": "claim", "everySteps": 50, "keep": 3},
        "onNonFinite": "Stop",
        "optimizerState": "Sharded", "buddies": 2, "parallelism": {"tensor": 1, "pipeline": 1}},
      "restart": {"policy": "Never", "maxRestarts": 5, "backoffSeconds": 20},
      "topology": {"preferred": "rack"}, "scheduling": "Unplaced", "queueName": "research",
      "priorityClassName": "high", "suspend": true, "activeDeadlineSeconds": 3600,
      "ttlSecondsAfterFinished": 86400, "managedBy": "example.com/other"},
    "status": {
      "observedGeneration": 2,
      "conditions": [{"type": "Running", "status": "True", "reason": "Started", "message": "m",
        "observedGeneration": 2, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
      "phase": "Running", "workers": "2/2", "targetWorkers": 2, "replicas": 2,
      "selector": "muster.dev/job-uid=u-1", "membershipEpoch": 4, "restarts": 1,
      "replacements": 3, "resizes": 2, "startAttempt": 1, "keyId": "0123456789abcdef",
      "startCount": 2, "workerSize": 2,
      "queue": "research", "kueueQueue": "team", "wentAhead": true, "lastNodes": ["n", "", "m"],
      "placement": [{"slot": 0, "attempt": 1, "node": "n", "domain": "r1", "member": true,
        "replacements": 2, "checksData": true, "ended": true}],
      "takenBack": {"shrinks": 2, "preemptions": 1, "lostProcessSeconds": 36,
        "preemptedFor": "team/x", "preemptedForUID": "u"},
      "cost": {"currency": "EUR", "amount": "12.5", "ratePerHour": "40.2", "unknownSeconds": 60,
        "unknown": "node n is in no tier", "updatedAt": "2026-01-02T03:04:08Z",
        "items": [{"tier": "h100", "resource": "nvidia.com/gpu", "units": "2", "hours": "0.25"}]},
      "parallelism": {"tensor": 2, "pipeline": 1},
      "witness": {"fromEpoch": 3, "epoch": 4, "members": [0, 1]},
      "pastActiveSeconds": 90,
      "startTime": "2026-01-02T03:04:05Z", "completionTime": "2026-01-02T03:04:09Z",
      "restartAt": "2026-01-02T03:04:07Z",
      "progress": {"step": 5, "totalSteps": 10, "epoch": 1, "loss": "0.5", "accuracy": "0.97",
        "samplesPerSecond": "1234.5", "stepMilliseconds": "12.5", "exchangeMilliseconds": "3.25",
        "predictedStepMilliseconds": "12.25",
        "etaSeconds": 9, "updatedAt": "2026-01-02T03:04:08Z"},
      "checkpoint": {"step": 4, "time": "2026-01-02T03:04:08Z", "durable": true, "path": "/ckpt",
        "startAttempt": 2},
      "model": {"parameters": 9610, "sha256": "ab"}, "imageDigest": "sha256:cd",
      "dataSHA256": "ef", "contract": "fp32-chain/1",
      "failure": {"slot": 1, "exitCode": 25, "reason": "PeerLost", "logTail": "bye",
        "node": "n", "attempt": 3, "container": "check"}}})");
}

Json gpt_training_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "text"},
    "spec": {"worker": {"max": 8, "growsTo": "Max"}, "queueName": "research",
      "training": {"steps": 1000, "batchSize": 32, "activations": "Recomputed",
      "precision": "BFloat16", "parallelism": {"mode": "Auto"},
      "model": {"gpt": {"layers": 6, "heads": 12, "width": 192, "contextLength": 64}},
      "data": {"train": {"text": {"file": "a"}}, "test": {"text": {"file": "b"}}},
      "optimizer": {"adamw": {"learningRate": "0.001", "weightDecayOf": "Matrices"}}}}})");
}

Json token_training_job() {
  Json json = gpt_training_job();
  Json& training = json["spec"]["training"];
  training["model"]["gpt"]["vocabularySize"] = 50'257;
  training["model"]["gpt"]["dropout"] = "0.1";
  training["model"]["gpt"]["attentionDropout"] = "0.2";
  training["data"] = Json{{"train", {{"tokens", {{"files", {"a", "b"}}}}}},
                          {"test", {{"tokens", {{"files", {"c"}}}}}},
                          {"vocabulary", {{"directory", "gpt2"}}}};
  training["pretrained"] = Json{{"directory", "gpt2"}};
  return json;
}

Json table_training_job() {
  Json json = full_training_job();
  const Json table{{"file", "a"},
                   {"label", "kind"},
                   {"scale", "Standard"},
                   {"words", "OneHot"},
                   {"missing", "Mean"}};
  json["spec"]["training"]["data"] =
      Json{{"train", {{"csv", table}}}, {"test", {{"csv", {{"file", "b"}, {"label", "kind"}}}}}};
  return json;
}

Json picture_training_job() {
  Json json = full_training_job();
  const Json folder{{"directory", "a"}, {"height", 8}, {"width", 9}, {"colors", "Gray"}};
  json["spec"]["training"]["data"] =
      Json{{"train", {{"imageFolder", folder}}}, {"test", {{"imageFolder", folder}}}};
  return json;
}

Json grouped_training_job() {
  Json json = gpt_training_job();
  json["spec"]["worker"] = Json{{"count", 8}};
  json["spec"]["training"]["parallelism"] = Json{{"tensor", 2}, {"pipeline", 2}};
  json["spec"]["topology"]["groups"] =
      parsed(R"([{"of": "Tensor", "required": "rack"}, {"of": "Pipeline", "preferred": "block"}])");
  return json;
}

Json full_program_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "own", "namespace": "research", "uid": "u-2"},
    "spec": {"worker": {
      "image": "pytorch:2", "command": ["torchrun"], "args": ["train.py", "--fast"],
      "env": [{"name": "A", "value": "1"},
        {"name": "B", "valueFrom":
          {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
        {"name": "C", "valueFrom":
          {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}},
        {"name": "D", "valueFrom":
          {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}}}],
      "envFrom": [{"prefix": "S3_", "secretRef": {"name": "s", "optional": true}},
        {"prefix": "X_", "configMapRef": {"name": "c", "optional": false}}],
      "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
      "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
        {"name": "conf", "configMap": {"name": "c", "defaultMode": 292, "optional": true,
          "items": [{"key": "k", "path": "f", "mode": 292}]}},
        {"name": "keys", "secret": {"secretName": "s", "defaultMode": 256, "optional": true,
          "items": [{"key": "k", "path": "f", "mode": 256}]}},
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
      "volumeMounts": [
        {"name": "data", "mountPath": "/data", "subPath": "a/b", "readOnly": true}],
      "initContainers": [
        {"name": "fetch", "image": "curl:8", "imagePullPolicy": "IfNotPresent",
          "command": ["sh", "-c"], "args": ["curl"], "workingDir": "/data/new",
          "restartPolicy": "Never",
          "env": [{"name": "A", "value": "1"},
            {"name": "B", "valueFrom":
              {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            {"name": "C", "valueFrom":
              {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}},
            {"name": "D", "valueFrom":
              {"fieldRef": {"fieldPath": "status.podIP", "apiVersion": "v1"}}}],
          "envFrom": [{"prefix": "S3_", "secretRef": {"name": "s", "optional": true}},
            {"prefix": "X_", "configMapRef": {"name": "c", "optional": false}}],
          "volumeMounts": [
            {"name": "data", "mountPath": "/data", "subPath": "a/b", "readOnly": false}],
          "resources": {"memory": "2Gi"}},
        {"name": "tunnel", "image": "tunnel:2", "restartPolicy": "Always",
          "resources": {"cpu": "100m", "memory": "64Mi"}},
        {"name": "count", "command": ["count"]}],
      "shmSize": "1Gi", "nodeSelector": {"disk": "ssd"},
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [
          {"matchExpressions": [{"key": "x.io/gen", "operator": "In", "values": ["a", "b"]},
                                {"key": "x.io/cores", "operator": "Gt", "values": ["31"]}]},
          {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}],
           "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}]}}},
      "tolerations": [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoExecute",
        "tolerationSeconds": 60}],
      "imagePullSecrets": [{"name": "pull"}], "imagePullPolicy": "Always",
      "serviceAccountName": "trainer",
      "runtimeClassName": "nvidia", "schedulerName": "mine",
      "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 2147483647,
      "supplementalGroups": [2000, 2147483647],
      "resourceClaims": [{"name": "a", "resourceClaimName": "ca"},
                         {"name": "b", "resourceClaimTemplateName": "cb"}],
      "terminationGracePeriodSeconds": 60},
      "topology": {"required": "rack"}}})");
}

Json free_shape_job() {
  Json json = least_program_job();
  json["spec"]["worker"]["count"] = 4;
  json["spec"]["worker"]["shape"] = "Free";
  return json;
}

Json host_network_job() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "own", "namespace": "research", "uid": "u-3"},
    "spec": {"worker": {"count": 2, "command": ["torchrun"], "hostNetwork": true,
      "ports": [{"name": "http", "containerPort": 8080}]}}})");
}

Json least_training_queue() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": "research"},
    "spec": {}})");
}

Json full_training_queue() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue",
    "metadata": {"name": "research", "uid": "u-2", "resourceVersion": "9", "generation": 2,
      "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {"cohort": "lab", "weight": 3, "suspend": true, "namespaces": ["team-a"],
      "resources": [{"name": "nvidia.com/gpu", "nominal": "8", "borrowingLimit": "4",
                     "lendingLimit": "6"}],
      "budget": {"currency": "EUR", "amount": "500.5", "period": "Week"},
      "preemption": {"minimumRunSeconds": 600}},
    "status": {
      "observedGeneration": 2,
      "conditions": [{"type": "Active", "status": "False", "reason": "Suspended", "message": "m",
        "observedGeneration": 2, "lastTransitionTime": "2026-01-02T03:04:05Z"}],
      "phase": "Suspended", "admitted": 2, "waiting": 1, "use": "nvidia.com/gpu 9/8",
      "resources": [{"name": "nvidia.com/gpu", "used": "9", "borrowed": "1"}],
      "budget": {"currency": "EUR", "spent": "12.25", "ratePerHour": "3",
        "since": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-02T03:04:05Z",
        "unknown": "team-a/x: why"}}})");
}

Json least_topology_config() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TopologyConfig", "metadata": {"name": "default"},
    "spec": {"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]}})");
}

Json full_topology_config() {
  return parsed(R"({
    "apiVersion": "muster.dev/v1alpha1", "kind": "TopologyConfig",
    "metadata": {"name": "default", "uid": "u-3", "resourceVersion": "9", "generation": 2,
      "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {"levels": [{"name": "rack", "nodeLabel": "example.com/rack",
                         "oversubscription": "2.5", "latencyMicroseconds": 30}],
             "host": {"gigabitsPerSecond": "200", "localGigabitsPerSecond": "800"}}})");
}

std::string refusal(const Json& json) {
  const auto job = api::parse_training_job(json);
  return job ? "" : job.error().message();
}

bool names(const std::string& sentence, const std::string& field, const std::string& cure) {
  return sentence.starts_with(field + ": ") && sentence.find(cure) != std::string::npos;
}

void check_refused(const Json& base, const std::string& pointer, const std::string& field,
                   const std::vector<WrongField>& all) {
  for (const WrongField& wrong : all) {
    const std::string sentence =
        refusal(with(base, pointer + wrong.pointer, *parse_json(wrong.value)));
    CHECK_MESSAGE(names(sentence, field + wrong.field, wrong.cure),
                  wrong.pointer << " = " << wrong.value << " said: " << sentence);
  }
}

Json with(Json json, const std::string& pointer, const Json& value) {
  const Json::json_pointer at(pointer);
  if (!value.is_null()) {
    json[at] = value;
  } else if (json.contains(at)) {
    json[at.parent_pointer()].erase(at.back());
  }
  return json;
}

}  // namespace muster::test
