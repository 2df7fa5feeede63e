#include "operator/runtime/metrics.h"

#include <doctest/doctest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "common/contract.h"
#include "operator/core/words.h"
#include "operator/runtime/metrics_transport.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct World {
  ManualClock clock;
  Metrics metrics{{&clock, "1.2.3"}};
  api::TrainingJob job;

  World() {
    job.meta.namespace_name = "team";
    job.meta.name = "digits";
    job.meta.uid = "uid-1";
    job.meta.creation_time = clock.wall_now();
    job.spec.training.emplace();
    job.spec.training->batch_size = 64;
    job.status.phase = "Pending";
  }

  void condition(const std::string& type, const std::string& status,
                 std::string_view reason = "Reason") {
    std::erase_if(job.status.conditions, [&](const auto& one) { return one.type == type; });
    job.status.conditions.push_back({type, status, std::string(reason), "", 1, clock.wall_now()});
  }
  void run() {
    job.status.phase = "Running";
    job.status.workers = "2/3";
    job.status.target_workers = 3;
    job.status.membership_epoch = 1;
    condition("Running", "True");
    metrics.on_job(job);
  }
  void report(int attempt, std::int64_t step, std::int64_t restored = -1) {
    ProgressReport report;
    report.job = "team/digits";
    report.attempt = attempt;
    report.step = step;
    report.total_steps = 100;
    report.restored_step = restored;
    report.samples_per_second = 640;  // ten steps a second
    metrics.on_progress(job.meta.key(), report);
  }
  /// The value of a series as text; "absent" when no line has it.
  std::string value(const std::string& series) const {
    const std::string text = "\n" + metrics.render();
    const std::size_t at = text.find("\n" + series + " ");
    if (at == std::string::npos) return "absent";
    const std::size_t from = at + series.size() + 2;
    return text.substr(from, text.find('\n', from) - from);
  }
};

const std::string kOfJob = R"({namespace="team",training_job="digits"})";

std::string of_job(const std::string& more) {
  return R"({namespace="team",training_job="digits",)" + more + "}";
}

}  // namespace

TEST_CASE("the queue's metrics follow a key from its adding to its end, by the clock") {
  World world;
  const std::string queue = R"({name="trainingjob"})";
  core::WorkQueue keys(1, core::WorkQueueOptions{.observer = &world.metrics});
  const api::ObjectKey key{"team", "digits"};
  keys.add(key);
  keys.add(key);  // it waits already
  CHECK(world.value("workqueue_depth" + queue) == "1");
  CHECK(world.value("workqueue_adds_total" + queue) == "1");
  world.clock.advance(milliseconds(300));
  REQUIRE(keys.pop(world.clock.mono_now()));
  CHECK(world.value("workqueue_depth" + queue) == "0");
  CHECK(world.value("workqueue_queue_duration_seconds_sum" + queue) == "0.3");
  CHECK(world.value(R"(controller_runtime_active_workers{controller="trainingjob"})") == "1");
  world.clock.advance(seconds(2));
  keys.add(key);  // while it is in hand
  CHECK(world.value("workqueue_unfinished_work_seconds" + queue) == "2");
  CHECK(world.value("workqueue_longest_running_processor_seconds" + queue) == "2");
  keys.done(key);
  CHECK(world.value("workqueue_work_duration_seconds_sum" + queue) == "2");
  CHECK(world.value(R"(controller_runtime_active_workers{controller="trainingjob"})") == "0");
  CHECK(world.value("workqueue_unfinished_work_seconds" + queue) == "0");
  REQUIRE(keys.pop(world.clock.mono_now()));
  keys.add_backed_off(key, world.clock.mono_now());
  keys.done(key);
  CHECK(world.value("workqueue_retries_total" + queue) == "1");
}

TEST_CASE("a job's series show its conditions, workers, steps and checkpoint, and go with it") {
  World world;
  world.metrics.on_job(world.job);
  world.clock.advance(seconds(5));
  CHECK(world.value("muster_job_pending_seconds" + of_job(R"(awaits="Room")")) == "5");
  CHECK(world.value("muster_job_step" + kOfJob) == "absent");
  CHECK(world.value(R"(muster_jobs{phase="Pending"})") == "1");
  world.run();
  world.report(0, 10);
  CHECK(world.value("muster_job_pending_seconds" + kOfJob) == "0");
  CHECK(world.value("muster_gang_start_seconds_sum") == "5");
  CHECK(world.value("muster_gang_start_seconds_count") == "1");
  CHECK(world.value(R"(muster_jobs{phase="Pending"})") == "0");
  CHECK(world.value(R"(muster_jobs{phase="Running"})") == "1");
  CHECK(world.value("muster_job_workers" + kOfJob) == "2");
  CHECK(world.value("muster_job_target_workers" + kOfJob) == "3");
  CHECK(world.value("muster_job_step" + kOfJob) == "10");
  CHECK(world.value("muster_job_total_steps" + kOfJob) == "100");
  const std::string running = "muster_job_condition";
  CHECK(world.value(running + of_job(R"(type="Running",status="true")")) == "1");
  CHECK(world.value(running + of_job(R"(type="Running",status="false")")) == "0");
  CHECK(world.value(running + of_job(R"(type="Running",status="unknown")")) == "0");
  world.job.status.checkpoint = api::CheckpointStatus{8, world.clock.wall_now(), true, "/c"};
  world.job.status.failure = api::FailureStatus{0, 25, "PeerLost", ""};
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_checkpoint_step" + kOfJob) == "8");
  CHECK(world.value("muster_job_checkpoint_timestamp_seconds" + kOfJob) == "1700000005");
  CHECK(world.value("muster_job_failure" + of_job(R"(reason="PeerLost")")) == "1");

  world.metrics.on_job_gone(world.job.meta.key());
  CHECK(world.metrics.render().find("training_job") == std::string::npos);
}

TEST_CASE("of a job that ended a while ago there is only what it came to") {
  World world;
  world.run();
  world.report(0, 100);
  world.job.status.phase = "Failed";
  world.job.status.failure = api::FailureStatus{0, 25, "PeerLost", ""};
  world.job.status.completion_time = world.clock.wall_now();
  world.condition("Running", "False");
  world.condition("Failed", "True");
  world.metrics.on_job(world.job);
  api::JobCost cost;
  cost.currency = "EUR";
  cost.amount = 3 * api::kOne;
  world.metrics.on_cost(world.job.meta.key(), cost);
  world.clock.advance(seconds(15 * 60));
  CHECK(world.value("muster_job_step" + kOfJob) == "100");
  const auto series = [&world] {
    std::istringstream page(world.metrics.render());
    std::set<std::string> found;
    for (std::string line; std::getline(page, line);) {
      if (line.find("training_job=") != std::string::npos) found.insert(line);
    }
    return found;
  };
  CHECK(series().size() > 20);
  world.clock.advance(seconds(1));
  const std::set<std::string> left = {
      "muster_job_condition" + of_job(R"(type="Failed",status="true")") + " 1",
      "muster_job_cost" + of_job(R"(currency="EUR")") + " 3",
      "muster_job_failure" + of_job(R"(reason="PeerLost")") + " 1"};
  CHECK(series() == left);
  CHECK(world.value(R"(muster_jobs{phase="Failed"})") == "1");

  // Whoever takes over has not seen it end, but reads when that was.
  World later;
  later.job = world.job;
  later.clock.advance(seconds(3600));
  later.metrics.on_job(later.job);
  CHECK(later.value("muster_job_target_workers" + kOfJob) == "absent");

  // The same name again is another job.
  world.job.meta.uid = "uid-2";
  world.job.status = {};
  world.run();
  CHECK(world.value("muster_job_target_workers" + kOfJob) == "3");
}

TEST_CASE("of more jobs than are made into text at a time each family has its head once") {
  World world;
  constexpr int kJobs = 1100;
  for (int i = 0; i < kJobs; ++i) {
    world.job.meta.name = "digits-" + std::to_string(i);
    world.run();
  }
  std::map<std::string, int> heads, series;
  std::string family, line;
  for (std::istringstream text(world.metrics.render()); std::getline(text, line);) {
    if (line.starts_with("# TYPE ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      ++heads[family];
    } else if (line.find("training_job=\"") != std::string::npos) {
      CHECK(line.starts_with(family + "{"));
      ++series[family];
    }
  }
  CHECK(series["muster_job_workers"] == kJobs);
  CHECK(series["muster_job_phase_seconds_total"] == 7 * kJobs);
  for (const auto& [name, count] : heads) {
    CAPTURE(name);
    CHECK(count == 1);
  }
}

TEST_CASE("words in a job's status that are not ours make no labels") {
  World world;
  world.job.status.phase = "Surprise\n";
  world.condition("Evil", "True");
  world.job.status.failure = api::FailureStatus{0, 1, "a \"quoted\" sentence", ""};
  world.metrics.on_job(world.job);
  const std::string text = world.metrics.render();
  CHECK(text.find("Surprise") == std::string::npos);
  CHECK(text.find("Evil") == std::string::npos);
  CHECK(text.find("quoted") == std::string::npos);
  CHECK(world.value("muster_job_failure" + of_job(R"(reason="Error")")) == "1");
}

TEST_CASE("cost is shown in its currency as far as it is known, and not at all where it is not") {
  World world;
  world.run();
  CHECK(world.metrics.render().find("muster_job_cost") == std::string::npos);
  api::JobCost cost;
  cost.currency = "EUR";
  cost.unknown = "node n is in no tier";
  world.metrics.on_cost(world.job.meta.key(), cost);
  CHECK(world.metrics.render().find("muster_job_cost") == std::string::npos);
  cost.amount = 12'500'000'000;
  world.metrics.on_cost(world.job.meta.key(), cost);
  CHECK(world.value("muster_job_cost" + of_job(R"(currency="EUR")")) == "12.5");
  cost.currency = R"(E"R)";
  world.metrics.on_cost(world.job.meta.key(), cost);
  CHECK(world.value("muster_job_cost" + of_job(R"(currency="")")) == "12.5");
  world.metrics.on_cost({"team", "other"}, cost);
  world.metrics.on_job_gone(world.job.meta.key());
  CHECK(world.metrics.render().find("muster_job_cost") == std::string::npos);
}

TEST_CASE("time is booked on the phase it was spent in, and on steps made for the first time") {
  World world;
  world.metrics.on_job(world.job);
  world.clock.advance(seconds(3));
  world.run();
  world.clock.advance(seconds(10));
  world.report(0, 50);  // five seconds of steps in ten
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "5");
  world.clock.advance(seconds(1));
  world.report(0, 90);  // the rate says four seconds, one has passed
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "6");
  world.job.status.phase = "Restarting";
  world.job.status.restarts = 1;
  world.condition("Running", "False");
  world.metrics.on_job(world.job);
  world.clock.advance(seconds(7));
  world.run();
  CHECK(world.value("muster_job_phase_seconds_total" + of_job(R"(phase="Pending")")) == "3");
  CHECK(world.value("muster_job_phase_seconds_total" + of_job(R"(phase="Running")")) == "11");
  CHECK(world.value("muster_job_phase_seconds_total" + of_job(R"(phase="Restarting")")) == "7");
  CHECK(world.value("muster_job_restarts_total" + kOfJob) == "1");
  world.job.status.taken_back = {2, 1, 36, "team/x", "u"};
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_shrinks_total" + kOfJob) == "2");
  CHECK(world.value("muster_job_preemptions_total" + kOfJob) == "1");
  CHECK(world.value("muster_job_lost_process_seconds_total" + kOfJob) == "36");
  // The second attempt starts from step 60 and makes thirty steps again.
  world.clock.advance(seconds(2));
  world.report(1, 80, 60);
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "30");
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "6");
  world.clock.advance(seconds(2));
  world.report(1, 95, 60);
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "6.5");
  // A straggling report of the first attempt changes nothing.
  world.report(0, 99);
  CHECK(world.value("muster_job_step" + kOfJob) == "95");
  // The start of the gang is measured once.
  CHECK(world.value("muster_gang_start_seconds_count") == "1");
}

namespace {

/// Of worker 0, which trains with worker 1.
ProgressReport told_by_two() {
  ProgressReport report;
  report.job = "team/digits";
  report.members = {0, 1};
  report.total_steps = 100;
  return report;
}

}  // namespace

TEST_CASE("a worker replaced while others train repeats nothing; who trains speaks for all") {
  World world;
  world.job.status.start_attempt = 0;
  world.run();
  ProgressReport report = told_by_two();
  report.samples_per_second = 640;
  const auto tell = [&](int slot, int attempt, std::int64_t step) {
    world.clock.advance(seconds(10));
    report.slot = slot;
    report.attempt = attempt;
    report.step = step;
    world.metrics.on_progress(world.job.meta.key(), report);
  };
  tell(0, 0, 20);
  tell(1, 0, 90);  // it does not speak while worker 0 trains
  CHECK(world.value("muster_job_step" + kOfJob) == "20");
  report.members = {1};  // worker 0 is lost
  tell(1, 0, 40);
  CHECK(world.value("muster_job_step" + kOfJob) == "40");
  report.members = {0, 1};
  tell(0, 4, 60);  // its next attempt
  tell(1, 0, 65);
  tell(0, 4, 55);  // late
  CHECK(world.value("muster_job_step" + kOfJob) == "60");
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "0");
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "6");
  // Now all were lost, and the gang starts from the checkpoint of step 50.
  world.job.status.start_attempt = 7;
  world.metrics.on_job(world.job);
  tell(0, 4, 99);
  CHECK(world.value("muster_job_step" + kOfJob) == "60");
  report.restored_step = 50;
  tell(0, 7, 52);
  CHECK(world.value("muster_job_step" + kOfJob) == "52");
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "10");
}

TEST_CASE("a worker that waits before it has loaded the checkpoint repeats nothing by that") {
  World world;
  world.run();
  world.report(0, 60);
  ProgressReport waits;
  waits.job = "team/digits";
  waits.attempt = 1;
  waits.waiting = "waiting for the operator's word";
  world.metrics.on_progress(world.job.meta.key(), waits);
  CHECK(world.value("muster_job_step" + kOfJob) == "60");
  world.report(1, 52, 50);
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "10");
}

TEST_CASE("who says the same again in the middle of a long step takes no time from that step") {
  World world;
  world.run();
  world.report(0, 50);
  const auto productive = [&] {
    return std::stod(world.value("muster_job_productive_seconds_total" + kOfJob));
  };
  const double before = productive();
  for (int i = 0; i < 2; ++i) {
    world.clock.advance(seconds(15));
    world.report(0, 50);
  }
  CHECK(productive() == before);
  world.clock.advance(seconds(2));
  world.report(0, 90);  // four seconds, by the rate
  CHECK(productive() == before + 4);
}

TEST_CASE("a return to a checkpoint that an earlier operator was told of is not counted again") {
  World world;
  world.job.status.start_attempt = 0;
  world.run();
  ProgressReport report = told_by_two();
  report.membership_epoch = 4;
  report.step = 60;
  report.changes = {{4, 50, std::string(contract::change::kReturned), 0, "blocks were lost"}};
  for (int i = 0; i < 2; ++i) world.metrics.on_progress(world.job.meta.key(), report);
  CHECK(world.value("muster_job_step" + kOfJob) == "60");
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "0");
}

TEST_CASE("the step follows a return to a checkpoint within the same pods") {
  World world;
  world.job.status.start_attempt = 0;
  world.run();
  ProgressReport report = told_by_two();
  const auto tell = [&](int attempt, std::int64_t epoch, std::int64_t step) {
    world.clock.advance(seconds(10));
    report.attempt = attempt;
    report.membership_epoch = epoch;
    report.step = step;
    world.metrics.on_progress(world.job.meta.key(), report);
    return world.value("muster_job_step" + kOfJob);
  };
  const auto repeated = [&] { return world.value("muster_job_repeated_steps_total" + kOfJob); };
  CHECK(tell(0, 3, 60) == "60");
  CHECK(tell(0, 3, 58) == "60");  // of another worker, from before
  report.changes = {{4, 50, std::string(contract::change::kReturned), 0, "blocks were lost"}};
  CHECK(tell(0, 4, 52) == "52");
  CHECK(repeated() == "10");
  CHECK(tell(0, 4, 54) == "54");  // the change is told again: it is known
  CHECK(repeated() == "10");
  report.changes.clear();
  CHECK(tell(0, 3, 59) == "59");  // late, and seen to be once somebody tells where they are now
  CHECK(tell(0, 4, 56) == "56");
  CHECK(tell(0, 3, 55) == "56");
  CHECK(tell(0, 4, 61) == "61");
  CHECK(tell(0, 4, 57) == "61");  // from before again
  // A worker that comes back once more, in the same membership.
  report.changes = {{4, 55, std::string(contract::change::kReturned), 0, "the loss is nan"}};
  CHECK(tell(0, 4, 55) == "55");
  CHECK(repeated() == "16");
  // Both are told again.
  report.changes.insert(report.changes.begin(),
                        {4, 50, std::string(contract::change::kReturned), 0, "blocks were lost"});
  CHECK(tell(0, 4, 58) == "58");
  CHECK(repeated() == "16");
  // The gang's next start makes steps again from its checkpoint to where it was.
  world.job.status.start_attempt = 1;
  world.metrics.on_job(world.job);
  report.restored_step = 50;
  CHECK(tell(1, 9, 51) == "51");
  CHECK(repeated() == "24");
}

TEST_CASE("an operator that takes a job over does not take its past for repeated") {
  World world;
  world.job.status.start_attempt = 0;
  world.job.status.progress = api::Progress{};
  world.job.status.progress->step = 70;
  world.run();
  world.report(0, 80);
  CHECK(world.value("muster_job_repeated_steps_total" + kOfJob) == "0");
}

TEST_CASE("who waits for a turn is told from who waits for room or workers") {
  World world;
  world.job.status.phase = "Waiting";
  std::string queue;
  const auto awaits = [&](std::string_view what) {
    world.metrics.on_job(world.job, queue);
    return world.value("muster_job_pending_seconds" +
                       of_job(R"(awaits=")" + std::string(what) + "\"")) != "absent";
  };
  CHECK(awaits("Room"));
  world.condition("Admitted", "False", contract::reason::kGangWaiting);
  CHECK(awaits("Room"));
  queue = "research";
  CHECK(awaits("Turn"));
  CHECK_FALSE(awaits("Room"));  // of one wait there is one series
  world.condition("Admitted", "False", contract::reason::kBudgetSpent);
  CHECK(awaits("Turn"));
  world.condition("Admitted", "False", contract::reason::kPreempted);
  CHECK(awaits("Turn"));
  world.condition("Admitted", "False", core::words::kQuotaExceeded);
  CHECK(awaits("Room"));
  world.condition("Admitted", "True", contract::reason::kGangScheduled);
  CHECK(awaits("Workers"));
  world.condition("Running", "False", core::words::kWaitingForPods);
  CHECK(awaits("Workers"));
  queue.clear();
  world.condition("Running", "False", core::words::kWaitingForKueue);
  CHECK(awaits("Turn"));
}

TEST_CASE("to a new leader a job that was created suspended waits since it was resumed") {
  World world;
  world.condition("Suspended", "True");
  world.clock.advance(seconds(3 * 24 * 3600));
  world.condition("Suspended", "False", contract::reason::kResumed);
  world.clock.advance(seconds(60));
  world.metrics.on_job(world.job);  // the first that it sees of it
  CHECK(world.value("muster_job_pending_seconds" + of_job(R"(awaits="Room")")) == "60");
  world.clock.advance(seconds(5));
  world.run();
  CHECK(world.value("muster_gang_start_seconds_sum") == "65");
}

TEST_CASE("a job that is to write checkpoints and has none says so") {
  World world;
  world.run();
  CHECK(world.value("muster_job_checkpoint_step" + kOfJob) == "absent");
  world.job.spec.training->checkpoint.emplace();
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_checkpoint_step" + kOfJob) == "-1");
  CHECK(world.value("muster_job_checkpoint_timestamp_seconds" + kOfJob) == "absent");
  world.job.status.checkpoint = api::CheckpointStatus{8, world.clock.wall_now(), true, "/c"};
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_checkpoint_step" + kOfJob) == "8");
}

TEST_CASE("a job's checkpoint is the newest that is known, and goes back with its status") {
  World world;
  world.run();
  world.job.spec.training->checkpoint.emplace();
  const auto written = [&](std::int64_t step) {
    world.job.status.checkpoint.reset();
    if (step >= 0) world.job.status.checkpoint = {step, world.clock.wall_now(), true, "/c"};
    world.metrics.on_job(world.job);
    return world.value("muster_job_checkpoint_step" + kOfJob);
  };
  const auto reported = [&](std::int64_t saved) {
    ProgressReport report;
    report.step = report.total_steps = 100;
    report.checkpoint_step = saved;
    world.metrics.on_progress(world.job.meta.key(), report);
    return world.value("muster_job_checkpoint_step" + kOfJob);
  };
  CHECK(written(8) == "8");
  CHECK(reported(6) == "8");
  CHECK(reported(12) == "12");
  CHECK(written(8) == "12");  // Reports are ahead of status.
  CHECK(written(3) == "3");   // Another start has begun there.
  CHECK(written(3) == "3");
  CHECK(reported(5) == "5");
  CHECK(written(-1) == "-1");
  CHECK(world.value("muster_job_checkpoint_timestamp_seconds" + kOfJob) == "absent");
}

TEST_CASE("a stalled job is told from one that makes steps") {
  World world;
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_progress_timestamp_seconds" + kOfJob) == "absent");
  world.run();
  world.clock.advance(seconds(4));
  world.report(0, 3);
  world.clock.advance(seconds(60));
  world.report(0, 3);
  CHECK(world.value("muster_job_progress_timestamp_seconds" + kOfJob) == "1700000004");
}

TEST_CASE("a job of the same name under another uid starts from nothing") {
  World world;
  world.run();
  world.report(0, 70);
  world.job.meta.uid = "uid-2";
  world.job.status = {};
  world.metrics.on_job(world.job);
  CHECK(world.value("muster_job_step" + kOfJob) == "absent");
  CHECK(world.value("muster_job_productive_seconds_total" + kOfJob) == "0");
}

namespace {

class OneAnswer final : public kube::HttpTransport {
 public:
  explicit OneAnswer(ManualClock& clock) : clock_(clock) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    clock_.advance(milliseconds(250));
    if (request.method == "DELETE") return Error(ErrorCode::kUnavailable, "no connection");
    return kube::HttpResponse{409, "", std::nullopt};
  }
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    Stream stream;
    stream.head.code = 410;
    return stream;
  }

 private:
  ManualClock& clock_;
};

}  // namespace

TEST_CASE("exchanges with the API server are counted by answer and timed, also those without one") {
  World world;
  OneAnswer inner(world.clock);
  const auto transport =
      make_measured_transport({&inner, &world.metrics, &world.clock, "10.0.0.1:443"});
  kube::HttpRequest request;
  request.method = "PATCH";
  CHECK(transport->send(request)->code == 409);
  request.method = "DELETE";
  CHECK_FALSE(transport->send(request));
  request.method = "GET";
  CHECK(transport->open_stream(request)->head.code == 410);
  const auto total = [](const char* code, const char* method) {
    return std::string(R"(rest_client_requests_total{code=")") + code +
           R"(",host="10.0.0.1:443",method=")" + method + R"("})";
  };
  CHECK(world.value(total("409", "PATCH")) == "1");
  CHECK(world.value(total("<error>", "DELETE")) == "1");
  CHECK(world.value(total("410", "GET")) == "1");
  CHECK(world.value(
            R"(rest_client_request_duration_seconds_sum{host="10.0.0.1:443",verb="PATCH"})") ==
        "0.25");
}

namespace {

/// The page of an operator to which all has happened that is counted.
std::string page_of_all() {
  World world;
  world.run();
  world.job.status.failure = api::FailureStatus{0, 25, "PeerLost", ""};
  world.job.status.checkpoint = api::CheckpointStatus{8, world.clock.wall_now(), true, "/c"};
  world.metrics.on_job(world.job);
  world.report(0, 3);
  world.metrics.on_cost(world.job.meta.key(), {"EUR", api::kOne, {}, 0, "", {}, {}});
  world.metrics.on_queues({{"a", 1, 2, {{"cpu", 1, 1, 0}}, {{"EUR", 5, 1}}}});
  world.metrics.set_leader(true);
  world.metrics.set_concurrency(4);
  world.metrics.on_endpoint(contract::kPathJoin, 200);
  world.metrics.on_watch(api::Kind::kPod, 2, 1);
  world.metrics.on_rest({"GET", "h", 200, 0.1});
  world.metrics.on_status_written(core::Pass::kDecision);
  world.metrics.on_reconciled(ReconcileResult::kError);
  world.metrics.on_scheduled(0.01);
  world.metrics.on_inventory_remade(core::Remade::kNodes);
  world.metrics.set_ca_end(WallTime(seconds(1'900'000'000)));
  return world.metrics.render();
}

/// What others' dashboards and alerts ask for: these names are not ours to change, so that they
/// stand here once more.
struct StockMetric {
  const char* name;
  const char* type;
  std::vector<std::string> labels;
};

const std::vector<StockMetric> kStockMetrics = {
    {"controller_runtime_reconcile_total", "counter", {"controller", "result"}},
    {"controller_runtime_reconcile_errors_total", "counter", {"controller"}},
    {"controller_runtime_reconcile_time_seconds", "histogram", {"controller"}},
    {"controller_runtime_max_concurrent_reconciles", "gauge", {"controller"}},
    {"controller_runtime_active_workers", "gauge", {"controller"}},
    {"workqueue_depth", "gauge", {"name"}},
    {"workqueue_adds_total", "counter", {"name"}},
    {"workqueue_retries_total", "counter", {"name"}},
    {"workqueue_queue_duration_seconds", "histogram", {"name"}},
    {"workqueue_work_duration_seconds", "histogram", {"name"}},
    {"workqueue_unfinished_work_seconds", "gauge", {"name"}},
    {"workqueue_longest_running_processor_seconds", "gauge", {"name"}},
    {"rest_client_requests_total", "counter", {"code", "host", "method"}},
    {"rest_client_request_duration_seconds", "histogram", {"host", "verb"}},
    {"leader_election_master_status", "gauge", {"name"}},
    {"process_cpu_seconds_total", "counter", {}},
    {"process_resident_memory_bytes", "gauge", {}},
    {"process_virtual_memory_bytes", "gauge", {}},
    {"process_open_fds", "gauge", {}},
    {"process_max_fds", "gauge", {}},
    {"process_start_time_seconds", "gauge", {}},
};

}  // namespace

TEST_CASE("what dashboards of any controller ask for is served as they know it") {
  const std::string text = page_of_all();
  for (const StockMetric& wanted : kStockMetrics) {
    CAPTURE(wanted.name);
    const std::string name = wanted.name, type = wanted.type;
    CHECK(text.find("\n# TYPE " + name + " " + type + "\n") != std::string::npos);
    const auto at = text.find("\n" + name + (type == "histogram" ? "_bucket{" : ""));
    REQUIRE(at != std::string::npos);
    const std::string series = text.substr(at, text.find('\n', at + 1) - at);
    for (const std::string& label : wanted.labels) {
      CHECK_MESSAGE(std::regex_search(series, std::regex("[{,]" + label + "=\"")), series);
    }
  }
}

TEST_CASE("every metric of the contract is served, under its name, with help and type") {
  const std::string text = page_of_all();
  namespace name = contract::metric;
  for (const auto wanted : {name::kReconcileTotal,
                            name::kReconcileErrors,
                            name::kReconcileSeconds,
                            name::kReconcileMaxConcurrent,
                            name::kReconcileActive,
                            name::kQueueDepth,
                            name::kQueueAdds,
                            name::kQueueRetries,
                            name::kQueueWaitSeconds,
                            name::kQueueWorkSeconds,
                            name::kQueueUnfinishedSeconds,
                            name::kQueueLongestSeconds,
                            name::kRestRequests,
                            name::kRestSeconds,
                            name::kLeader,
                            name::kCaEnd,
                            name::kProcessCpuSeconds,
                            name::kProcessResidentBytes,
                            name::kProcessVirtualBytes,
                            name::kProcessOpenFds,
                            name::kProcessMaxFds,
                            name::kProcessStartSeconds,
                            name::kBuildInfo,
                            name::kJobs,
                            name::kJobCondition,
                            name::kJobWorkers,
                            name::kJobTargetWorkers,
                            name::kJobRestarts,
                            name::kJobShrinks,
                            name::kJobPreemptions,
                            name::kJobLostSeconds,
                            name::kJobCost,
                            name::kJobStep,
                            name::kJobTotalSteps,
                            name::kJobCheckpointStep,
                            name::kJobCheckpointTime,
                            name::kJobProgressTime,
                            name::kJobPendingSeconds,
                            name::kJobPhaseSeconds,
                            name::kJobProductiveSeconds,
                            name::kJobRepeatedSteps,
                            name::kJobFailure,
                            name::kTrainingQueueWaiting,
                            name::kTrainingQueueAdmitted,
                            name::kTrainingQueueQuota,
                            name::kTrainingQueueUsed,
                            name::kTrainingQueueBorrowed,
                            name::kTrainingQueueBudget,
                            name::kTrainingQueueSpent,
                            name::kGangStartSeconds,
                            name::kScheduleSeconds,
                            name::kInventoryRemade,
                            name::kWatchRelists,
                            name::kWatchBadLines,
                            name::kEndpointRequests,
                            name::kStatusWrites}) {
    CAPTURE(wanted);
    CHECK(text.find("# HELP " + std::string(wanted) + " ") != std::string::npos);
    CHECK(text.find("# TYPE " + std::string(wanted) + " ") != std::string::npos);
    // At least one series.
    const std::regex series("(^|\n)" + std::string(wanted) + "(_count)?(\\{[^\n]*\\})? [^\n]+\n");
    CHECK(std::regex_search(text, series));
  }
  // A family stands once, or a scraper refuses the page.
  std::set<std::string> families;
  const std::regex type("# TYPE (\\S+)");
  for (std::sregex_iterator at(text.begin(), text.end(), type), end; at != end; ++at) {
    CHECK(families.insert((*at)[1]).second);
  }
}

TEST_CASE("what Linux knows of the process is there") {
  World world;
  CHECK(std::stod(world.value("process_resident_memory_bytes")) > 1e6);
  CHECK(std::stod(world.value("process_open_fds")) >= 3);
  CHECK(std::stod(world.value("process_max_fds")) >= 64);
  CHECK(std::stod(world.value("process_start_time_seconds")) > 1.6e9);
}
