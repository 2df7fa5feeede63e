// What a job may say of its own programs and of their pods.
#include <doctest/doctest.h>

#include <string>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

#define REQUIRED_NODES "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/"
#define FIRST_EXPRESSION REQUIRED_NODES "nodeSelectorTerms/0/matchExpressions/0"
#define TERMS \
  "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"

TEST_CASE("a wrong field of an own program is named, with what would be right") {
  const std::vector<WrongField> cases = {
      {"/command", "[]", "command", "leave it out"},
      {"/command/0", "\"\"", "command[0]", "name a program"},
      {"/command/0", "1", "command[0]", "string"},
      {"/args", "\"-v\"", "args", "list"},
      {"/env/0/name", "\"1A\"", "env[0].name", "start with a letter"},
      {"/env/0/name", "\"MUSTER_JOB\"", "env[0].name", "set by Muster"},
      {"/env/0/name", "\"LD_PRELOAD\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"LD_AUDIT\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"NVIDIA_VISIBLE_DEVICES\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"NCCL_COMM_ID\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"NCCL_RAS_ADDR\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"RANK\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"PET_RDZV_ID\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"TF_CONFIG\"", "env[0].name", "choose another"},
      {"/env/0/name", "\"B\"", "env[1].name", "stands twice"},
      {"/env/1/value", "\"x\"", "env[1].value", "left out"},
      {"/env/1/valueFrom", "{}", "env[1].valueFrom", "exactly one of"},
      {"/env/1/valueFrom/resourceFieldRef", "{}", "env[1].valueFrom.resourceFieldRef", "unknown"},
      {"/env/1/valueFrom/secretKeyRef/key", "null", "env[1].valueFrom.secretKeyRef.key",
       "required"},
      {"/env/3/valueFrom/fieldRef/fieldPath", "\"spec.x\"", "env[3].valueFrom.fieldRef.fieldPath",
       "status.podIP"},
      {"/envFrom/0/configMapRef", "{\"name\": \"c\"}", "envFrom[0]", "exactly one of"},
      {"/envFrom/0/secretRef", "null", "envFrom[0]", "exactly one of"},
      {"/envFrom/0/secretRef/name", "\"A/b\"", "envFrom[0].secretRef.name", "lower-case"},
      {"/envFrom/0/prefix", "\"1A\"", "envFrom[0].prefix", "start with a letter"},
      {"/ports/0/containerPort", "0", "ports[0].containerPort", "from 1 to 65535"},
      {"/ports/0/name", "\"Web\"", "ports[0].name", "lower-case"},
      {"/ports/0/hostPort", "80", "ports[0].hostPort", "unknown field"},
      {"/ports/1", "{\"name\": \"http\", \"containerPort\": 1}", "ports[1].name", "stands twice"},
      {"/ports/1", "{\"name\": \"web\", \"containerPort\": 8080}", "ports[1].containerPort",
       "stands twice"},
      {"/volumes/0/hostPath", "{}", "volumes[0].hostPath", "unknown field"},
      {"/volumes/0/emptyDir", "{}", "volumes[0]", "exactly one of"},
      {"/volumes/0/name", "\"muster-token\"", "volumes[0].name", "Muster's own"},
      {"/volumes/1/name", "\"data\"", "volumes[1].name", "stands twice"},
      {"/volumes/1/configMap/items/0/path", "\"../x\"", "volumes[1].configMap.items[0].path",
       "relative"},
      {"/volumes/1/configMap/items/0/mode", "512", "volumes[1].configMap.items[0].mode", "511"},
      {"/volumes/3/emptyDir/sizeLimit", "\"big\"", "volumes[3].emptyDir.sizeLimit", "quantity"},
      {"/volumes/3/emptyDir/medium", "\"Disk\"", "volumes[3].emptyDir.medium", "Memory"},
      {"/volumeMounts/0/name", "\"nope\"", "volumeMounts[0].name", "spec.worker.volumes"},
      {"/volumeMounts/0/mountPath", "\"data\"", "volumeMounts[0].mountPath", "absolute"},
      {"/volumeMounts/0/mountPath", "\"/\"", "volumeMounts[0].mountPath", "absolute"},
      {"/volumeMounts/0/mountPath", "\"/proc/x\"", "volumeMounts[0].mountPath", "/proc"},
      {"/volumeMounts/0/mountPath", "\"/var/run\"", "volumeMounts[0].mountPath", "elsewhere"},
      {"/volumeMounts/0/mountPath", "\"/run\"", "volumeMounts[0].mountPath", "elsewhere"},
      {"/volumeMounts/0/mountPath", "\"/run/secrets/muster.dev/token\"",
       "volumeMounts[0].mountPath", "elsewhere"},
      {"/volumeMounts/0/mountPath", "\"/./proc\"", "volumeMounts[0].mountPath", "absolute"},
      {"/volumeMounts/0/mountPath", "\"/a/..\"", "volumeMounts[0].mountPath", "absolute"},
      {"/volumeMounts/0/mountPath", "\"/dev/shm\"", "volumeMounts[0].mountPath", "shmSize"},
      {"/volumeMounts/0/mountPath", "\"/dev/x\"", "volumeMounts[0].mountPath", "/dev/shm"},
      {"/volumeMounts/0/subPath", "\"/a\"", "volumeMounts[0].subPath", "relative"},
      {"/volumeMounts/1", "{\"name\": \"tmp\", \"mountPath\": \"/data\"}",
       "volumeMounts[1].mountPath", "stands twice"},
      {"/shmSize", "\"0\"", "shmSize", "from 1Mi"},
      {"/initContainers/0/name", "\"worker\"", "initContainers[0].name", "Muster's own"},
      {"/initContainers/0/name", "\"muster-x\"", "initContainers[0].name", "Muster's own"},
      {"/initContainers/0/name", "null", "initContainers[0].name", "required"},
      {"/initContainers/1/name", "\"fetch\"", "initContainers[1].name", "stands twice"},
      {"/initContainers/0/restartPolicy", "\"OnFailure\"", "initContainers[0].restartPolicy",
       "Never or Always"},
      {"/initContainers/0/restartPolicy", "\"Always\"", "initContainers[0].resources.cpu",
       "required of a sidecar"},
      {"/initContainers/1/resources", "null", "initContainers[1].resources",
       "required of a sidecar, with cpu and memory"},
      {"/initContainers/1/resources/memory", "null", "initContainers[1].resources.memory",
       "required of a sidecar"},
      {"/initContainers/1/resources/gpus", "1", "initContainers[1].resources.gpus",
       "left out of a sidecar"},
      {"/initContainers/1/resources/devices", "{\"rdma/hca\": 1}",
       "initContainers[1].resources.devices", "left out of a sidecar"},
      {"/initContainers/1/startupProbe", "{}", "initContainers[1].startupProbe",
       "as soon as a sidecar runs"},
      {"/initContainers/1/lifecycle", "{}", "initContainers[1].lifecycle", "left out"},
      {"/initContainers/2/command", "null", "initContainers[2].command", "unless image is given"},
      {"/initContainers/0/env/0/name", "\"MUSTER_SLOT\"", "initContainers[0].env[0].name",
       "set by Muster"},
      {"/initContainers/0/volumeMounts/0/name", "\"muster-token\"",
       "initContainers[0].volumeMounts[0].name", "spec.worker.volumes"},
      {"/initContainers/0/volumeMounts/0/mountPath", "\"/var/run/secrets/muster.dev\"",
       "initContainers[0].volumeMounts[0].mountPath", "elsewhere"},
      {"/initContainers/0/resources/gpus", "1", "initContainers[0].resources.gpus",
       "at most the worker's, 0"},
      {"/initContainers/0/resources/devices", "{\"rdma/hca\": 1}",
       "initContainers[0].resources.devices", "at most the worker's, 0 of rdma/hca"},
      {"/initContainers/0/resources/gpuResource", "\"amd.com/gpu\"",
       "initContainers[0].resources.gpuResource", "unknown field"},
      {"/nodeSelector/disk", "true", "nodeSelector.disk", "in quotes"},
      {"/nodeSelector/-x", "\"a\"", "nodeSelector.-x", "label name"},
      {"/affinity/podAffinity", "{}", "affinity.podAffinity", "spec.topology"},
      {"/affinity/podAntiAffinity", "{}", "affinity.podAntiAffinity", "spec.topology"},
      {"/affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution", "[]",
       "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
       "spec.topology.preferred"},
      {REQUIRED_NODES "nodeSelectorTerms", "[]", TERMS, "one term at least"},
      {REQUIRED_NODES "nodeSelectorTerms/0", "{}", TERMS "[0]", "selects no node"},
      {FIRST_EXPRESSION "/key", "\"-x\"", TERMS "[0].matchExpressions[0].key", "name"},
      {FIRST_EXPRESSION "/operator", "\"Exists\"", TERMS "[0].matchExpressions[0].values",
       "left out"},
      {FIRST_EXPRESSION "/operator", "\"Gt\"", TERMS "[0].matchExpressions[0].values",
       "one whole number"},
      {FIRST_EXPRESSION "/values", "[]", TERMS "[0].matchExpressions[0].values", "required"},
      {FIRST_EXPRESSION "/values/1", "\"a b\"", TERMS "[0].matchExpressions[0].values[1]",
       "label value"},
      {REQUIRED_NODES "nodeSelectorTerms/1/matchFields/0/values/0", "\"A\"",
       TERMS "[1].matchFields[0].values[0]", "one node"},
      {"/tolerations/0/operator", "\"Exists\"", "tolerations[0].value", "left out"},
      {"/tolerations/0/key", "null", "tolerations[0].key", "required"},
      {"/tolerations/0/effect", "\"Evict\"", "tolerations[0].effect", "NoExecute"},
      {"/tolerations/0/effect", "\"NoSchedule\"", "tolerations[0].tolerationSeconds", "NoExecute"},
      {"/imagePullSecrets/0/name", "\"A\"", "imagePullSecrets[0].name", "lower-case"},
      {"/imagePullSecrets/1", "{\"name\": \"pull\"}", "imagePullSecrets[1].name", "twice"},
      {"/imagePullPolicy", "\"always\"", "imagePullPolicy", "Always, IfNotPresent or Never"},
      {"/serviceAccountName", "\"A\"", "serviceAccountName", "lower-case"},
      {"/runtimeClassName", "7", "runtimeClassName", "string"},
      {"/schedulerName", "\"\"", "schedulerName", "lower-case"},
      {"/resourceClaims/0/resourceClaimTemplateName", "\"x\"", "resourceClaims[0]", "exactly one"},
      {"/runAsUser", "0", "runAsUser", "from 1"},
      {"/runAsGroup", "\"staff\"", "runAsGroup", "integer"},
      {"/fsGroup", "2147483648", "fsGroup", "to 2147483647"},
      {"/supplementalGroups/1", "0", "supplementalGroups[1]", "from 1"},
      {"/supplementalGroups/0", "\"users\"", "supplementalGroups[0]", "integer"},
      {"/terminationGracePeriodSeconds", "0", "terminationGracePeriodSeconds", "from 1"},
  };
  check_refused(full_program_job(), "/spec/worker", "spec.worker.", cases);
  MESSAGE("wrong fields of own programs refused by name: ", cases.size());
}

TEST_CASE("whoever has GPUs takes no variables by which it could be given others'") {
  Json job = full_program_job();
  Json& worker = job["spec"]["worker"];
  worker["envFrom"][0].erase("prefix");
  CHECK(refusal(job) == "");
  worker["resources"] = Json{{"gpus", 1}};
  const std::string why =
      "spec.worker.envFrom[0].prefix: must be given where workers have GPUs, and be no beginning "
      "of NVIDIA_VISIBLE_DEVICES, by which they would be given GPUs of others";
  CHECK(refusal(job) == why);
  for (const char* beginning : {"N", "NVIDIA_", "NVIDIA_VISIBLE_DEVICES"}) {
    worker["envFrom"][0]["prefix"] = beginning;
    CHECK(refusal(job) == why);
  }
  worker["envFrom"][0]["prefix"] = "NCCL_";
  CHECK(refusal(job) == "");
  // What runs before the worker has those that it asks for itself.
  Json& first = worker["initContainers"][0];
  first["envFrom"][0].erase("prefix");
  CHECK(refusal(job) == "");
  first["resources"]["gpus"] = 1;
  CHECK(refusal(job).starts_with("spec.worker.initContainers[0].envFrom[0].prefix: must be given"));
}
