#include "operator/api/pod.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/rng.h"
#include "operator/api/unread.h"
#include "tests/restricted.h"
#include "tests/test_main.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

const PodOptions kOptions{"https://10.0.0.1:9443", "PEM", "muster-worker:1"};

TrainingJob job_of(const Json& json) { return *parse_training_job(json); }

/// Of the first container of the list.
std::map<std::string, std::string> env_of(const Pod& pod, const char* list = "containers") {
  std::map<std::string, std::string> env;
  for (const auto& entry : pod.spec[list][0]["env"]) {
    const bool is_new =
        env.emplace(entry["name"].get<std::string>(), entry.value("value", "(from)")).second;
    CHECK_MESSAGE(is_new, entry["name"]);
  }
  return env;
}

const Json* volume_of(const Pod& pod, const std::string& name) {
  if (!pod.spec.contains("volumes")) return nullptr;
  for (const auto& volume : pod.spec["volumes"]) {
    if (volume["name"] == name) return &volume;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("names are short enough for a host name, and differ for jobs of the same name") {
  TrainingJob job = job_of(full_training_job());
  job.meta.name = std::string(kMaxJobNameBytes, 'a');
  const std::string name = pod_name(job, 4095, INT32_MAX);
  CHECK(name.size() <= 63);
  CHECK(name == service_name(job) + "-4095-2147483647");
  const std::string before = service_name(job);
  CHECK(service_name(job) == before);
  job.meta.uid = "another";
  CHECK(service_name(job) != before);
  CHECK(pod_selector(job) == "muster.dev/job-uid=another");
}

TEST_CASE("a pod meets Pod Security restricted, whatever the job asks") {
  for (const Json& json : {full_training_job(), full_program_job()}) {
    const Json spec = make_pod(job_of(json), {0, 1, "node-a", ""}, kOptions).spec;
    CHECK(spec["securityContext"]["runAsNonRoot"] == true);
    CHECK(spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
    CHECK(spec["securityContext"]["runAsUser"] != 0);
    REQUIRE(spec["containers"].size() == 1);
    const Json& container = spec["containers"][0];
    CHECK(container["securityContext"]["allowPrivilegeEscalation"] == false);
    CHECK(container["securityContext"]["capabilities"] == Json{{"drop", {"ALL"}}});
    const bool is_engine = json["spec"].contains("training");
    CHECK(container["securityContext"].value("readOnlyRootFilesystem", false) == is_engine);
    for (const char* forbidden :
         {"hostNetwork", "hostPID", "hostIPC", "ephemeralContainers", "hostUsers"}) {
      CHECK_FALSE(spec.contains(forbidden));
    }
    for (const auto& volume : spec["volumes"]) {
      CHECK(volume.size() == 2);
      for (const auto& [key, value] : volume.items()) {
        const bool allowed = key == "name" || key == "emptyDir" || key == "projected" ||
                             key == "secret" || key == "configMap" ||
                             key == "persistentVolumeClaim";
        CHECK_MESSAGE(allowed, key);
      }
    }
    if (container.contains("ports")) CHECK_FALSE(container["ports"][0].contains("hostPort"));
    CHECK(spec["automountServiceAccountToken"] == false);
    CHECK(spec["restartPolicy"] == "Never");
    CHECK(container["resources"]["requests"] == container["resources"]["limits"]);
    CHECK(container["terminationMessagePolicy"] == "FallbackToLogsOnError");
  }
}

TEST_CASE("a pod that is built is restricted, by the operator's own check too") {
  for (const Json& json :
       {least_training_job(), least_program_job(), full_training_job(), full_program_job(),
        gpt_training_job(), token_training_job(), table_training_job(), picture_training_job()}) {
    for (const auto& options : {kOptions, PodOptions{}}) {
      const Pod pod = make_pod(job_of(json), {0, 1, "node-a", ""}, options);
      const Status meets = check_restricted(pod);
      CHECK_MESSAGE(meets, meets.error().message());
      CHECK(restricted_findings(pod.spec).empty());
    }
  }
}

TEST_CASE("whatever would let a pod out of its box is refused, and named") {
  const Pod whole = make_pod(job_of(full_program_job()), {0, 1, "node-a", ""}, kOptions);
  struct Row {
    const char* pointer;
    Json value;
    const char* named;
  };
  const Row rows[] = {
      {"/hostNetwork", true, "--host-network-namespaces"},
      {"/hostPID", true, "spec.hostPID"},
      {"/hostIPC", true, "spec.hostIPC"},
      {"/hostUsers", true, "spec.hostUsers"},
      {"/shareProcessNamespace", true, "spec.shareProcessNamespace"},
      {"/nodeName", "n", "spec.nodeName"},
      {"/initContainers", Json::array(), "spec.initContainers"},
      {"/initContainers", 7, "spec.initContainers"},
      {"/initContainers/1/name", "worker", "spec.initContainers[1] is a second worker"},
      {"/initContainers/0/restartPolicy", "OnFailure", "spec.initContainers[0].restartPolicy"},
      {"/initContainers/1/restartPolicy", true, "spec.initContainers[1].restartPolicy"},
      {"/initContainers/1/ports", Json::array({{{"hostPort", 80}}}), "hostPort"},
      {"/initContainers/1/startupProbe", Json::object(), "startupProbe"},
      {"/containers/0/restartPolicy", "Always", "spec.containers[0].restartPolicy"},
      {"/initContainers/0/volumeMounts/0/mountPropagation", "Bidirectional", "mountPropagation"},
      {"/initContainers/0/envFrom/0/fileRef", Json::object(), "fileRef"},
      {"/initContainers/1/securityContext", nullptr, "securityContext"},
      {"/initContainers/1/securityContext/privileged", true, "privileged"},
      {"/initContainers/0/securityContext/capabilities/add", Json::array({"ALL"}), "capabilities"},
      {"/ephemeralContainers", Json::array(), "spec.ephemeralContainers"},
      {"/automountServiceAccountToken", true, "automountServiceAccountToken"},
      {"/containers/1", Json{{"name", "more"}}, "spec.containers"},
      {"/containers/0/name", "other", "the worker"},
      {"/containers/0/lifecycle", Json::object(), "lifecycle"},
      {"/containers/0/envFrom/0/fileRef", Json::object(), "fileRef"},
      {"/containers/0/volumeDevices", Json::array(), "volumeDevices"},
      {"/containers/0/ports/0/hostPort", 80, "hostPort"},
      {"/containers/0/ports/0/hostIP", "0.0.0.0", "hostIP"},
      {"/containers/0/volumeMounts/0/mountPropagation", "Bidirectional", "mountPropagation"},
      {"/containers/0/securityContext", nullptr, "securityContext"},
      {"/containers/0/securityContext/privileged", true, "privileged"},
      {"/containers/0/securityContext/procMount", "Unmasked", "procMount"},
      {"/containers/0/securityContext/runAsUser", 0, "runAsUser"},
      {"/containers/0/securityContext/allowPrivilegeEscalation", true, "allowPrivilegeEscalation"},
      {"/containers/0/securityContext/capabilities", nullptr, "capabilities"},
      {"/containers/0/securityContext/capabilities/drop", Json::array({"KILL"}), "capabilities"},
      {"/containers/0/securityContext/capabilities/add", Json::array({"ALL"}), "capabilities"},
      {"/securityContext", nullptr, "spec.securityContext"},
      {"/securityContext/runAsNonRoot", false, "runAsNonRoot"},
      {"/securityContext/runAsUser", 0, "runAsUser"},
      {"/securityContext/runAsGroup", 0, "runAsGroup"},
      {"/securityContext/fsGroup", "0", "fsGroup"},
      {"/securityContext/supplementalGroups", Json::array({0}), "supplementalGroups"},
      {"/securityContext/sysctls", Json::array(), "sysctls"},
      {"/securityContext/seccompProfile", nullptr, "seccompProfile"},
      {"/securityContext/seccompProfile/type", "Unconfined", "seccompProfile"},
      {"/volumes/0/hostPath", Json{{"path", "/"}}, "hostPath"},
      {"/volumes/0/csi", Json::object(), "csi"},
      {"/volumes", 7, "spec.volumes"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.pointer);
    Pod pod = whole;
    pod.spec = with(whole.spec, row.pointer, row.value);
    const Status meets = check_restricted(pod);
    REQUIRE_FALSE(meets);
    CHECK(meets.error().code() == ErrorCode::kForbidden);
    CHECK_MESSAGE(meets.error().message().find(row.named) != std::string::npos,
                  meets.error().message());
  }
}

namespace {

/// A worker of an own program that may ask for anything it may.
Json any_worker(Rng& rng) {
  const Json all = full_program_job()["spec"]["worker"];
  Json worker{{"command", all["command"]}};
  for (const auto& [field, value] : all.items()) {
    if (rng.below(2) == 0) worker[field] = value;
  }
  for (const char* field : {"volumeMounts", "initContainers"}) {
    if (worker.contains(field)) worker["volumes"] = all["volumes"];
  }
  return worker;
}

/// What somebody would try who wants more than a job gets, anywhere in `json`.
void try_more(Json& json, Rng& rng) {
  static const std::vector<std::pair<std::string, Json>> kTries{
      {"hostPath", Json{{"path", "/"}}},
      {"hostPort", 80},
      {"hostNetwork", true},
      {"hostPID", true},
      {"privileged", true},
      {"runAsUser", 0},
      {"procMount", "Unmasked"},
      {"serviceAccountToken", Json::object()},
      {"securityContext", Json{{"privileged", true}, {"capabilities", {{"add", {"ALL"}}}}}},
      {"initContainers", Json::array({Json{{"name", "x"}}})},
      {"automountServiceAccountToken", true},
      {"sysctls", Json::array({Json{{"name", "kernel.shm_rmid_forced"}}})},
      {"podSpecPatch", "{}"},
      {"nodeName", "n"},
      {"name", "muster-token"},
      {"readOnly", "no"},
      {"emptyDir", nullptr},
      {"projected", Json::object()}};
  Json* at = &json;
  while (at->is_structured() && !at->empty() && rng.below(3) != 0) {
    auto next = at->begin();
    std::advance(next, static_cast<std::ptrdiff_t>(rng.below(at->size())));
    if (!next->is_structured()) break;
    at = &*next;
  }
  if (!at->is_object()) return;
  const auto& [name, value] = kTries[rng.below(kTries.size())];
  (*at)[name] = value;
}

}  // namespace

TEST_CASE("of all pods that are built for jobs that are taken none is not restricted") {
  Rng rng(seed());
  const std::int64_t wanted = cases(test::tries(10'000));
  std::int64_t built = 0, refused = 0;
  // At least every other one asks for nothing that is forbidden.
  for (std::int64_t round = 0; built < wanted && round < 4 * wanted; ++round) {
    Json json = rng.below(3) == 0 ? full_training_job() : full_program_job();
    Json& spec = json["spec"];
    if (!spec.contains("training")) spec["worker"] = any_worker(rng);
    if (rng.below(2) == 0) try_more(rng.below(4) == 0 ? json : spec, rng);
    const auto job = parse_training_job(json);
    if (!job) {
      ++refused;
      continue;
    }
    const int slot = static_cast<int>(rng.below(2));
    const Pod pod = make_pod(*job, {slot, 0, "n", ""}, rng.below(2) == 0 ? kOptions : PodOptions{});
    ++built;
    const bool is_on_host = job->spec.worker.host_network;
    if (is_on_host) REQUIRE_FALSE(check_restricted(pod));
    const Status meets = check_restricted(pod, {is_on_host ? "*" : "other"});
    REQUIRE_MESSAGE(meets, meets.error().message() << " in " << dump_json(json));
    const std::vector<std::string> findings(is_on_host ? 1 : 0, "hostNetwork");
    REQUIRE_MESSAGE(restricted_findings(pod.spec) == findings, dump_json(pod.spec));
  }
  MESSAGE(built << " pods built, " << refused << " jobs refused");
  CHECK(built == wanted);
  CHECK(refused > wanted / 10);
}

TEST_CASE(
    "what the operator's own check lets through is restricted, whatever was done to the pod") {
  Rng rng(seed() + 1);
  const Json whole = make_pod(job_of(full_program_job()), {0, 1, "n", ""}, kOptions).spec;
  const std::int64_t wanted = cases(test::tries(20'000));
  std::int64_t let_through = 0, refused = 0;
  for (std::int64_t i = 0; i < wanted; ++i) {
    Pod pod;
    pod.spec = whole;
    Json& place = rng.below(3) == 0   ? pod.spec
                  : rng.below(2) == 0 ? pod.spec["securityContext"]
                                      : pod.spec["containers"][0];
    if (rng.below(4) == 0) {
      auto gone = place.begin();
      std::advance(gone, static_cast<std::ptrdiff_t>(rng.below(place.size())));
      place.erase(gone);
    } else {
      try_more(place, rng);
    }
    const bool meets = check_restricted(pod).has_value();
    meets ? ++let_through : ++refused;
    if (meets) REQUIRE_MESSAGE(restricted_findings(pod.spec).empty(), dump_json(pod.spec));
  }
  CHECK(let_through > wanted / 50);
  CHECK(refused > wanted / 4);
}

TEST_CASE("a pod of the built-in engine says who it is and is pinned to its node") {
  const TrainingJob job = job_of(full_training_job());
  const Pod pod = make_pod(job, {1, 3, "node-a", "r1"}, kOptions);
  CHECK(pod.meta.name == pod_name(job, 1, 3));
  CHECK(pod.meta.namespace_name == "research");
  CHECK(pod.slot() == 1);
  CHECK(pod.attempt() == 3);
  CHECK(pod.required_node == "node-a");
  REQUIRE(pod.meta.controller() != nullptr);
  CHECK(pod.meta.controller()->uid == "u-1");
  CHECK(pod.meta.labels.at("muster.dev/job-uid") == "u-1");
  CHECK(pod.meta.labels.at("muster.dev/job-name") == "digits");
  CHECK(pod.spec["hostname"] == pod.meta.name);
  CHECK(pod.spec["subdomain"] == service_name(job));
  CHECK(pod.spec["affinity"] == required_node_affinity("node-a"));
  CHECK(pod.spec["priorityClassName"] == "high");
  const Json& container = pod.spec["containers"][0];
  CHECK(container["name"] == "worker");
  CHECK(container["image"] == "registry.example/worker:1");
  CHECK(container["resources"]["limits"] == Json{{"cpu", "1500m"},
                                                 {"memory", "1073741824"},
                                                 {"amd.com/gpu", "2"},
                                                 {"ephemeral-storage", "21474836480"},
                                                 {"rdma/hca_a", "1"},
                                                 {"vpc.amazonaws.com/efa", "4"}});

  const auto env = env_of(pod);
  CHECK(env.at("MUSTER_JOB") == "research/digits");
  CHECK(env.at("MUSTER_SLOT") == "1");
  CHECK(env.at("MUSTER_ATTEMPT") == "3");
  CHECK(env.at("MUSTER_WORKERS") == "2");
  CHECK(env.at("MUSTER_PROCESSES") == "2");
  CHECK(env.at("MUSTER_ENDPOINT") == "https://10.0.0.1:9443");
  CHECK(env.at("MUSTER_CA_CERT") == "PEM");
  CHECK(env.at("MUSTER_TOKEN_FILE") == "/var/run/secrets/muster.dev/token");
  CHECK(env.count("RANK") == 0);
  CHECK(env.count("NVIDIA_VISIBLE_DEVICES") == 0);
  CHECK(env.at("MUSTER_GPUS") == "2");
}

TEST_CASE("a job without GPUs sees none, and the chart's image is the default") {
  const Pod pod = make_pod(job_of(least_training_job()), {0, 0, "", ""}, {"", "", "muster:1"});
  const auto env = env_of(pod);
  CHECK(env.at("NVIDIA_VISIBLE_DEVICES") == "void");
  CHECK(env.count("MUSTER_GPUS") == 0);
  CHECK(env.count("MUSTER_ENDPOINT") == 0);
  CHECK(env.count("MUSTER_TOKEN_FILE") == 0);
  CHECK(pod.spec["containers"][0]["image"] == "muster:1");
  // Kubernetes' own default goes by the image's tag.
  CHECK_FALSE(pod.spec["containers"][0].contains("imagePullPolicy"));
  CHECK_FALSE(pod.spec.contains("affinity"));
  CHECK_FALSE(pod.spec.contains("volumes"));
}

TEST_CASE("a worker of the built-in engine serves its metrics on a named port, once") {
  PodOptions options = kOptions;
  options.worker_metrics_port = 9095;
  TrainingJob job = job_of(least_training_job());
  const Pod pod = make_pod(job, {0, 0, "n", ""}, options);
  CHECK(env_of(pod).at("MUSTER_METRICS_PORT") == "9095");
  const Json expected =
      Json::parse(R"([{"name": "metrics", "containerPort": 9095, "protocol": "TCP"}])");
  CHECK(pod.spec["containers"][0]["ports"] == expected);
  // The job's own port of that name stays, and the pod stays valid.
  job.spec.worker.pod_fields["ports"] = Json::parse(R"([{"name": "metrics", "containerPort": 1}])");
  CHECK(make_pod(job, {0, 0, "n", ""}, options).spec["containers"][0]["ports"].size() == 1);
  // Without the option, and for own programs, there is none.
  CHECK(env_of(make_pod(job_of(least_training_job()), {0, 0, "n", ""}, kOptions))
            .count("MUSTER_METRICS_PORT") == 0);
  CHECK(env_of(make_pod(job_of(full_program_job()), {0, 0, "n", ""}, options))
            .count("MUSTER_METRICS_PORT") == 0);
}

TEST_CASE("slot 0 alone holds the checkpoint's claim") {
  const TrainingJob job = job_of(full_training_job());
  const Pod first = make_pod(job, {0, 0, "n", ""}, kOptions);
  const Pod second = make_pod(job, {1, 0, "n", ""}, kOptions);
  REQUIRE(volume_of(first, "muster-checkpoint") != nullptr);
  CHECK((*volume_of(first, "muster-checkpoint"))["persistentVolumeClaim"]["claimName"] == "claim");
  REQUIRE(volume_of(second, "muster-checkpoint") != nullptr);
  CHECK(volume_of(second, "muster-checkpoint")->contains("emptyDir"));
  const Json* token = volume_of(first, "muster-token");
  REQUIRE(token != nullptr);
  CHECK((*token)["projected"]["sources"][0]["serviceAccountToken"] ==
        Json{{"audience", "muster"}, {"expirationSeconds", 3600}, {"path", "token"}});
  // Whoever the container runs as, the kubelet gives the token to the pod's group.
  CHECK((*token)["projected"]["defaultMode"] == 0440);
  CHECK(first.spec["securityContext"]["fsGroup"] == first.spec["securityContext"]["runAsGroup"]);
}

TEST_CASE("a worker in a cluster is told its pod's address, and one on a laptop is not") {
  const auto pod_ip = [](const PodOptions& options) {
    const Pod pod = make_pod(job_of(full_training_job()), {0, 0, "n", ""}, options);
    for (const Json& variable : pod.spec["containers"][0]["env"]) {
      if (variable["name"] == "MUSTER_POD_IP") return variable;
    }
    return Json();
  };
  CHECK(pod_ip(kOptions)["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP");
  CHECK(pod_ip({"http://127.0.0.1:9443", "", "muster:1"}).is_null());
}

TEST_CASE("a worker that trains is told its node, and an own program nothing that it did not ask") {
  const auto node = [](const Json& job) {
    const Pod pod = make_pod(job_of(job), {0, 0, "n", ""}, kOptions);
    for (const Json& variable : pod.spec["containers"][0]["env"]) {
      if (variable["name"] == "MUSTER_NODE") return variable;
    }
    return Json();
  };
  CHECK(node(full_training_job())["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName");
  CHECK(node(full_program_job()).is_null());
}

TEST_CASE("a worker that trains is told where its node stands, where that is known") {
  const auto rack = [](const Json& job, const SlotPlacement& placement) {
    const auto env = env_of(make_pod(job_of(job), placement, kOptions));
    const auto found = env.find("MUSTER_RACK");
    return found == env.end() ? "" : found->second;
  };
  CHECK(rack(full_training_job(), {0, 0, "n", "z1/b2/r3"}) == "z1/b2/r3");
  // Where hosts are a level of the topology, what is above them.
  CHECK(rack(full_training_job(), {0, 0, "n", "z1/b2/r3/n"}) == "z1/b2/r3");
  CHECK(rack(full_training_job(), {0, 0, "n", "n"}).empty());
  CHECK(rack(full_training_job(), {0, 0, "n", ""}).empty());
  CHECK(rack(full_program_job(), {0, 0, "n", "z1/b2/r3"}).empty());
}

TEST_CASE("an own program finds its gang by the names it knows") {
  Json json = full_program_job();
  json["spec"]["worker"]["count"] = 3;
  json["spec"]["worker"]["processes"] = 4;
  TrainingJob job = job_of(json);
  const std::string service = service_name(job);
  const std::string master = service + "-0-5." + service + ".research.svc";
  auto env = env_of(make_pod(job, {2, 5, "n", ""}, kOptions));
  CHECK(env.at("RANK") == "8");
  CHECK(env.at("LOCAL_RANK") == "0");
  CHECK(env.at("WORLD_SIZE") == "12");
  CHECK(env.at("MASTER_ADDR") == master);
  CHECK(env.at("MASTER_PORT") == "29500");
  CHECK(env.at("PET_NNODES") == "3");
  CHECK(env.at("PET_NPROC_PER_NODE") == "4");
  CHECK(env.at("PET_NODE_RANK") == "2");
  CHECK(env.at("PET_RDZV_BACKEND") == "static");
  CHECK(env.at("PET_RDZV_ENDPOINT") == master + ":29500");
  CHECK(env.at("PET_RDZV_ID") == service + "-5");
  CHECK(env.at("A") == "1");
  CHECK(env.at("B") == "(from)");
  const Json tf = *parse_json(env.at("TF_CONFIG"));
  CHECK(tf["cluster"]["worker"].size() == 3);
  CHECK(tf["cluster"]["worker"][0] == master + ":29500");
  CHECK(tf["task"] == Json{{"type", "worker"}, {"index", 2}});

  CHECK(env.count("PET_RDZV_CONF") == 0);

  job.status.target_workers = 2;
  CHECK(env_of(make_pod(job, {1, 5, "n", ""}, kOptions)).at("WORLD_SIZE") == "8");
  job.status.target_workers = kMaxTfConfigWorkers + 1;
  CHECK(env_of(make_pod(job, {1, 5, "n", ""}, kOptions)).count("TF_CONFIG") == 0);
}

TEST_CASE("an own program takes as many threads as its job says, unless the job says it itself") {
  Json json = full_program_job();
  json["spec"]["worker"]["resources"] = Json{{"cpu", "6"}};
  json["spec"]["worker"]["processes"] = 2;
  json["spec"]["worker"].erase("threads");
  const auto threads = [&] {
    return env_of(make_pod(job_of(json), {0, 0, "n", ""}, kOptions)).at("OMP_NUM_THREADS");
  };
  CHECK(threads() == "3");
  json["spec"]["worker"]["threads"] = 5;
  CHECK(threads() == "5");
  json["spec"]["worker"]["env"].push_back(Json{{"name", "OMP_NUM_THREADS"}, {"value", "1"}});
  CHECK(threads() == "1");
}

TEST_CASE("torchrun is told the range of an elastic gang, and counts itself who is there") {
  Json json = full_program_job();
  json["spec"]["worker"]["count"] = 3;
  json["spec"]["worker"]["min"] = 2;
  json["spec"]["worker"]["max"] = 5;
  const TrainingJob job = job_of(json);
  for (const int slot : {0, 2}) {
    const auto env = env_of(make_pod(job, {slot, 1, "n", ""}, kOptions));
    CHECK(env.at("PET_NNODES") == "2:5");
    CHECK(env.at("PET_RDZV_BACKEND") == "c10d");
    CHECK(env.at("PET_RDZV_CONF") ==
          std::string("is_host=") + (slot == 0 ? "true" : "false") + ",last_call_timeout=10");
    CHECK(env.at("WORLD_SIZE") == "3");
  }
}

TEST_CASE("an own program in a cluster has a home it can write to, unless it names another") {
  Json json = full_program_job();
  const auto home_of = [&](const PodOptions& options) {
    const auto env = env_of(make_pod(job_of(json), {0, 0, "n", ""}, options));
    return env.count("HOME") == 0 ? "none" : env.at("HOME");
  };
  CHECK(home_of(kOptions) == "/tmp");
  CHECK(home_of({"http://127.0.0.1:9443", "", "muster:1"}) == "none");
  json["spec"]["worker"]["env"].push_back(Json{{"name", "HOME"}, {"value", "/work"}});
  CHECK(home_of(kOptions) == "/work");
  const auto env = env_of(make_pod(job_of(json), {0, 0, "n", ""}, kOptions));
  CHECK(env.at("USER") == "worker");
  CHECK(env_of(make_pod(job_of(full_training_job()), {0, 0, "n", ""}, kOptions)).count("HOME") ==
        0);
}

TEST_CASE("what an own program asked of its pod is there") {
  const Pod pod = make_pod(job_of(full_program_job()), {0, 0, "n", ""}, kOptions);
  const Json asked = full_program_job()["spec"]["worker"];
  for (const char* field :
       {"nodeSelector", "tolerations", "imagePullSecrets", "serviceAccountName", "runtimeClassName",
        "schedulerName", "resourceClaims", "terminationGracePeriodSeconds"}) {
    CHECK_MESSAGE(pod.spec.value(field, Json()) == asked[field], std::string(field));
  }
  for (const char* field : {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}) {
    CHECK_MESSAGE(pod.spec["securityContext"][field] == asked[field], std::string(field));
  }
  CHECK_MESSAGE(check_restricted(pod), check_restricted(pod).error().message());
  const Json& container = pod.spec["containers"][0];
  CHECK(container["command"] == asked["command"]);
  CHECK(container["args"] == asked["args"]);
  CHECK(container["ports"] == asked["ports"]);
  CHECK(container["imagePullPolicy"] == "Always");
  // In this order, and below all that stands in env: of one name the last one counts, and env's.
  CHECK(container["envFrom"] == asked["envFrom"]);
  CHECK(container["resources"]["claims"] == Json::array({{{"name", "a"}}, {{"name", "b"}}}));
  CHECK(container["volumeMounts"][0] == asked["volumeMounts"][0]);
  const Json* memory = volume_of(pod, "muster-shm");
  REQUIRE(memory != nullptr);
  CHECK((*memory)["emptyDir"] == Json{{"medium", "Memory"}, {"sizeLimit", "1Gi"}});
}

TEST_CASE(
    "what a job has run before its workers is in each pod, in order, hardened like they are") {
  const TrainingJob job = job_of(full_program_job());
  const Pod pod = make_pod(job, {1, 2, "n", ""}, kOptions);
  REQUIRE(pod.spec["initContainers"].size() == 3);
  const Json& fetch = pod.spec["initContainers"][0];
  const Json& tunnel = pod.spec["initContainers"][1];
  const Json& count = pod.spec["initContainers"][2];
  const Json& worker = pod.spec["containers"][0];
  CHECK(fetch["name"] == "fetch");
  CHECK(fetch["image"] == "curl:8");
  CHECK(fetch["imagePullPolicy"] == "IfNotPresent");
  CHECK(fetch["command"] == Json{"sh", "-c"});
  CHECK(fetch["args"] == Json{"curl"});
  CHECK(fetch["workingDir"] == "/data/new");
  CHECK(fetch["envFrom"] == full_program_job()["spec"]["worker"]["initContainers"][0]["envFrom"]);
  CHECK(fetch["volumeMounts"][0]["mountPath"] == "/data");
  CHECK_FALSE(fetch.contains("restartPolicy"));
  CHECK(tunnel["restartPolicy"] == "Always");
  CHECK(tunnel["resources"]["requests"] == Json{{"cpu", "100m"}, {"memory", "67108864"}});
  // The image that is left out is the worker's, and pulled like it.
  CHECK(count["image"] == worker["image"]);
  CHECK(count["imagePullPolicy"] == worker["imagePullPolicy"]);
  CHECK(count["command"] == Json{"count"});
  CHECK(count["resources"]["requests"] == worker["resources"]["requests"]);
  for (const Json* one : {&fetch, &tunnel, &count}) {
    CHECK((*one)["securityContext"] == worker["securityContext"]);
    CHECK((*one)["terminationMessagePolicy"] == "FallbackToLogsOnError");
    CHECK((*one)["resources"]["requests"] == (*one)["resources"]["limits"]);
  }
  const auto env = env_of(pod, "initContainers");
  CHECK(env.at("MUSTER_JOB") == "research/own");
  CHECK(env.at("MUSTER_SLOT") == "1");
  CHECK(env.at("MUSTER_ATTEMPT") == "2");
  CHECK(env.at("HOME") == "/tmp");
  CHECK(env.at("NVIDIA_VISIBLE_DEVICES") == "void");
  CHECK(env.at("A") == "1");
  CHECK(env.at("B") == "(from)");
  // Neither a way to the operator nor a token is its business.
  CHECK_FALSE(env.contains("MUSTER_ENDPOINT"));
  for (const Json& mount : fetch["volumeMounts"]) CHECK(mount["name"] != "muster-token");
  CHECK_FALSE(count.contains("volumeMounts"));
  CHECK_FALSE(make_pod(job_of(least_program_job()), {0, 0, "", ""}, kOptions)
                  .spec.contains("initContainers"));
}

TEST_CASE("a pod takes as much as the one of its containers that takes most") {
  const Json whole = with(full_training_job(), "/spec/worker/initContainers/1",
                          *parse_json(R"({"name": "more", "image": "a",
                                          "resources": {"memory": "3Gi"}})"));
  for (const Json& json : {full_training_job(), full_program_job(), whole}) {
    const TrainingJob job = job_of(json);
    const Pod pod = make_pod(job, {0, 0, "n", ""}, kOptions);
    // As the scheduler and the kubelet read it.
    CHECK(parse_pod(to_json(pod))->requests == pod.requests);
    CHECK(pod.requests == PodRequests(pod_resources(job.spec.worker)));
  }
  const PodRequests requests = make_pod(job_of(whole), {0, 0, "n", ""}, kOptions).requests;
  CHECK(requests.cpu_millis == 2000);
  CHECK(requests.memory_bytes == std::int64_t{3} << 30);
  CHECK(requests.devices ==
        std::map<std::string, std::int64_t>{{"amd.com/gpu", 2},
                                            {"ephemeral-storage", std::int64_t{30} << 30},
                                            {"rdma/hca_a", 1},
                                            {"vpc.amazonaws.com/efa", 4}});
  const Json check = make_pod(job_of(whole), {0, 0, "n", ""}, kOptions).spec["initContainers"][0];
  CHECK(check["resources"]["limits"]["amd.com/gpu"] == "1");
  CHECK_FALSE(check["resources"]["limits"].contains("vpc.amazonaws.com/efa"));
  // Who has GPUs is told by the device plugin which.
  for (const Json& variable : check["env"]) CHECK(variable["name"] != "NVIDIA_VISIBLE_DEVICES");
}

TEST_CASE("which nodes a job selects is for whoever chooses its node") {
  const Json json = full_program_job();
  const TrainingJob job = job_of(json);
  REQUIRE(job.spec.worker.node_terms.size() == 2);
  CHECK(job.spec.worker.node_terms[0].labels[1] == NodeRequirement{"x.io/cores", "Gt", {"31"}});
  CHECK(job.spec.worker.node_terms[1].fields[0] ==
        NodeRequirement{"metadata.name", "NotIn", {"n9"}});
  CHECK(make_pod(job, {0, 0, "", ""}, kOptions).spec["affinity"] ==
        json["spec"]["worker"]["affinity"]);
  const Pod placed = make_pod(job, {0, 0, "n", ""}, kOptions);
  CHECK(placed.spec["affinity"] == required_node_affinity("n"));
  CHECK(parse_pod(to_json(placed))->required_node == "n");
}

TEST_CASE("a worker with devices bears the taints that are named after them") {
  Json json = full_program_job();
  const Json own = json["spec"]["worker"]["tolerations"];
  const auto borne = [&] {
    return make_pod(job_of(json), {0, 0, "n", ""}, kOptions).spec.value("tolerations", Json());
  };
  const Json of_gpus{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}};
  const Json of_net{{"key", "rdma/hca"}, {"operator", "Exists"}};
  json["spec"]["worker"]["resources"] =
      Json{{"gpus", 1}, {"devices", {{"rdma/hca", 2}}}, {"ephemeralStorage", "1Gi"}};
  CHECK(borne() == Json::array({own[0], of_gpus, of_net}));
  json["spec"]["worker"]["tolerations"] = Json::array({of_net});
  CHECK(borne() == Json::array({of_net, of_gpus}));
  json["spec"]["worker"].erase("tolerations");
  CHECK(borne() == Json::array({of_gpus, of_net}));
  json["spec"]["worker"].erase("resources");
  CHECK(borne().is_null());
}

TEST_CASE("a gang that cannot lose a worker asks to be left alone, unless the job says otherwise") {
  TrainingJob job = job_of(full_training_job());
  job.spec.worker.min = job.spec.worker.max = job.spec.worker.count;
  const auto asked = [&](const char* key) {
    const auto& annotations = make_pod(job, {0, 0, "", ""}, kOptions).meta.annotations;
    const auto found = annotations.find(key);
    return found == annotations.end() ? std::string("nothing") : found->second;
  };
  const char* karpenter = "karpenter.sh/do-not-disrupt";
  const char* autoscaler = "cluster-autoscaler.kubernetes.io/safe-to-evict";
  CHECK(asked(karpenter) == "true");
  CHECK(asked(autoscaler) == "false");
  job.meta.annotations = {{karpenter, "false"}, {autoscaler, "never\nmind"}};
  CHECK(asked(karpenter) == "false");
  CHECK(asked(autoscaler) == "false");
  job.spec.worker.max += 1;
  CHECK(asked(karpenter) == "false");
  CHECK(asked(autoscaler) == "nothing");
}

TEST_CASE("pods get of their job's labels and annotations what an administrator names") {
  TrainingJob job = job_of(full_training_job());
  job.meta.labels = {{"team", "a"},
                     {"cost-center", "7"},
                     {"cost", "none"},
                     {"sidecar.istio.io/inject", "false"},
                     {"app.kubernetes.io/part-of", "lab"},
                     {"app.kubernetes.io/name", "other"},
                     {"muster.dev/slot", "9"}};
  job.meta.annotations = {{"vault.hashicorp.com/agent-inject", "true"},
                          {"container.apparmor.security.beta.kubernetes.io/worker", "unconfined"},
                          {"cdi.k8s.io/gpu", "all"},
                          {"kueue.x-k8s.io/pod-group-name", "other"},
                          {"kubectl.kubernetes.io/default-container", "other"},
                          {"karpenter.sh/do-not-disrupt", "false"}};
  const ObjectMeta plain = make_pod(job, {0, 0, "", ""}, kOptions).meta;
  CHECK_FALSE(plain.labels.contains("team"));
  PodOptions options = kOptions;
  options.copied_names = {"team", "cost-*", "sidecar.istio.io/*", "app.*", "vault.hashicorp.com/*"};
  ObjectMeta meta = make_pod(job, {0, 0, "", ""}, options).meta;
  std::map<std::string, std::string> labels = plain.labels;
  labels.merge(std::map<std::string, std::string>{{"team", "a"},
                                                  {"cost-center", "7"},
                                                  {"sidecar.istio.io/inject", "false"},
                                                  {"app.kubernetes.io/part-of", "lab"}});
  CHECK(meta.labels == labels);
  CHECK(meta.annotations.at("vault.hashicorp.com/agent-inject") == "true");
  CHECK(meta.annotations.size() == plain.annotations.size() + 1);
  // Whatever is asked for.
  options.copied_names = {"m*", "c*", "k*", "app.kubernetes.io/name", "muster.dev/slot"};
  meta = make_pod(job, {0, 0, "", ""}, options).meta;
  CHECK(meta.annotations == plain.annotations);
  CHECK(meta.labels.at("app.kubernetes.io/name") == "muster");
  CHECK(meta.labels.at("muster.dev/slot") == "0");
}

TEST_CASE("a pod names the queue whose quota it holds, where status tells one") {
  TrainingJob job = job_of(full_training_job());
  const auto label_of = [&](const std::string& queue) {
    job.status.queue = queue;
    const auto labels = make_pod(job, {1, 3, "node-a", "r1"}, kOptions).meta.labels;
    const auto found = labels.find("muster.dev/queue");
    return found == labels.end() ? std::string("none") : found->second;
  };
  CHECK(label_of("") == "none");
  CHECK(label_of("research") == "research");
  CHECK(label_of("not a name") == "none");
  CHECK(label_of(std::string(63, 'q')) == std::string(63, 'q'));
  CHECK(label_of(std::string(64, 'q')) == "none");
}

TEST_CASE("names of what pods get of their job's metadata are checked before any job is there") {
  for (const char* right : {"team", "cost-*", "sidecar.istio.io/inject", "app.kubernetes.io/*",
                            "azure.workload.identity/use", "k*", "not-kubernetes.io/x"}) {
    CHECK_MESSAGE(check_copied_names(right), right);
  }
  for (const char* wrong : {"", "*", "a b", "a/b/c", "-x", "a,b", "t\xC3\xA4*"}) {
    const Status status = check_copied_names(wrong);
    REQUIRE_MESSAGE(!status, wrong);
    CHECK(status.error().message().starts_with("must be names of labels"));
  }
  for (const char* closed : {"muster.dev/*", "kubernetes.io/x", "cdi.k8s.io/*", "x-k8s.io/a",
                             "kueue.x-k8s.io/queue-name", "node.kubernetes.io/*"}) {
    const Status status = check_copied_names(closed);
    REQUIRE_MESSAGE(!status, closed);
    CHECK(status.error().message().starts_with("must leave out \"" + std::string(closed)));
  }
}

TEST_CASE("a pod that is written is read back") {
  Pod pod = make_pod(job_of(full_training_job()), {1, 2, "node-a", ""}, kOptions);
  pod.node_name = "node-a";
  pod.phase = PodPhase::kFailed;
  pod.reason = "Evicted";
  pod.message = "low on memory";
  pod.pod_ip = "10.1.2.3";
  pod.ready = true;
  pod.image_id = "sha256:1";
  pod.termination = Termination{25, 9, "Error", "peer lost"};
  pod.is_disrupted = true;
  pod.bound_at = WallTime(seconds(1'700'000'000));
  Pod again = *parse_pod(to_json(pod));
  pod.spec = Json::object();
  CHECK(again == pod);
  again.requests.devices["vpc.amazonaws.com/efa"] = 1;
  CHECK(*parse_pod(to_json(again)) == again);
  CHECK(again.ended());
  again.bound_at.reset();
  again.unbound_since = WallTime(seconds(1'700'000'000));
  CHECK(*parse_pod(to_json(again)) == again);
}

TEST_CASE("why a pod does not start is read from where Kubernetes says it") {
  Json json = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/3 nodes"}]}})");
  CHECK(parse_pod(json)->reason == "Unschedulable");
  CHECK(parse_pod(json)->message == "0/3 nodes");
  CHECK(parse_pod(json)->slot() == -1);
  json["status"] = *parse_json(R"({"phase": "Pending", "containerStatuses": [{"name": "worker",
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]})");
  CHECK(parse_pod(json)->reason == "ImagePullBackOff");
  json["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] = "ContainerCreating";
  CHECK(parse_pod(json)->reason == "");
  json["status"]["containerStatuses"][0]["name"] = "sidecar";
  json["status"]["containerStatuses"][0]["state"] = Json{{"terminated", {{"exitCode", 1}}}};
  CHECK_FALSE(parse_pod(json)->termination);
}

TEST_CASE("since when a pod has or lacks its node is read, and a time that is none hides no pod") {
  const auto scheduled = [](const char* status, const std::string& time) {
    Json pod{{"metadata", {{"name", "p"}, {"namespace", "n"}, {"uid", "u"}}}};
    pod["status"]["conditions"] =
        Json::array({{{"type", "PodScheduled"}, {"status", status}, {"lastTransitionTime", time}}});
    const auto read = parse_pod(pod);
    REQUIRE(read);
    return *read;
  };
  const std::string time = "2023-11-14T22:13:20Z";
  CHECK(scheduled("True", time).bound_at == WallTime(seconds(1'700'000'000)));
  CHECK_FALSE(scheduled("True", time).unbound_since);
  CHECK(scheduled("False", time).unbound_since == WallTime(seconds(1'700'000'000)));
  CHECK_FALSE(scheduled("False", time).bound_at);
  for (const char* none : {"yesterday", ""}) {
    CHECK_FALSE(scheduled("True", none).bound_at);
    CHECK_FALSE(scheduled("False", none).unbound_since);
  }
}

TEST_CASE("what a pod takes is counted as the cluster's scheduler does") {
  const auto requests = [](const char* spec) {
    return parse_pod(Json{{"metadata", {{"name", "p"}}}, {"spec", *parse_json(spec)}})->requests;
  };
  PodRequests found = requests(R"({"containers": [
    {"resources": {"requests": {"cpu": "1", "aws.amazon.com/neuron": "2", "hugepages-2Mi": "4Mi"}}},
    {"resources": {"requests": {"memory": "1Ki", "aws.amazon.com/neuron": 1,
                                "nvidia.com/mig-1g.10gb": "3", "x.io/none": "0"}}}]})");
  CHECK(found.cpu_millis == 1000);
  CHECK(found.memory_bytes == 1024);
  CHECK(found.devices == std::map<std::string, std::int64_t>{{"aws.amazon.com/neuron", 3},
                                                             {"nvidia.com/mig-1g.10gb", 3}});
  found = requests(R"({"containers": [{"resources": {"requests": {"ephemeral-storage": "2Gi"}}},
    {"resources": {"requests": {"ephemeral-storage": 1}}}]})");
  CHECK(found.devices ==
        std::map<std::string, std::int64_t>{{"ephemeral-storage", (std::int64_t{2} << 30) + 1}});
  // One that starts first and ends takes what the others need only later; one that stays does not.
  const std::string first = R"({"initContainers": [
    {"resources": {"requests": {"cpu": "500m"}}, "restartPolicy": "Always"},
    {"resources": {"requests": {"cpu": "2", "x.io/y": "1"}}},
    {"resources": {"requests": {"cpu": "100m"}}, "restartPolicy": "Always"}],)";
  found = requests((first + R"("containers": [{"resources": {"requests": {"cpu": "1"}}}],
    "overhead": {"cpu": "50m", "memory": "10"}})")
                       .c_str());
  CHECK(found.cpu_millis == 2550);
  CHECK(found.memory_bytes == 10);
  CHECK(found.devices == std::map<std::string, std::int64_t>{{"x.io/y", 1}});
  found =
      requests((first + R"("containers": [{"resources": {"requests": {"cpu": "3"}}}]})").c_str());
  CHECK(found.cpu_millis == 3600);
  // What the pod asks for itself counts instead, where it does, and never of devices.
  found = requests((first + R"("containers": [{"resources": {"requests": {"memory": "7"}}}],
    "resources": {"requests": {"cpu": "5", "x.io/y": "9"}}, "overhead": {"cpu": "50m"}})")
                       .c_str());
  CHECK(found.cpu_millis == 5050);
  CHECK(found.memory_bytes == 7);
  CHECK(found.devices == std::map<std::string, std::int64_t>{{"x.io/y", 1}});
}

TEST_CASE("a pod whose first containers do not start says which of them waits for what") {
  Json json = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Pending",
    "initContainerStatuses": [
      {"name": "a", "state": {"terminated": {"exitCode": 0}}},
      {"name": "proxy", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such"}}},
      {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}}],
    "containerStatuses": [
      {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  const Pod pod = *parse_pod(json);
  CHECK(pod.reason == "ErrImagePull");
  CHECK(pod.message == "init container proxy: no such");
  CHECK_FALSE(pod.termination);
  CHECK(parse_pod(*parse_json(dump_json(json), unread_of(Kind::kPod)))->reason == "ErrImagePull");
  // One that stays and starts again says nothing of a worker that runs.
  json["status"]["phase"] = "Running";
  CHECK(parse_pod(json)->reason == "");
}

TEST_CASE("a pod says which container runs before its worker, and which failed there") {
  Json json = *parse_json(R"({"metadata": {"name": "p"}, "status": {"phase": "Pending",
    "initContainerStatuses": [
      {"name": "mesh", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
      {"name": "fetch", "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
      {"name": "count", "state": {"waiting": {"reason": "PodInitializing"}}}],
    "containerStatuses": [
      {"name": "worker", "state": {"waiting": {"reason": "PodInitializing"}}}]}})");
  CHECK(parse_pod(json)->initializing == "fetch");
  CHECK_FALSE(parse_pod(json)->init_failure);
  Json& status = json["status"];
  status["phase"] = "Running";
  CHECK(parse_pod(json)->initializing == "");
  status["phase"] = "Failed";
  status["initContainerStatuses"][0]["state"] = Json{{"terminated", {{"exitCode", 0}}}};
  status["initContainerStatuses"][1]["state"] =
      Json{{"terminated", {{"exitCode", 7}, {"reason", "Error"}, {"message", "no such bucket"}}}};
  status["initContainerStatuses"][2]["state"] = Json{{"terminated", {{"exitCode", 8}}}};
  const Pod pod = *parse_pod(json);
  CHECK(*pod.init_failure == Termination{7, 0, "Error", "no such bucket", "fetch"});
  CHECK_FALSE(pod.termination);
  CHECK(*parse_pod(*parse_json(dump_json(json), unread_of(Kind::kPod))) == pod);
  CHECK(parse_pod(to_json(pod))->init_failure == pod.init_failure);
  // Once the worker has begun its own end is the pod's.
  status["containerStatuses"][0]["state"] = Json{{"terminated", {{"exitCode", 3}}}};
  CHECK_FALSE(parse_pod(json)->init_failure);
  CHECK(parse_pod(json)->termination->container == "");
}

TEST_CASE("hostile pods are refused or bounded") {
  Json json = *parse_json(R"({"metadata": {"name": "p",
      "labels": {"muster.dev/slot": "99999999999999", "muster.dev/attempt": "-3"}},
    "spec": {"containers": [
      {"resources": {"requests": {"cpu": "9000000000000", "memory": "7Ei"}}},
      {"resources": {"requests": {"cpu": "9000000000000", "memory": "7Ei"}}}]}})");
  CHECK(parse_pod(json)->slot() == -1);
  CHECK(parse_pod(json)->attempt() == -1);
  CHECK(parse_pod(json)->requests.memory_bytes == INT64_MAX);
  json["status"] = *parse_json(R"({"containerStatuses": [{"name": "worker",
    "state": {"terminated": {"exitCode": 1}}}]})");
  json["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
      std::string(20'000, 'x');
  CHECK(parse_pod(json)->termination->message.size() == 4096);
  json["spec"] = 3;
  CHECK(parse_pod(json).error().message().starts_with("spec: must be an object"));
  CHECK_FALSE(parse_pod(Json("x")));
}

TEST_CASE("a pod that asks for more kinds of devices than any node has is not kept") {
  Json pod{{"metadata", {{"name", "p"}}},
           {"spec", {{"containers", Json::array({Json::object()})}}}};
  Json& requests = pod["spec"]["containers"][0]["resources"]["requests"];
  for (int i = 0; i < 256; ++i) requests["x.io/" + std::to_string(i)] = "1";
  REQUIRE(parse_pod(pod));
  CHECK(parse_pod(pod)->requests.devices.size() == 256);
  requests["x.io/one-more"] = "1";
  CHECK_FALSE(parse_pod(pod));
}

TEST_CASE("a node offers what it can be read to offer") {
  const Json json = *parse_json(R"({"metadata": {"name": "n"},
    "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "3920m", "memory": "8Gi", "pods": "110",
      "nvidia.com/gpu": "8", "hugepages-2Mi": "0", "odd.example/x": "many"},
      "conditions": [{"type": "MemoryPressure", "status": "False"},
                     {"type": "Ready", "status": "True"}]}})");
  const Node node = *parse_node(json);
  CHECK(node.ready);
  CHECK(node.unschedulable);
  CHECK(node.taints == std::vector<Node::Taint>{{"k", "", "NoSchedule"}});
  CHECK(node.allocatable == std::map<std::string, std::int64_t>{{"cpu", 3920},
                                                                {"memory", std::int64_t{8} << 30},
                                                                {"pods", 110},
                                                                {"nvidia.com/gpu", 8},
                                                                {"hugepages-2Mi", 0}});
  CHECK(*parse_node(to_json(node)) == node);
  Json bad = json;
  bad["status"]["allocatable"]["cpu"] = "lots";
  CHECK(parse_node(bad).error().message().starts_with("status.allocatable.cpu: "));
}

TEST_CASE("the Service is headless and finds pods before they are ready") {
  const TrainingJob job = job_of(full_program_job());
  const Json json = to_json(make_service(job));
  CHECK(json["spec"] == Json{{"clusterIP", "None"},
                             {"publishNotReadyAddresses", true},
                             {"selector", {{"muster.dev/job-uid", "u-2"}}}});
  CHECK(json["metadata"]["name"] == service_name(job));
  CHECK(json["metadata"]["ownerReferences"][0]["controller"] == true);
}

TEST_CASE("the pods that start a gang are one group, and who joins later is of none") {
  TrainingJob job = job_of(full_program_job());
  job.status.start_attempt = 3;
  job.status.placement = {{0, 3, "n0", ""}, {1, 3, "n1", ""}, {2, 4, "n1", ""}};
  PodOptions options;
  CHECK_FALSE(make_pod_group(job, options));
  CHECK_FALSE(make_pod(job, job.status.placement[0], options).spec.contains("schedulingGroup"));
  options.pod_groups = Kind::kPodGroupV1Alpha2;
  const auto group = make_pod_group(job, options);
  REQUIRE(group);
  const Json json = to_json(*group);
  CHECK(json["apiVersion"] == "scheduling.k8s.io/v1alpha2");
  CHECK(json["metadata"]["name"] == service_name(job) + "-3");
  CHECK(json["metadata"]["ownerReferences"][0]["controller"] == true);
  const Json policy{{"gang", {{"minCount", 2}}}};
  const std::string name = service_name(job) + "-3";
  CHECK(json["spec"] ==
        Json{{"schedulingPolicy", policy},
             {"podGroupTemplateRef",
              {{"workload", {{"workloadName", name}, {"podGroupTemplateName", "workers"}}}}}});
  const Json workload = workload_json(*group);
  CHECK(workload["apiVersion"] == "scheduling.k8s.io/v1alpha2");
  CHECK(workload["kind"] == "Workload");
  CHECK(workload["metadata"] == json["metadata"]);
  CHECK(workload["spec"] ==
        Json{{"controllerRef",
              {{"apiGroup", "muster.dev"}, {"kind", "TrainingJob"}, {"name", job.meta.name}}},
             {"podGroupTemplates",
              Json::array({{{"name", "workers"}, {"schedulingPolicy", policy}}})}});
  options.pod_groups = Kind::kPodGroup;
  CHECK(to_json(*make_pod_group(job, options))["spec"]["workloadRef"] ==
        Json{{"workloadName", name}, {"templateName", "workers"}});
  CHECK(std::string(info_of(workload_kind(*make_pod_group(job, options))).api_version) ==
        "scheduling.k8s.io/v1beta1");
  const Pod first = make_pod(job, job.status.placement[0], options);
  CHECK(first.spec["schedulingGroup"] == Json{{"podGroupName", service_name(job) + "-3"}});
  CHECK(check_restricted(first));
  CHECK_FALSE(make_pod(job, job.status.placement[2], options).spec.contains("schedulingGroup"));
  job.status.placement.resize(1);
  CHECK_FALSE(make_pod_group(job, options));
}

TEST_CASE("an event stays within what the API server takes") {
  Event event;
  event.meta.name = "digits.1";
  event.meta.namespace_name = "ns";
  event.regarding = {"ns", "digits"};
  event.regarding_uid = "u";
  event.type = "Warning";
  event.reason = "WorkerLost";
  event.action = "Restart";
  event.note = std::string(1023, 'x') + "\xC3\xA4";
  event.series_count = 1;
  const Json json = to_json(event);
  CHECK(json["message"].get<std::string>().size() == 1023);
  CHECK(json["eventTime"] == "1970-01-01T00:00:00.000000Z");
  CHECK(json["series"]["count"] == 2);
  CHECK(json["involvedObject"]["kind"] == "TrainingJob");
  CHECK(json["involvedObject"]["namespace"] == "ns");
  CHECK(json["involvedObject"]["uid"] == "u");
  CHECK(json["reportingComponent"] == "muster.dev/operator");
}

TEST_CASE("an event has the fields of old that kubectl describe sorts and names by") {
  Event event;
  event.event_time = *parse_time("2026-01-01T00:00:09.999999Z");
  Json json = to_json(event);
  CHECK(json["firstTimestamp"] == "2026-01-01T00:00:09Z");
  CHECK(json["lastTimestamp"] == "2026-01-01T00:00:09Z");
  CHECK(json["eventTime"] == "2026-01-01T00:00:09.999999Z");
  CHECK(json["count"] == 1);
  CHECK(json["source"] == Json{{"component", "muster.dev/operator"}});
  CHECK_FALSE(json.contains("series"));
  event.series_count = 3;
  json = to_json(event);
  CHECK(json["count"] == 3);
  CHECK(json["series"]["count"] == 3);
}
