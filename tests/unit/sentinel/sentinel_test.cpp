// The real sentinel as a process, with trainers that do as they are told, against a real endpoint.
#include "worker/sentinel/sentinel.h"

#include <doctest/doctest.h>

#include <array>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>

#include "common/contract.h"
#include "common/http/client.h"
#include "common/listen.h"
#include "operator/runtime/workers_endpoint.h"
#include "tests/process.h"
#include "worker/sentinel/launch.h"

using namespace muster;
using test::Process;
using test::read_file;

namespace {

std::string make_directory() {
  std::string path = "/tmp/muster-sentinel-XXXXXX";
  REQUIRE(mkdtemp(path.data()) != nullptr);
  return path;
}

struct World {
  SystemClock clock;
  std::string directory = make_directory();
  std::unique_ptr<runtime::Authenticator> authenticator =
      runtime::make_local_authenticator("secret");
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ProgressReport> reports;  ///< guarded by mutex
  std::unique_ptr<runtime::WorkersEndpoint> endpoint;
  std::vector<std::string> extra;
  int processes = 1, workers = 1;
  std::string training = "{}";
  int runs = 0;

  explicit World(int given_processes = 1, int given_workers = 1)
      : processes(given_processes), workers(given_workers) {
    open_endpoint(0);
    std::ofstream(directory + "/token") << "secret\n";
  }
  ~World() {
    endpoint->stop();
    std::filesystem::remove_all(directory);
  }

  void open_endpoint(int port) {
    auto made = runtime::make_workers_endpoint({.port = port,
                                                .clock = &clock,
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
  }
  /// As after a restart of its process: it knows nothing of what was before.
  void replace_endpoint() {
    const std::string url = endpoint->url();
    endpoint->stop();
    endpoint.reset();
    const std::lock_guard lock(mutex);
    reports.clear();
    open_endpoint(std::stoi(url.substr(url.rfind(':') + 1)));
  }

  std::vector<std::string> environment() const {
    std::vector<std::string> all{"MUSTER_JOB=ns/job",
                                 "MUSTER_SLOT=0",
                                 "MUSTER_ATTEMPT=0",
                                 "MUSTER_WORKERS=1",
                                 "MUSTER_PROCESSES=" + std::to_string(processes),
                                 "MUSTER_ENDPOINT=" + endpoint->url(),
                                 "MUSTER_TOKEN_FILE=" + directory + "/token",
                                 "MUSTER_BIND=127.0.0.1",
                                 "MUSTER_TERMINATION_LOG=" + directory + "/last-word"};
    // Of two entries of one name the first is found.
    all.insert(all.begin(), extra.begin(), extra.end());
    return all;
  }

  /// Each start is a new epoch of the gang: who has joined one may not join it anew.
  std::unique_ptr<Process> start(const std::string& plan) {
    ++runs;
    endpoint->set_gang(make_gang());
    return join(plan);
  }
  runtime::GangInfo make_gang() const {
    runtime::GangInfo gang;
    gang.job = "ns/job";
    gang.epoch = runs;
    gang.job_uid = "uid";
    gang.processes = processes;
    gang.training = training;
    gang.job_key = std::string(64, '0');
    for (int slot = 0; slot < workers; ++slot) gang.attempt_of_slot[slot] = 0;
    return gang;
  }
  /// Another worker of the gang that was started last.
  std::unique_ptr<Process> join(const std::string& plan) const {
    return std::make_unique<Process>(STUB_WORKER, std::vector<std::string>{"sentinel", plan},
                                     environment(), directory + "/log");
  }
  int run(const std::string& plan) {
    const auto code = start(plan)->wait();
    if (!code) MESSAGE(read_file(directory + "/log"));
    return code.value_or(-1);
  }
  /// Another worker of the gang, with a last word of its own.
  std::unique_ptr<Process> join_as(int slot, const std::string& plan) {
    const std::string name = std::to_string(slot);
    extra.insert(extra.begin(), {"MUSTER_SLOT=" + name,
                                 "MUSTER_TERMINATION_LOG=" + directory + "/last-word-" + name});
    return join(plan);
  }
  std::string last_word() const { return read_file(directory + "/last-word"); }

  /// Until a worker has logged it, 30 s at most.
  bool wait_for_log(const std::string& text) const {
    for (int i = 0; i < 30'000; ++i) {
      if (read_file(directory + "/log").find(text) != std::string::npos) return true;
      (void)poll(nullptr, 0, 1);
    }
    return false;
  }
  /// Until the newest report is such a one, 30 s at most.
  bool wait_for_report(const std::function<bool(const ProgressReport&)>& is_wanted) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, seconds(30),
                            [&] { return !reports.empty() && is_wanted(reports.back()); });
  }
  /// Until trainer 0 has told how long it will train.
  bool wait_for_training() {
    return wait_for_report([](const ProgressReport& report) { return report.total_steps > 0; });
  }
};

/// The process id that a trainer wrote to `path`; the write follows the file's making. Without one
/// the test ends here: a signal to -1 would go to every process of the machine.
pid_t read_pid(const std::string& path) {
  std::string text;
  for (int i = 0; i < 30'000 && text.empty(); ++i) {
    text = read_file(path);
    if (text.empty()) (void)poll(nullptr, 0, 1);
  }
  REQUIRE_MESSAGE(!text.empty(), path);
  const pid_t pid = std::stoi(text);
  REQUIRE(pid > 0);
  return pid;
}

}  // namespace

TEST_CASE("trainers that end well leave the final report in the termination log") {
  World world(2);
  CHECK(world.run("train,train") == 0);
  const auto json = parse_json(world.last_word());
  REQUIRE(json);
  const auto report = parse_progress_report(*json);
  REQUIRE(report);
  CHECK(report->step == 200);
  CHECK(report->loss == "0.0050");
  CHECK(report->accuracy == "0.9750");
  CHECK(report->model_sha256 == std::string(64, 'e'));
  CHECK(report->sent_bytes == 40'000);
  CHECK(report->logical_rank_computations == 3'200);
  const std::lock_guard lock(world.mutex);
  REQUIRE_FALSE(world.reports.empty());
  CHECK(world.reports.back().model_sha256 == std::string(64, 'e'));
}

TEST_CASE("the termination log tells who the last members were, for whose end nobody need wait") {
  World world(1);
  CHECK(world.run("member") == 0);
  const auto json = parse_json(world.last_word());
  REQUIRE(json);
  const auto report = parse_progress_report(*json);
  REQUIRE(report);
  CHECK(report->membership_epoch > 0);
  CHECK(report->members == std::vector<int>{0});
}

namespace {

/// Whether the last word is the report of a complete job.
bool has_model(const World& world) {
  const auto json = parse_json(world.last_word());
  const auto report = json ? parse_progress_report(*json) : Result<ProgressReport>(json.error());
  return report && report->step == 200 && report->model_sha256 == std::string(64, 'e');
}

}  // namespace

TEST_CASE("a trainer that is done is done, however it ends, or if it does not") {
  World world;
  world.extra = {"STUB_STOP_MS=50"};
  for (const char* const plan : {"done:9", "done:11", "done:0"}) {
    CAPTURE(plan);
    std::filesystem::remove(world.directory + "/last-word");
    CHECK(world.run(plan) == 0);
    CHECK_MESSAGE(has_model(world), world.last_word());
  }
}

TEST_CASE("a worker is done with the first of its trainers, and who dies then is not missed") {
  for (const bool is_first_killed : {false, true}) {
    CAPTURE(is_first_killed);
    World world(2);
    const std::string idle = "idle:" + world.directory + "/idle";
    const auto worker = world.start(is_first_killed ? idle + ",member" : "member," + idle);
    REQUIRE(world.wait_for_report(
        [](const ProgressReport& report) { return !report.model_sha256.empty(); }));
    ::kill(read_pid(world.directory + "/idle"), SIGKILL);
    CHECK(worker->wait() == 0);
    CHECK_MESSAGE(has_model(world), world.last_word());
  }
}

TEST_CASE("a trainer's failure is the worker's, with its sentence") {
  World world;
  CHECK(world.run("fail:21:images.idx is cut at byte 12") == 21);
  CHECK(world.last_word() == "trainer process 0 (rank 0): images.idx is cut at byte 12");
  CHECK(world.run("exit:29") == 29);
  CHECK(world.last_word() ==
        "trainer process 0 (rank 0): ended with exit code 29 (DiskFull) without a word");
}

TEST_CASE("the first failure ends the other trainers, even deaf ones") {
  World world(2);
  const std::string pid_file = world.directory + "/deaf";
  CHECK(world.run("fail:24:loss is NaN,deaf:" + pid_file) == 24);
  CHECK(world.last_word() == "trainer process 0 (rank 0): loss is NaN");
}

TEST_CASE("a trainer ended by a signal counts as an internal failure that names the signal") {
  World world;
  CHECK(world.run("signal:9") == contract::exit_code::kInternal);
  CHECK(world.last_word() == "trainer process 0 (rank 0): ended by signal 9 (Killed)");
  CHECK(world.run("signal:11") == contract::exit_code::kInternal);
  CHECK(world.last_word() == "trainer process 0 (rank 0): ended by signal 11 (Segmentation fault)");
}

TEST_CASE("each death for want of memory is told as one, and no other") {
  World world(2);
  const std::string group = world.directory + "/sys/fs/cgroup";
  std::filesystem::create_directories(group);
  std::filesystem::create_directories(world.directory + "/proc/self");
  std::ofstream(world.directory + "/proc/self/cgroup") << "0::/\n" << std::flush;
  const auto set_kills = [&](int count) {
    std::ofstream(group + "/new") << "oom_kill " << count << "\n" << std::flush;
    std::filesystem::rename(group + "/new", group + "/memory.events");
  };
  world.extra = {"STUB_SYSTEM=" + world.directory};
  set_kills(3);
  const std::array<std::string, 2> pid_files = {world.directory + "/0", world.directory + "/1"};
  const auto worker = world.start("deaf:" + pid_files[0] + ",deaf:" + pid_files[1]);
  std::size_t seen = 0;
  /// What is told of the next trainer that died.
  const auto next_line = [&] {
    std::string log;
    std::size_t at = log.npos;
    for (int i = 0; i < 30'000 && at == log.npos; ++i) {
      log = read_file(world.directory + "/log");
      at = log.find("a trainer died and is started again", seen);
      if (log.find('\n', at) == log.npos) at = log.npos;
      if (at == log.npos) (void)poll(nullptr, 0, 1);
    }
    REQUIRE(at != log.npos);
    seen = log.find('\n', at);
    return log.substr(at, seen - at);
  };
  const auto kill_trainer = [&](std::size_t index) {
    const pid_t trainer = read_pid(pid_files[index]);
    std::filesystem::remove(pid_files[index]);
    ::kill(trainer, SIGKILL);
  };
  const auto is_for_memory = [](const std::string& line) {
    return line.find("ended by the kernel for want of memory") != line.npos;
  };

  for (const std::string& file : pid_files) (void)read_pid(file);  // it has counted before
  set_kills(4);
  kill_trainer(0);
  CHECK(is_for_memory(next_line()));
  kill_trainer(0);
  CHECK(next_line().find("ended by signal 9 (Killed)") != std::string::npos);
  (void)read_pid(pid_files[0]);  // both are there again
  set_kills(6);
  for (const std::size_t index : {std::size_t{0}, std::size_t{1}}) kill_trainer(index);
  for (int death = 0; death < 2; ++death) CHECK(is_for_memory(next_line()));
}

TEST_CASE("lost peers are the reason only when no trainer of the worker failed itself") {
  World world(2);
  CHECK(world.run("fail:25:rank 1 was lost,signal:9") == contract::exit_code::kInternal);
  CHECK(world.last_word() == "trainer process 1 (rank 1): ended by signal 9 (Killed)");
  world.extra = {"STUB_PEER_MS=10"};
  CHECK(world.run("fail:25:rank 2 was lost,deaf:" + world.directory + "/deaf") ==
        contract::exit_code::kPeerLost);
  CHECK(world.last_word() == "trainer process 0 (rank 0): rank 2 was lost");
}

TEST_CASE("a stop request reaches the trainers and ends in a planned leave") {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    World world(2);
    const auto worker = world.start("wait,wait");
    REQUIRE(world.wait_for_training());
    worker->kill(signal_number);
    CHECK(worker->wait() == contract::exit_code::kPlannedLeave);
    CHECK(world.last_word() == "stopped on request at step 3 of 100");
  }
}

TEST_CASE("a worker that stops says what was saved, as far as it knows") {
  struct Case {
    const char *plan, *said;
  };
  for (const Case& one :
       {Case{"wait:3", ", with a checkpoint"},
        Case{"wait:2", ", the newest checkpoint it knows of is of step 2"}, Case{"wait:-1", ""}}) {
    CAPTURE(one.plan);
    World world;
    const auto worker = world.start(one.plan);
    REQUIRE(world.wait_for_training());
    worker->kill(SIGTERM);
    CHECK(worker->wait() == contract::exit_code::kPlannedLeave);
    CHECK(world.last_word() == std::string("stopped on request at step 3 of 100") + one.said);
  }
}

TEST_CASE("a worker that is asked to leave while its trainer is to be started again has left") {
  World world;
  const std::string pid_file = world.directory + "/trainer";
  const auto worker = world.start("idle:" + pid_file);
  // The first is started at once, and each after it later.
  for (const char* starts : {"0", "1", "2"}) {
    CAPTURE(starts);
    const pid_t trainer = read_pid(pid_file);
    std::filesystem::remove(pid_file);
    std::filesystem::resize_file(world.directory + "/log", 0);
    ::kill(trainer, SIGKILL);
    REQUIRE(world.wait_for_log("a trainer died and is started again"));
  }
  worker->kill(SIGTERM);
  CHECK(worker->wait() == contract::exit_code::kPlannedLeave);
  CHECK(world.last_word().starts_with("stopped on request"));
}

TEST_CASE(
    "all are asked to leave while one starts its trainer again without whom nobody saves: it "
    "does") {
  for (const int slot : {0, 1}) {
    CAPTURE(slot);
    // Alone it has the files, or one of two that have their copy of the model together.
    const int count = slot == 0 ? 2 : 4;
    World world(1, count);
    world.extra = {"STUB_REPORT_MS=20"};
    if (slot == 1) world.training = R"({"parallelism": {"pipeline": 2}})";
    const auto path = [&](int of) { return world.directory + "/" + std::to_string(of); };
    std::vector<std::unique_ptr<Process>> workers;
    std::vector<int> all;
    for (int i = 0; i < count; ++i) {
      const std::string plan = "idle:" + path(i);
      workers.push_back(i == 0 ? world.start(plan) : world.join_as(i, plan));
      all.push_back(i);
    }
    REQUIRE(world.wait_for_report([&](const ProgressReport& report) {
      return report.slot == slot && report.members == all;
    }));
    // The first is started at once, and each after it later.
    for (const char* starts : {"0", "1", "2"}) {
      CAPTURE(starts);
      const pid_t trainer = read_pid(path(slot));
      std::filesystem::remove(path(slot));
      std::filesystem::resize_file(world.directory + "/log", 0);
      ::kill(trainer, SIGKILL);
      REQUIRE(world.wait_for_log("a trainer died and is started again"));
    }
    for (const auto& worker : workers) worker->kill(SIGTERM);
    const pid_t again = read_pid(path(slot));
    CHECK(world.wait_for_log("\"stop\":true"));
    CHECK(::kill(again, 0) == 0);  // it is in the view that stops all
    for (const int one : all) ::kill(read_pid(path(one)), SIGKILL);
    for (const auto& worker : workers) CHECK(test::wait_for_end(worker->pid()));
  }
}

namespace {

/// A trainer of `path` that trained is another process now, which is not ready yet. Returns it.
pid_t replace_trainer(const std::string& path) {
  const pid_t trainer = read_pid(path);
  std::filesystem::remove(path);
  ::kill(trainer, SIGKILL);
  return read_pid(path);
}

}  // namespace

TEST_CASE("a trainer that is started again for a stop, and dies, has no other killed") {
  World world(2, 2);
  world.extra = {"STUB_REPORT_MS=20"};
  const auto path = [&](const char* name) { return world.directory + "/" + name; };
  const auto first = world.start("paced:" + path("0") + ",idle:" + path("holder"));
  const auto second = world.join_as(1, "idle:" + path("1") + ",idle:" + path("2"));
  REQUIRE(world.wait_for_report([](const ProgressReport& report) {
    return report.slot == 0 && report.members == std::vector<int>{0, 1};
  }));
  const pid_t again = replace_trainer(path("0"));
  first->kill(SIGTERM);
  REQUIRE(world.wait_for_log("asked to stop"));
  second->kill(SIGTERM);
  ::kill(again, SIGKILL);
  CHECK(world.wait_for_log("a trainer ended before it had begun"));
  CHECK(world.wait_for_log("\"stop\":true"));
  const pid_t holder = read_pid(path("holder"));
  CHECK(::kill(holder, 0) == 0);  // it is in the view that stops all
  for (const pid_t trainer : {holder, read_pid(path("1")), read_pid(path("2"))}) {
    ::kill(trainer, SIGKILL);
  }
  for (const auto* worker : {first.get(), second.get()}) {
    CHECK(test::wait_for_end(worker->pid()));
  }
}

TEST_CASE("a worker whose trainer dies before it is a member again, after it was asked, has left") {
  World world(1, 2);
  world.extra = {"STUB_REPORT_MS=20"};
  const std::string pid_file = world.directory + "/0";
  const auto first = world.start("paced:" + pid_file);
  const auto second = world.join_as(1, "idle:" + world.directory + "/1");
  REQUIRE(world.wait_for_report([](const ProgressReport& report) {
    return report.slot == 0 && report.members == std::vector<int>{0, 1};
  }));
  const pid_t again = replace_trainer(pid_file);
  first->kill(SIGTERM);
  REQUIRE(world.wait_for_log("asked to stop"));
  ::kill(again, SIGKILL);
  CHECK(first->wait() == contract::exit_code::kPlannedLeave);
}

TEST_CASE("trainers that do not stop in time are killed, and that is a hang") {
  World world;
  world.extra = {"STUB_STOP_MS=50"};
  const std::string pid_file = world.directory + "/deaf";
  const auto worker = world.start("deaf:" + pid_file);
  const pid_t trainer = read_pid(pid_file);
  worker->kill(SIGTERM);
  CHECK(worker->wait() == contract::exit_code::kHung);
  CHECK(test::wait_for_end(trainer));
}

namespace {

constexpr std::string_view kCutOffWhileLeaving =
    "stopped on request; the others did not hear this worker and went on without it before it had "
    "left";

}  // namespace

TEST_CASE("a worker that is to leave and was cut off meanwhile has left, and says how") {
  World world(1, 3);
  world.extra = {"STUB_REPORT_MS=20"};
  const auto first = world.start("idle:" + world.directory + "/0");
  const auto second = world.join_as(1, "idle:" + world.directory + "/1");
  const auto third = world.join_as(2, "idle:" + world.directory + "/2");
  const auto trains = [&](const std::vector<int>& slots) {
    return world.wait_for_report(
        [&](const ProgressReport& report) { return report.slot == 0 && report.members == slots; });
  };
  REQUIRE(trains({0, 1, 2}));
  // It knows that, too: else it would skip a view, and not know how it has come out.
  REQUIRE(world.wait_for_report(
      [](const ProgressReport& report) { return report.slot == 2 && report.members.size() == 3; }));
  third->kill(SIGSTOP);
  REQUIRE(trains({0, 1}));
  third->kill(SIGTERM);
  third->kill(SIGCONT);
  CHECK(third->wait() == contract::exit_code::kPlannedLeave);
  CHECK(read_file(world.directory + "/last-word-2") == kCutOffWhileLeaving);
}

TEST_CASE("a worker that is asked to leave while its cut-off trainers still end has left as well") {
  World world(1, 3);
  world.extra = {"STUB_REPORT_MS=20"};
  const auto first = world.start("idle:" + world.directory + "/0");
  const auto second = world.join_as(1, "idle:" + world.directory + "/1");
  const auto third = world.join_as(2, "loose:" + world.directory + "/2");
  const auto trains = [&](const std::vector<int>& slots) {
    return world.wait_for_report(
        [&](const ProgressReport& report) { return report.slot == 0 && report.members == slots; });
  };
  REQUIRE(trains({0, 1, 2}));
  third->kill(SIGSTOP);
  REQUIRE(trains({0, 1}));
  third->kill(SIGCONT);
  REQUIRE(world.wait_for_log("went on without this worker; its trainers start anew"));
  third->kill(SIGTERM);
  REQUIRE(world.wait_for_log("asked to stop"));
  ::kill(read_pid(world.directory + "/2"), SIGKILL);
  CHECK(third->wait() == contract::exit_code::kPlannedLeave);
  CHECK(read_file(world.directory + "/last-word-2") == kCutOffWhileLeaving);
}

TEST_CASE("a hung trainer that does not end at once is a member no more, for the others' sake") {
  World world(2);
  const auto worker =
      world.start("stuck:" + world.directory + "/stuck,idle:" + world.directory + "/idle");
  const pid_t trainer = read_pid(world.directory + "/stuck");
  const auto is_left_out = [&] {
    const std::string log = read_file(world.directory + "/log");
    const std::size_t killed = log.find("a trainer does not move and is killed");
    return killed != std::string::npos &&
           log.find("\"message\":\"membership\"", killed) != log.npos;
  };
  for (int i = 0; i < 30'000 && !is_left_out(); ++i) (void)poll(nullptr, 0, 1);
  CHECK(is_left_out());
  CHECK(::kill(trainer, 0) == 0);
  worker->kill(SIGTERM);
  REQUIRE(world.wait_for_log("asked to stop"));
  ::kill(trainer, SIGKILL);
  REQUIRE(world.wait_for_log("trainer ended"));
  // The other one might be about to save.
  const pid_t idle = read_pid(world.directory + "/idle");
  (void)poll(nullptr, 0, 200);
  CHECK(::kill(idle, 0) == 0);
  ::kill(idle, SIGKILL);
  CHECK(worker->wait() == contract::exit_code::kHung);
}

TEST_CASE("a stop request while the gang gathers ends at once") {
  World world(1, 2);
  const auto worker = world.start("wait");
  // It serves SIGTERM from its start on; the log tells that it has got to joining.
  REQUIRE(world.wait_for_log("waiting to join"));
  worker->kill(SIGTERM);
  CHECK(worker->wait() == contract::exit_code::kPlannedLeave);
  CHECK(world.last_word() == "stopped on request before training began");
}

TEST_CASE("what workers wait for is told before anybody has made a step") {
  World world(1, 2);
  world.extra = {"MUSTER_WORKERS=2"};
  const auto first = world.start("deaf:" + world.directory + "/first");
  world.extra.emplace_back("MUSTER_SLOT=1");
  const auto second = world.join("deaf:" + world.directory + "/second");
  for (const char* const name : {"/first", "/second"}) (void)read_pid(world.directory + name);
  second->kill(SIGSTOP);
  CHECK(world.wait_for_report([](const ProgressReport& report) {
    return report.slot == 0 && report.waiting.ends_with("silent are slots 1");
  }));
}

TEST_CASE("that trainers wait for the worker with the files is told") {
  World world;
  const auto worker = world.start("files");
  CHECK(world.wait_for_report([](const ProgressReport& report) {
    return report.waiting == "waiting for worker 0, which keeps the files";
  }));
}

TEST_CASE("training that stands still lets a worker in by an endpoint that was not there before") {
  World world;
  world.extra = {"STUB_REPORT_MS=20"};
  const auto first = world.start("idle:" + world.directory + "/first");
  REQUIRE(world.wait_for_report([](const ProgressReport& report) {
    return report.members == std::vector<int>{0} && report.total_steps == 0;
  }));
  world.replace_endpoint();
  runtime::GangInfo grown = world.make_gang();
  grown.start_attempt = 0;
  grown.attempt_of_slot[1] = 1;
  world.endpoint->set_gang(grown);
  world.extra.insert(world.extra.end(), {"MUSTER_WORKERS=2", "MUSTER_SLOT=1", "MUSTER_ATTEMPT=1"});
  const auto second = world.join("deaf:" + world.directory + "/second");
  (void)read_pid(world.directory + "/second");
}

TEST_CASE("who was slow is slow no more once it, or who waited for it, is another process") {
  for (const std::string& killed : {std::string("/slow"), std::string("/waits")}) {
    CAPTURE(killed);
    World world(2);
    const auto worker =
        world.start("paced:" + world.directory + "/waits,paced:" + world.directory + "/slow");
    const auto is_slow = [](const ProgressReport& report) {
      return report.slow_percent == 100 && report.slow_process == 1 && report.slow_rank == 1;
    };
    const auto is_even = [](const ProgressReport& report) {
      return report.slow_percent == 0 && report.slow_process == -1;
    };
    REQUIRE(world.wait_for_report(is_slow));
    const std::string path = world.directory + killed;
    // On a busy machine the other one may be taken for hung and started again as well.
    const std::string other = world.directory + (killed == "/slow" ? "/waits" : "/slow");
    std::ofstream(other + ".go") << "go" << std::flush;
    ::kill(read_pid(path), SIGKILL);
    CHECK(world.wait_for_report(is_even));
    // Whoever is started again is named anew.
    std::ofstream(path + ".go") << "go" << std::flush;
    CHECK(world.wait_for_report(is_slow));
    const std::string log = read_file(world.directory + "/log");
    const std::size_t first = log.find("holds the others up");
    REQUIRE(first != log.npos);
    const bool is_named_twice = log.find("holds the others up", first + 1) != log.npos;
    CHECK(is_named_twice == (path == world.directory + "/slow"));
  }
}

TEST_CASE("a refused join ends the worker with the endpoint's sentence") {
  World world;
  world.extra = {"MUSTER_ATTEMPT=3"};
  CHECK(world.run("wait") == contract::exit_code::kInternal);
  CHECK(world.last_word() ==
        "the endpoint refused this worker: slot 0 is at attempt 0, this worker is attempt 3");
}

TEST_CASE("an endpoint that never answers is given up") {
  World world;
  world.extra = {"STUB_JOIN_MS=50", "MUSTER_ENDPOINT=http://127.0.0.1:1"};
  CHECK(world.run("wait") == contract::exit_code::kPeerLost);
  CHECK(world.last_word().find("connect to 127.0.0.1:1: Connection refused") != std::string::npos);
}

TEST_CASE("a process left behind by a trainer does not outlive the worker") {
  World world;
  const std::string pid_file = world.directory + "/orphan";
  CHECK(world.run("orphan:" + pid_file) == 0);
  const pid_t orphan = read_pid(pid_file);
  CHECK(kill(orphan, 0) != 0);
}

TEST_CASE("a trainer dies with its sentinel") {
  World world;
  const std::string pid_file = world.directory + "/deaf";
  const auto worker = world.start("deaf:" + pid_file);
  const pid_t trainer = read_pid(pid_file);
  worker->kill(SIGKILL);
  CHECK(worker->wait() == 1000 + SIGKILL);
  CHECK(test::wait_for_end(trainer));
}

TEST_CASE("a trainer is handed its descriptors and an empty signal mask, nothing else") {
  World world;
  CHECK(world.run("look") == 0);
}

TEST_CASE("a program that cannot be executed is named") {
  World world;
  world.extra = {"STUB_PROGRAM=/nowhere/trainer"};
  CHECK(world.run("wait") == contract::exit_code::kInternal);
  CHECK(world.last_word() == "trainer process 0 (rank 0): cannot execute /nowhere/trainer");
}

TEST_CASE("a port in use and a missing token file have their exit codes") {
  World world;
  const auto taken = listen_tcp("127.0.0.1", 0);
  REQUIRE(taken);
  world.extra = {"MUSTER_BIND=127.0.0.1:" + std::to_string(taken->port)};
  CHECK(world.run("wait") == contract::exit_code::kPort);
  CHECK(world.last_word() == "for the other workers: listen on 127.0.0.1 port " +
                                 std::to_string(taken->port) + ": Address already in use");
  world.extra = {"MUSTER_METRICS_PORT=" + std::to_string(taken->port)};
  CHECK(world.run("wait") == contract::exit_code::kPort);
  CHECK(world.last_word().find("MUSTER_METRICS_PORT: listen on 127.0.0.1:") == 0);
  close(taken->fd);
  world.extra = {"MUSTER_TOKEN_FILE=/nowhere/token"};
  CHECK(world.run("wait") == contract::exit_code::kUsage);
  CHECK(world.last_word() ==
        "MUSTER_TOKEN_FILE: token file /nowhere/token: cannot open: No such file or directory");
}

TEST_CASE("a worker that is given no thread ends with a sentence") {
  World world;
  world.extra = {"STUB_TASKS=0"};
  CHECK(world.run("train") == contract::exit_code::kInternal);
  CHECK(world.last_word().starts_with("the system gives no more threads; raise the limit of "));
}

TEST_CASE("a worker trains without a thread that waits for its trainer's death") {
  if (geteuid() != 0) return;  // whose limit is on all that this user has
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  MESSAGE("skipped: in each process the thread sanitizer has a thread of its own");
  return;
#endif
#endif
  World world;
  // That which talks to the endpoint, and the trainer. The search for leaks would need one more.
  world.extra = {"STUB_TASKS=2", "ASAN_OPTIONS=detect_leaks=0"};
  CHECK(world.run("train") == 0);
}

TEST_CASE("metrics and health are served while the trainers run") {
  World world;
  const auto free_port = listen_tcp("127.0.0.1", 0);
  REQUIRE(free_port);
  close(free_port->fd);
  world.extra = {"MUSTER_METRICS_PORT=" + std::to_string(free_port->port)};
  const auto worker = world.start("wait");
  REQUIRE(world.wait_for_training());
  http::Client client;
  const std::string url = "http://127.0.0.1:" + std::to_string(free_port->port);
  const auto health = client.exchange({.url = url + "/healthz"});
  REQUIRE(health);
  CHECK(health->status == 200);
  const auto metrics = client.exchange({.url = url + "/metrics"});
  REQUIRE(metrics);
  CHECK(metrics->body.find("muster_worker_checkpoint_step{") != std::string::npos);
  worker->kill(SIGTERM);
  CHECK(worker->wait() == contract::exit_code::kPlannedLeave);
}
