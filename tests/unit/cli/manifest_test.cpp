#include "cli/manifest.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/files.h"
#include "common/contract.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

using test::content_of;

constexpr const char* kOwn =
    "apiVersion: muster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\n"
    "spec: {worker: {command: [\"true\"]}}\n";

std::string refusal(const std::vector<std::string>& overrides, int exit_code) {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path + "/job.yaml";
  REQUIRE(write_file_atomically(file, kOwn));
  auto job = load_job(file, overrides);
  if (job) return "accepted";
  CHECK(job.error().exit_code() == exit_code);
  std::string message = job.error().message();
  const std::size_t at = message.find(directory.path + "/");
  return at == 0 ? message.substr(directory.path.size() + 1) : message;
}

TEST_CASE("the digits example is a local job with every default written out") {
  auto job = load_job("examples/digits.yaml", {"spec.worker.count=3"});
  if (!job) FAIL(job.error().message());
  CHECK(job->job.meta.name == "digits");
  CHECK(job->job.spec.worker.count == 3);
  CHECK(job->directory.ends_with("/examples"));
  CHECK(job->directory.starts_with("/"));
  CHECK(job->manifest["metadata"]["namespace"] == "default");
  CHECK(job->normalised["spec"]["restart"]["maxRestarts"] == 3);
  CHECK(job->normalised["spec"]["training"]["seed"] == 7);
  CHECK_FALSE(job->normalised["metadata"].contains("namespace"));
  REQUIRE(job->notes.size() == 1);
  CHECK(job->notes[0].starts_with("spec.training.checkpoint.volumeClaimName is ignored"));
}

TEST_CASE("the example of a gpt is a local job of up to eight workers, and its texts are there") {
  auto job = load_job("examples/gpt-tiny.yaml", {"spec.worker.count=8"});
  if (!job) FAIL(job.error().message());
  const Json& training = job->normalised["spec"]["training"];
  CHECK(training["model"]["gpt"]["contextLength"] == 64);
  CHECK(training["batchSize"].get<int>() % training["logicalRanks"].get<int>() == 0);
  for (const char* split : {"train", "test"}) {
    const auto file = training["data"][split]["text"]["file"].get<std::string>();
    CHECK_MESSAGE(std::filesystem::is_regular_file(job->directory + "/" + file), file);
  }
  CHECK(job->notes.empty());
}

TEST_CASE("the example of GPT-2 is a local job of the published sizes") {
  auto job = load_job("examples/gpt2-124m.yaml", {});
  if (!job) FAIL(job.error().message());
  const Json& training = job->normalised["spec"]["training"];
  CHECK(training["model"]["gpt"] ==
        *parse_json(R"({"layers": 12, "heads": 12, "width": 768, "contextLength": 1024,
                        "vocabularySize": 50257})"));
  CHECK(training["batchSize"].get<int>() % training["logicalRanks"].get<int>() == 0);
  CHECK(job->job.spec.worker.max <= training["logicalRanks"].get<int>());
  CHECK(job->notes.empty());
  // What its comment says of going on from published weights.
  const auto from =
      load_job("examples/gpt2-124m.yaml", {"spec.training.pretrained={directory: data/gpt2}"});
  CHECK_MESSAGE(from, from.error().message());
}

TEST_CASE("what a local run cannot do is refused with the field") {
  namespace codes = contract::exit_code;
  CHECK(refusal({}, 0) == "accepted");
  CHECK(refusal({"spec.worker.command=", "spec.worker.image=mine"}, codes::kInvalidSpec) ==
        "job.yaml: spec.worker.command: is required by `muster run`, which starts programs of this "
        "machine and no images");
  CHECK(refusal({"spec.suspend=true"}, codes::kInvalidSpec) ==
        "job.yaml: spec.suspend: must be false for `muster run`; a suspended job never starts");
  CHECK(refusal({"spec.managedBy=other.dev/controller"}, codes::kInvalidSpec)
            .starts_with("job.yaml: spec.managedBy: must be muster.dev/operator"));
  CHECK(refusal({"spec.worker.env=[{name: K, valueFrom: {secretKeyRef: {name: s, key: k}}}]"},
                codes::kInvalidSpec)
            .starts_with("job.yaml: spec.worker.env: K takes its value from the cluster"));
  CHECK(refusal({"spec.worker.cuont=3"}, codes::kInvalidSpec).find("spec.worker.cuont") !=
        std::string::npos);
  CHECK(refusal({"spec.worker.count=three"}, codes::kInvalidSpec).find("spec.worker.count") !=
        std::string::npos);
  CHECK(refusal({"spec=3"}, codes::kInvalidSpec).starts_with("job.yaml: spec"));
  CHECK(refusal({"metadata=3"}, codes::kInvalidSpec).starts_with("job.yaml: metadata"));
  CHECK(refusal({"nonsense"}, codes::kUsage).starts_with("--set nonsense"));
}

TEST_CASE("a job that comes through a pipe has its data where muster was started") {
  const test::TemporaryDirectory directory;
  const std::string pipe = directory.path + "/job.fifo";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { std::ofstream(pipe) << kOwn; });
  const auto job = load_job(pipe, {});
  writer.join();
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->directory == std::filesystem::current_path().string());
}

TEST_CASE("a job has its data beside its file, however that is reached") {
  const test::TemporaryDirectory directory;
  const std::filesystem::path base = std::filesystem::canonical(directory.path);
  std::filesystem::create_directories(base / "real/sub");
  std::filesystem::create_directory_symlink(base / "real/sub", base / "link");
  for (const char* place : {"job.yaml", "real/job.yaml", "real/sub/job.yaml"}) {
    REQUIRE(write_file_atomically(base / place, kOwn));
  }
  for (const auto& [path, where] :
       {std::pair("link/../job.yaml", "real"), std::pair("real/sub/.././job.yaml", "real"),
        std::pair("link/job.yaml", "link")}) {
    const auto job = load_job(base / path, {});
    REQUIRE_MESSAGE(job, job.error().message());
    CHECK(job->directory == (base / where).string());
  }
}

TEST_CASE("an image is ignored, and said so") {
  const test::TemporaryDirectory directory;
  REQUIRE(write_file_atomically(directory.path + "/job.yaml", kOwn));
  auto job = load_job(directory.path + "/job.yaml", {"spec.worker.image=mine"});
  REQUIRE(job);
  REQUIRE(job->notes.size() == 1);
  CHECK(job->notes[0].starts_with("spec.worker.image is ignored"));
}

TEST_CASE("all that only pods have is ignored, and one note names it") {
  const test::TemporaryDirectory directory;
  REQUIRE(write_file_atomically(directory.path + "/job.yaml", kOwn));
  const auto job = load_job(
      directory.path + "/job.yaml",
      {"spec.worker.volumes=[{name: data, persistentVolumeClaim: {claimName: c}}, "
       "{name: keys, secret: {secretName: s}}]",
       "spec.worker.volumeMounts=[{name: data, mountPath: /data}]", "spec.worker.shmSize=1Gi",
       "spec.worker.resourceClaims=[{name: nic, resourceClaimName: nic}]",
       "spec.worker.nodeSelector={disk: ssd}", "spec.worker.affinity={nodeAffinity: {}}",
       "spec.worker.schedulerName=other", "spec.worker.runtimeClassName=nvidia",
       "spec.worker.serviceAccountName=trainer", "spec.worker.imagePullSecrets=[{name: pull}]",
       "spec.worker.imagePullPolicy=Always", "spec.worker.runAsUser=1000",
       "spec.worker.runAsGroup=1000", "spec.worker.fsGroup=1000",
       "spec.worker.supplementalGroups=[2000]", "spec.worker.hostNetwork=true",
       "spec.worker.resources={cpu: 1, ephemeralStorage: 20Gi}", "spec.topology={required: rack}"});
  REQUIRE_MESSAGE(job, job.error().message());
  REQUIRE(job->notes.size() == 1);
  CHECK(job->notes[0] ==
        "spec.worker.volumes, spec.worker.volumeMounts, spec.worker.shmSize, "
        "spec.worker.resourceClaims, spec.worker.nodeSelector, spec.worker.affinity, "
        "spec.worker.schedulerName, "
        "spec.worker.runtimeClassName, spec.worker.serviceAccountName, "
        "spec.worker.imagePullSecrets, spec.worker.imagePullPolicy, spec.worker.runAsUser, "
        "spec.worker.runAsGroup, "
        "spec.worker.fsGroup, spec.worker.supplementalGroups, spec.worker.hostNetwork, "
        "spec.worker.resources.ephemeralStorage and spec.topology are "
        "ignored: a local run starts programs of this machine, which see its files, and writes "
        "checkpoints below the output directory");
  CHECK(job->manifest["spec"] ==
        Json{{"worker", {{"command", {"true"}}, {"resources", {{"cpu", 1}}}}}});
}

TEST_CASE("a local run says that it does not run what comes before workers") {
  const test::TemporaryDirectory directory;
  REQUIRE(write_file_atomically(directory.path + "/job.yaml", kOwn));
  const auto job = load_job(directory.path + "/job.yaml",
                            {"spec.worker.initContainers=[{name: fetch, image: curl, args: [a]}]"});
  REQUIRE_MESSAGE(job, job.error().message());
  REQUIRE(job->notes.size() == 1);
  CHECK(job->notes[0].starts_with("spec.worker.initContainers are not run: "));
  CHECK(job->manifest["spec"] == Json{{"worker", {{"command", {"true"}}}}});
}

TEST_CASE("a local run has the environment of its shell in place of ConfigMaps and Secrets") {
  const test::TemporaryDirectory directory;
  REQUIRE(write_file_atomically(directory.path + "/job.yaml", kOwn));
  const auto job =
      load_job(directory.path + "/job.yaml", {"spec.worker.envFrom=[{secretRef: {name: s}}]"});
  REQUIRE_MESSAGE(job, job.error().message());
  REQUIRE(job->notes.size() == 1);
  CHECK(job->notes[0] ==
        "spec.worker.envFrom is replaced by the variables that `muster run` was started with: a "
        "local "
        "run has no ConfigMaps and Secrets");
  // Whoever starts a worker knows by it where its variables come from.
  CHECK(job->manifest["spec"]["worker"].contains("envFrom"));
}

TEST_CASE("no worker of a local run is borrowed from a queue, which could not take it back") {
  const auto job = load_job("examples/digits.yaml",
                            {"spec.queueName=lab", "spec.worker.max=4", "spec.worker.growsTo=Max"});
  REQUIRE_MESSAGE(job, job.error().message());
  REQUIRE(job->notes.size() == 2);
  CHECK(job->notes[1] ==
        "spec.worker.growsTo is ignored: a local run has no queue that takes back what is beyond "
        "spec.worker.count");
  CHECK_FALSE(job->manifest["spec"]["worker"].contains("growsTo"));
  CHECK(job->manifest["spec"]["worker"]["max"] == 4);
}

TEST_CASE("what a job says to Kueue is ignored by a local run, and one note says so") {
  const test::TemporaryDirectory directory;
  REQUIRE(write_file_atomically(directory.path + "/job.yaml", kOwn));
  const auto of_job = [&](const std::string& metadata) {
    auto job = load_job(directory.path + "/job.yaml", {"metadata=" + metadata});
    if (!job) FAIL(job.error().message());
    return std::move(*job);
  };
  const LocalJob queued = of_job("{name: own, labels: {kueue.x-k8s.io/queue-name: q, team: a}}");
  REQUIRE(queued.notes.size() == 1);
  CHECK(queued.notes[0] ==
        "labels and annotations of kueue.x-k8s.io/ are ignored: a local run has no Kueue, and has "
        "as many workers as spec.worker.count says");
  CHECK(queued.manifest["metadata"]["labels"] == Json{{"team", "a"}});
  const LocalJob placed =
      of_job("{name: own, annotations: {kueue.x-k8s.io/podset-required-topology: rack}}");
  CHECK(placed.notes == queued.notes);
  CHECK(placed.manifest["metadata"]["annotations"] == Json::object());
  CHECK(of_job("{name: own, labels: {team: a}}").notes.empty());
}

TEST_CASE("a queue is no job, and is told to be for kubectl") {
  CHECK(refusal({"kind=TrainingQueue"}, contract::exit_code::kInvalidSpec) ==
        "job.yaml: kind: must be TrainingJob; a TrainingQueue is for kubectl apply");
  const auto both = load_job("examples/queue.yaml", {});
  REQUIRE_FALSE(both);
  CHECK(both.error().message() ==
        "examples/queue.yaml:11: holds more than one document, and a TrainingQueue among them, "
        "which is for kubectl apply; keep one TrainingJob and remove the rest");
}

TEST_CASE("a local run says which workers train on GPUs") {
  const auto job = load_job("examples/digits.yaml", {"spec.worker.resources.gpus=1"});
  REQUIRE(job);
  REQUIRE(job->notes.size() == 2);
  CHECK(job->notes[1].starts_with("spec.worker.resources.gpus is 1: of the built-in engine"));
}

TEST_CASE("the page of exit codes lists what the contract names, and nothing else") {
  std::map<int, std::string> listed;
  std::istringstream page(content_of("docs/reference/exit-codes.md"));
  for (std::string line; std::getline(page, line);) {
    int code = 0;
    char reason[64] = "";
    if (std::sscanf(line.c_str(), "| %d | %63[A-Za-z] |", &code, reason) == 2) {
      CHECK(listed.emplace(code, reason).second);
    }
  }
  std::map<int, std::string> named;
  for (int code = 0; code < 256; ++code) {
    const std::string reason(contract::reason_of_exit_code(code));
    if (reason != "Error") named.emplace(code, reason);
  }
  CHECK(listed == named);
  CHECK(named.size() > 15);
}

TEST_CASE("the page of exit codes says of each that a worker may have whether it starts again") {
  std::istringstream page(content_of("docs/reference/exit-codes.md"));
  int told = 0;
  for (std::string line; std::getline(page, line);) {
    int code = 0;
    char again[8] = "";
    if (std::sscanf(line.c_str(), "| %d | %*[A-Za-z] | %7[a-z] |", &code, again) != 2) continue;
    CAPTURE(line);
    CHECK(std::string(again) == (contract::is_retryable_exit_code(code) ? "yes" : "no"));
    ++told;
  }
  CHECK(told > 15);
}

}  // namespace
}  // namespace muster::cli
