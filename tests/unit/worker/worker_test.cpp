// muster-worker as it is shipped: whole workers as processes against a real endpoint, training the
// digits example.
#include <doctest/doctest.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>

#include "common/contract.h"
#include "operator/runtime/workers_endpoint.h"
#include "tests/golden.h"
#include "tests/process.h"

using namespace muster;
using test::Process;
using test::read_file;

namespace {

namespace exit_code = contract::exit_code;

Json digits() {
  return *parse_json(R"({
    "algorithm": "Backpropagation", "mode": "Strict", "seed": 7, "logicalRanks": 16,
    "batchSize": 64, "epochs": 20, "model": {"mlp": {"hidden": [128]}},
    "data": {
      "train": {"idx": {"images": "data/digits-train-images.idx.gz",
                        "labels": "data/digits-train-labels.idx.gz"}},
      "test": {"idx": {"images": "data/digits-test-images.idx.gz",
                       "labels": "data/digits-test-labels.idx.gz"}}},
    "optimizer": {"sgd": {"learningRate": "0.1", "momentum": "0.9"}},
    "evaluation": {"everyEpochs": 1},
    "checkpoint": {"path": "/nowhere", "everySteps": 100, "keep": 2}})");
}

/// Long enough that no test sees its end.
Json endless() {
  Json training = digits();
  training["epochs"] = 1'000'000;
  return training;
}

/// One job: its endpoint, its files, its workers.
struct Job {
  SystemClock clock;
  std::string directory;
  std::unique_ptr<runtime::Authenticator> authenticator =
      runtime::make_local_authenticator("secret");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ProgressReport> reports;  ///< guarded by mutex
  std::unique_ptr<runtime::WorkersEndpoint> endpoint;
  std::vector<std::string> extra;  ///< environment before all other
  std::string pace_file;           ///< of set_pace()
  int processes = 1;
  int attempt = 0;
  std::vector<std::unique_ptr<Process>> workers;

  Job() {
    std::string path = "/tmp/muster-worker-XXXXXX";
    REQUIRE(mkdtemp(path.data()) != nullptr);
    directory = path;
    auto made = runtime::make_workers_endpoint({.clock = &clock,
                                                .authenticator = authenticator.get(),
                                                .on_progress =
                                                    [this](const ProgressReport& report) {
                                                      const std::lock_guard lock(mutex);
                                                      reports.push_back(report);
                                                      changed.notify_all();
                                                      return true;
                                                    },
                                                .on_join = {}});
    REQUIRE(made);
    endpoint = std::move(*made);
    std::ofstream(directory + "/token") << "secret";
  }
  ~Job() {
    workers.clear();
    endpoint->stop();
    std::filesystem::remove_all(directory);
  }

  std::string file(const std::string& name, int slot) const {
    return directory + "/" + name + "-" + std::to_string(attempt) + "-" + std::to_string(slot);
  }

  /// The least milliseconds of each step from now on, of workers that are started after the first
  /// call: what trains for a third of a second is over before it can be disturbed.
  void set_pace(int pace_ms) {
    if (pace_file.empty()) {
      pace_file = directory + "/pace";
      extra.push_back("MUSTER_PACE_MS=" + pace_file);
    }
    std::ofstream(pace_file + ".new") << pace_ms << std::flush;
    std::filesystem::rename(pace_file + ".new", pace_file);
  }

  /// Starts the gang's next attempt with `count` workers.
  void start(int count, const Json& training) {
    workers.clear();
    ++attempt;
    runtime::GangInfo gang;
    gang.job = "ns/digits";
    gang.job_uid = "uid";
    gang.epoch = attempt;
    gang.processes = processes;
    gang.training = dump_json(training);
    gang.job_key = std::string(64, 'b');
    for (int slot = 0; slot < count; ++slot) gang.attempt_of_slot[slot] = attempt;
    endpoint->set_gang(gang);
    for (int slot = 0; slot < count; ++slot) {
      std::vector<std::string> environment = extra;
      const std::vector<std::string> own{"MUSTER_JOB=ns/digits",
                                         "MUSTER_SLOT=" + std::to_string(slot),
                                         "MUSTER_ATTEMPT=" + std::to_string(attempt),
                                         "MUSTER_WORKERS=" + std::to_string(count),
                                         "MUSTER_PROCESSES=" + std::to_string(processes),
                                         "MUSTER_ENDPOINT=" + endpoint->url(),
                                         "MUSTER_TOKEN_FILE=" + directory + "/token",
                                         "MUSTER_BIND=127.0.0.1",
                                         "MUSTER_DATA_ROOT=examples",
                                         "MUSTER_CHECKPOINT_PATH=" + directory + "/checkpoint",
                                         "MUSTER_TERMINATION_LOG=" + file("last-word", slot)};
      environment.insert(environment.end(), own.begin(), own.end());
      workers.push_back(std::make_unique<Process>(MUSTER_WORKER, std::vector<std::string>{},
                                                  environment, file("log", slot)));
    }
  }

  std::vector<int> wait() {
    std::vector<int> codes;
    for (std::size_t slot = 0; slot < workers.size(); ++slot) {
      codes.push_back(workers[slot]->wait().value_or(-1));
      if (codes.back() < 0) MESSAGE(read_file(file("log", static_cast<int>(slot))));
    }
    return codes;
  }

  std::vector<int> run(int count, const Json& training) {
    start(count, training);
    return wait();
  }

  std::string last_word(int slot) const { return read_file(file("last-word", slot)); }

  ProgressReport final_report(int slot) const {
    const std::string text = last_word(slot);
    const auto json = parse_json(text);
    REQUIRE_MESSAGE(json, text);
    const auto report = parse_progress_report(*json);
    REQUIRE(report);
    return *report;
  }

  /// Until a worker of this attempt reports a step, 30 s at most.
  bool wait_for_step(std::int64_t step = 1) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(30), [&] {
      return std::any_of(reports.begin(), reports.end(), [&](const ProgressReport& report) {
        return report.attempt == attempt && report.step >= step;
      });
    });
  }
};

pid_t first_child(pid_t pid) {
  const std::string task = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid);
  const std::string children = read_file(task + "/children");
  return children.empty() ? -1 : std::stoi(children);
}

}  // namespace

TEST_CASE("workers and processes in any number train the digits to the golden hash") {
  struct Case {
    int workers, processes;
  };
  for (const Case& one : {Case{1, 1}, Case{2, 1}, Case{1, 2}, Case{3, 1}}) {
    CAPTURE(one.workers);
    CAPTURE(one.processes);
    Job job;
    job.processes = one.processes;
    CHECK(job.run(one.workers, digits()) == std::vector<int>(std::size_t(one.workers), 0));
    std::uint64_t computations = 0;
    for (int slot = 0; slot < one.workers; ++slot) {
      const ProgressReport report = job.final_report(slot);
      CHECK(report.model_sha256 == test::kDigitsGolden);
      CHECK(report.step == test::kDigitsSteps);
      CHECK(report.total_steps == test::kDigitsSteps);
      CHECK(std::stod(report.accuracy) >= 0.97);
      computations += report.logical_rank_computations;
    }
    CHECK(computations == 16 * test::kDigitsSteps);
    CHECK(std::filesystem::exists(job.directory + "/checkpoint/model.safetensors"));
    const std::lock_guard lock(job.mutex);
    REQUIRE_FALSE(job.reports.empty());
    CHECK(job.reports.back().model_sha256 == test::kDigitsGolden);
  }
}

TEST_CASE(
    "a killed trainer is started again beside its sentinel, and the model has the same bits") {
  Job job;
  job.set_pace(50);
  job.start(3, digits());
  REQUIRE(job.wait_for_step());
  const pid_t trainer = first_child(job.workers[0]->pid());
  REQUIRE(trainer > 0);
  REQUIRE(kill(trainer, SIGKILL) == 0);
  job.set_pace(0);
  CHECK(job.wait() == std::vector<int>{0, 0, 0});
  CHECK(read_file(job.file("log", 0)).find("is started again") != std::string::npos);
  for (int slot = 0; slot < 3; ++slot) {
    CHECK(job.final_report(slot).model_sha256 == test::kDigitsGolden);
  }
}

TEST_CASE("the only trainer, killed, goes on from its checkpoint to the same bits") {
  Job job;
  job.set_pace(50);
  job.start(1, digits());
  REQUIRE(job.wait_for_step());
  const pid_t trainer = first_child(job.workers[0]->pid());
  REQUIRE(trainer > 0);
  REQUIRE(kill(trainer, SIGKILL) == 0);
  job.set_pace(0);
  CHECK(job.wait() == std::vector<int>{0});
  CHECK(job.final_report(0).model_sha256 == test::kDigitsGolden);
}

TEST_CASE("a killed sentinel takes its trainer along, and the others go on without it") {
  Job job;
  job.set_pace(50);
  job.start(3, digits());
  REQUIRE(job.wait_for_step());
  const pid_t trainer = first_child(job.workers[1]->pid());
  REQUIRE(trainer > 0);
  job.workers[1]->kill(SIGKILL);
  job.set_pace(0);
  CHECK(job.wait() == std::vector<int>{0, 1000 + SIGKILL, 0});
  CHECK(test::wait_for_end(trainer));
  CHECK(job.final_report(0).model_sha256 == test::kDigitsGolden);
  CHECK(job.final_report(2).model_sha256 == test::kDigitsGolden);
}

TEST_CASE("one worker asked to stop leaves at a step's end, and the others go on") {
  Job job;
  job.start(2, endless());
  REQUIRE(job.wait_for_step());
  job.workers[1]->kill(SIGTERM);
  CHECK(job.workers[1]->wait() == exit_code::kPlannedLeave);
  const std::string sentence = job.last_word(1);
  REQUIRE(sentence.starts_with("stopped on request at step "));
  const int step = std::stoi(sentence.substr(sentence.find("step ") + 5));
  REQUIRE(job.wait_for_step(step + 10));
  job.workers[0]->kill(SIGTERM);
  CHECK(job.workers[0]->wait() == exit_code::kPlannedLeave);
  const std::lock_guard lock(job.mutex);
  // On a busy machine somebody may have been called slow before.
  const auto left_in = [](const ProgressReport& report) {
    return std::find_if(report.changes.begin(), report.changes.end(),
                        [](const auto& change) { return change.kind == "Left"; });
  };
  const auto told =
      std::find_if(job.reports.begin(), job.reports.end(), [&](const ProgressReport& report) {
        return report.slot == 0 && left_in(report) != report.changes.end();
      });
  REQUIRE(told != job.reports.end());
  CHECK(left_in(*told)->slot == 1);
  CHECK(told->members == std::vector<int>{0});
}

TEST_CASE("all workers asked to stop stop with a checkpoint, and the next attempt goes on") {
  Job job;
  job.start(2, endless());
  REQUIRE(job.wait_for_step());
  for (const auto& worker : job.workers) worker->kill(SIGTERM);
  CHECK(job.wait() == std::vector<int>{exit_code::kPlannedLeave, exit_code::kPlannedLeave});
  const std::string sentence = job.last_word(0);
  REQUIRE(sentence.starts_with("stopped on request at step "));
  CHECK(sentence.ends_with(", with a checkpoint"));
  const int step = std::stoi(sentence.substr(sentence.find("step ") + 5));
  CHECK(step >= 1);
  job.start(1, endless());
  REQUIRE(job.wait_for_step(step + 1));
  job.workers[0]->kill(SIGINT);
  CHECK(job.wait() == std::vector<int>{exit_code::kPlannedLeave});
  const std::lock_guard lock(job.mutex);
  CHECK(job.reports.back().restored_step == step);
}

TEST_CASE("what is wrong with job, data or environment has its exit code and its sentence") {
  Job job;
  Json bad = digits();
  bad["batchSize"] = 65;
  CHECK(job.run(1, bad) == std::vector<int>{exit_code::kInvalidSpec});
  CHECK(job.last_word(0).find("spec.training.batchSize") != std::string::npos);
  Json lost = digits();
  lost["data"]["train"]["idx"]["images"] = "data/absent.idx.gz";
  CHECK(job.run(2, lost) == std::vector<int>{exit_code::kData, exit_code::kData});
  CHECK(job.last_word(1).find("data/absent.idx.gz") != std::string::npos);
  job.extra = {"MUSTER_FORCE_TARGET=sse2"};
  CHECK(job.run(1, digits()) == std::vector<int>{exit_code::kUsage});
  CHECK(job.last_word(0).find("MUSTER_FORCE_TARGET: \"sse2\" is none of scalar") !=
        std::string::npos);
  job.extra = {"MUSTER_SLOT=many"};
  CHECK(job.run(1, digits()) == std::vector<int>{exit_code::kUsage});
  CHECK(job.last_word(0) == "MUSTER_SLOT must be a number from 0 to 4095, not \"many\"");
}

TEST_CASE("the command line is for people: help, version, and nothing else") {
  Job job;
  const auto run = [&](const std::vector<std::string>& arguments) {
    Process worker(MUSTER_WORKER, arguments, {}, job.directory + "/out");
    return worker.wait().value_or(-1);
  };
  CHECK(run({"--version"}) == exit_code::kComplete);
  CHECK(read_file(job.directory + "/out").find("fp32-chain/1") != std::string::npos);
  CHECK(run({"--help"}) == exit_code::kComplete);
  CHECK(run({"--nonsense"}) == exit_code::kUsage);
  CHECK(run({"--trainer"}) == exit_code::kUsage);
  CHECK(run({}) == exit_code::kUsage);
  CHECK(read_file(job.directory + "/out").find("MUSTER_JOB is not set") != std::string::npos);
}

TEST_CASE("a processor without x86-64-v3 is refused with a sentence that names what it lacks") {
#ifdef MUSTER_QEMU
  Job job;
  Process worker(MUSTER_QEMU, {"-cpu", "Nehalem", MUSTER_WORKER},
                 {"MUSTER_TERMINATION_LOG=" + job.directory + "/last-word"},
                 job.directory + "/out");
  CHECK(worker.wait() == exit_code::kCpuOrContract);
  const std::string sentence = read_file(job.directory + "/last-word");
  CHECK(sentence.starts_with("this machine's processor lacks AVX, AVX2"));
  CHECK(read_file(job.directory + "/out").find("CpuOrContractRefused") != std::string::npos);
#else
  MESSAGE("skipped: needs qemu-x86_64-static on x86-64, without sanitizers");
#endif
}
