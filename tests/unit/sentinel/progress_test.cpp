#include "worker/sentinel/progress.h"

#include <doctest/doctest.h>

#include <cmath>

#include "worker/sentinel/metrics.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

StepsMessage steps(int count, double seconds_each) {
  StepsMessage message;
  for (int i = 1; i <= count; ++i) {
    StepRecord step;
    step.step = i;
    step.total_steps = 100;
    step.epoch = 3;
    step.samples = 64;
    step.loss = 1.0 / i;
    step.step_seconds = seconds_each;
    step.compute_seconds = seconds_each / 2;
    step.communicate_seconds = seconds_each / 4;
    step.sent_bytes = static_cast<std::uint64_t>(i) * 10;
    step.logical_rank_computations = static_cast<std::uint64_t>(i) * 8;
    step.checkpoint_step = 5;
    message.steps.push_back(step);
  }
  message.usage = {2.5, 1'000'000};
  return message;
}

}  // namespace

TEST_CASE("the report is that of process 0, with bytes of all processes") {
  ProgressBook book("ns/job", 1, 2, 2);
  CHECK_FALSE(book.has_news());
  book.add(0, steps(10, 0.5));
  book.add(1, steps(20, 9));
  const ProgressReport report = book.report();
  CHECK(report.job == "ns/job");
  CHECK(report.slot == 1);
  CHECK(report.attempt == 2);
  CHECK(report.step == 10);
  CHECK(report.loss == "0.1000");
  CHECK(report.accuracy.empty());
  CHECK(report.sent_bytes == 300);
  CHECK(report.logical_rank_computations == 240);
  CHECK(report.samples_per_second == doctest::Approx(128));
  CHECK(report.step_seconds == doctest::Approx(0.5));
  CHECK(report.exchange_seconds == doctest::Approx(0.125));
  CHECK(report.eta_seconds == doctest::Approx(45));
  CHECK(report.checkpoint_step == 5);
}

TEST_CASE("parts of a split model are told once all processes of the worker have computed theirs") {
  ProgressBook book("ns/job", 0, 0, 2);
  StepsMessage message = steps(2, 0.5);
  for (StepRecord& step : message.steps) {
    step.part = {1000, 4, 2048, 3, 12, 8, 512};
    step.data_seconds = 0.05;
    step.turn_seconds = 0.2;
    step.update_seconds = 0.1;
  }
  StepsMessage no_pass = steps(1, 0.5);
  book.add(0, message);
  book.add(1, no_pass);
  CHECK(book.report().parts.empty());
  // A step whose sums were there already says nothing of what one takes.
  message.steps.push_back(no_pass.steps[0]);
  book.add(1, message);
  REQUIRE(book.report().parts.size() == 2);
  for (const PartReport& part : book.report().parts) {
    CHECK(part.counts == PartCounts{1000, 4, 2048, 3, 12, 8, 512});
    CHECK(part.compute_seconds == doctest::Approx(0.3));
    CHECK(part.turn_seconds == doctest::Approx(0.2));
    CHECK(part.update_seconds == doctest::Approx(0.1));
  }
  book.restart(1);
  CHECK(book.report().parts.empty());
  ProgressBook many("ns/job", 0, 0, 17);
  for (int process = 0; process < 17; ++process) many.add(process, message);
  CHECK(many.report().parts.empty());
}

TEST_CASE("samples per second are what the smoothed seconds of a step come to") {
  ProgressBook book("ns/job", 0, 0, 1);
  for (const double seconds_each : {1.0, 0.01, 1.0, 0.01}) book.add(0, steps(10, seconds_each));
  const ProgressReport report = book.report();
  CHECK(report.step_seconds > 0.5);
  CHECK(report.samples_per_second == doctest::Approx(64 / report.step_seconds));
  CHECK(report.eta_seconds == doctest::Approx(90 * report.step_seconds));
}

TEST_CASE("the last word of who ends before the end names a checkpoint that was saved, or none") {
  SummaryMessage last;
  last.is_final = true;
  last.step = 10;
  last.total_steps = 100;
  ProgressBook left("ns/job", 0, 0, 1);
  left.add(0, steps(10, 0.5));
  last.checkpoint_step = 8;
  left.add(0, last);
  CHECK(left.report().step == 10);
  CHECK(left.report().checkpoint_step == 8);
  // Without files there is none, however far it came.
  ProgressBook without_files("ns/job", 0, 0, 1);
  last.checkpoint_step = -1;
  without_files.add(0, last);
  CHECK(without_files.report().step == 10);
  CHECK(without_files.report().checkpoint_step == -1);
}

TEST_CASE("who ends without a state says nothing of how far training is") {
  SummaryMessage last;
  last.is_final = true;
  last.step = -1;
  last.total_steps = 100;
  last.model_parameters = 7;
  ProgressBook fresh("ns/job", 0, 0, 1);
  fresh.add(0, last);
  CHECK(fresh.has_news());
  CHECK_FALSE(fresh.report().has_progress());
  CHECK(fresh.report().checkpoint_step == -1);
  CHECK(fresh.report().model_parameters == 7);
  // It has lost the one it had.
  ProgressBook book("ns/job", 0, 0, 1);
  book.add(0, steps(10, 0.5));
  book.add(0, last);
  CHECK(book.report().step == 10);
  CHECK(book.report().loss == "0.1000");
  CHECK(book.report().checkpoint_step == 5);
}

TEST_CASE("a loss that is no number is not reported as one") {
  ProgressBook book("ns/job", 0, 0, 1);
  StepsMessage message = steps(1, 1);
  message.steps[0].loss = std::nan("");
  book.add(0, message);
  CHECK(book.report().loss.empty());
}

TEST_CASE("who ends without a step since its checkpoint reports no loss") {
  SummaryMessage message;
  message.is_final = message.complete = true;
  message.restored_step = message.step = 500;
  ProgressBook book("ns/job", 0, 0, 1);
  book.add(0, message);
  CHECK(book.report().loss.empty());
  message.step = 501;
  message.loss = 0.25;
  book.add(0, message);
  CHECK(book.report().loss == "0.2500");
}

TEST_CASE(
    "the termination message fits, even with the longest path and with thousands of members") {
  ProgressReport report;
  report.checkpoint_path = std::string(4000, 'p');
  CHECK(termination_message(report).size() <= 4096);
  report.parts.resize(kMaxReportedParts);
  CHECK(termination_message(report).size() <= 4096);
  report.checkpoint_path = "short";
  CHECK(termination_message(report).find("short") != std::string::npos);
  for (int slot = 0; slot < 2'000; ++slot) report.members.push_back(slot);
  CHECK(termination_message(report).size() <= 4096);
}

TEST_CASE("a phase that a step did not have is not measured as one that took no time") {
  Metrics metrics({"ns", "digits", 0}, 1);
  StepsMessage message = steps(3, 0.002);
  for (StepRecord& step : message.steps) step.compute_seconds = 0.001;
  message.steps[1].checkpoint_seconds = 0.5;
  message.steps[1].accuracy = 0.75;
  message.steps[2].accuracy = 0.75;
  metrics.add(0, message);
  const std::string text = metrics.render();
  const auto has = [&](const char* phase, const char* suffix, const char* value) {
    return text.find(std::string("muster_worker_phase_seconds_") + suffix +
                     R"({namespace="ns",phase=")" + phase +
                     R"(",process="0",slot="0",training_job="digits"} )" + value + "\n") !=
           std::string::npos;
  };
  CHECK(has("compute", "count", "3"));
  CHECK(has("compute", "sum", "0.003"));
  CHECK(has("checkpoint", "count", "1"));
  CHECK(has("checkpoint", "sum", "0.5"));
  CHECK(has("evaluate", "count", "0"));
  CHECK(has("record", "count", "0"));
  CHECK(text.find("muster_worker_accuracy_ratio{") != std::string::npos);
}

TEST_CASE("the newest stall and the delay of a process are told beside all stalls") {
  Metrics metrics({"ns", "digits", 1}, 1);
  const std::string labels = R"({namespace="ns",process="0",slot="1",training_job="digits"} )";
  metrics.add(0, EnteredMessage{3, 10, 2, 0, 0.5});
  metrics.add(0, EnteredMessage{4, 20, 2, 0, 0.25});
  metrics.set_step_delay(0, microseconds(40'000));
  metrics.set_change_delay(0, 0.125);
  const std::string text = metrics.render();
  CHECK(text.find("muster_worker_stall_seconds_total" + labels + "0.75\n") != std::string::npos);
  CHECK(text.find("muster_worker_last_stall_seconds" + labels + "0.25\n") != std::string::npos);
  CHECK(text.find("muster_worker_step_delay_seconds" + labels + "0.04\n") != std::string::npos);
  CHECK(text.find("muster_worker_change_delay_seconds" + labels + "0.125\n") != std::string::npos);
}

TEST_CASE("a process that waits for the rest of its copy of the model says so until it trains") {
  Metrics metrics({"ns", "digits", 1}, 2);
  const auto told = [&](int process) {
    const std::string name = R"(muster_worker_waits_for_copy{namespace="ns",process=")" +
                             std::to_string(process) + R"(",slot="1",training_job="digits"} )";
    const std::string text = metrics.render();
    const std::size_t at = text.find(name);
    REQUIRE(at != std::string::npos);
    return text[at + name.size()];
  };
  metrics.add(1, EnteredMessage{3, kWaits, 0, 0, 0.5});
  CHECK(told(0) == '0');
  CHECK(told(1) == '1');
  CHECK(metrics.render().find(R"(muster_worker_stall_seconds_total{namespace="ns",process="1",)"
                              R"(slot="1",training_job="digits"} 0)") != std::string::npos);
  metrics.add(1, EnteredMessage{4, 20, 0, 0, 0.5});
  CHECK(told(1) == '0');
  metrics.add(1, EnteredMessage{5, kWaits, 0, 0, 0});
  metrics.restart(1);
  CHECK(told(1) == '0');
}

TEST_CASE("what a process computed again and was given adds up, beside its newest membership") {
  Metrics metrics({"ns", "digits", 1}, 2);
  metrics.add(1, EnteredMessage{3, 10, 2, 4096, 0});
  metrics.add(1, EnteredMessage{4, 20, 3, 904, 0});
  metrics.set_membership(3, 4);
  metrics.set_membership(4, 5);
  const std::string text = metrics.render();
  const auto has = [&](const std::string& name, int process, const char* value) {
    return text.find("muster_worker_" + name + R"({namespace="ns",process=")" +
                     std::to_string(process) + R"(",slot="1",training_job="digits"} )" + value +
                     "\n") != std::string::npos;
  };
  CHECK(has("recomputed_logical_ranks_total", 0, "0"));
  CHECK(has("recomputed_logical_ranks_total", 1, "5"));
  CHECK(has("state_bytes_total", 0, "0"));
  CHECK(has("state_bytes_total", 1, "5000"));
  for (const int process : {0, 1}) {
    CHECK(has("membership_epoch", process, "4"));
    CHECK(has("members", process, "5"));
  }
}

TEST_CASE("copies of shards count as state that was received, and what lacks them is told") {
  Metrics metrics({"ns", "digits", 1}, 1);
  const std::string labels = R"({namespace="ns",process="0",slot="1",training_job="digits"} )";
  const auto has = [&](const std::string& name, const char* value) {
    return metrics.render().find("muster_worker_" + name + labels + value + "\n") !=
           std::string::npos;
  };
  CHECK(has("state_blocks_short", "0"));
  metrics.add(0, EnteredMessage{3, 10, 2, 904, 0});
  StepsMessage message = steps(3, 0.002);
  message.steps[0].copied_bytes = 4096;
  message.steps[0].blocks_short = 9;
  message.steps[1].copied_bytes = 5000;
  message.steps[1].blocks_short = 5;
  message.steps[2].blocks_short = 2;
  metrics.add(0, message);
  CHECK(has("state_bytes_total", "10000"));
  CHECK(has("state_blocks_short", "2"));
  metrics.add(0, steps(1, 0.002));
  CHECK(has("state_bytes_total", "10000"));
  CHECK(has("state_blocks_short", "0"));
}

TEST_CASE("metrics carry the contract's names and labels, and no other value than was told") {
  Metrics metrics({"ns", "digits", 3}, 2);
  metrics.add(1, steps(4, 0.002));
  const std::string text = metrics.render();
  const std::string labels = R"({namespace="ns",process="1",slot="3",training_job="digits"})";
  for (const std::string& line :
       {"muster_worker_steps_total" + labels + " 4",
        "muster_worker_samples_total" + labels + " 256", "muster_worker_loss" + labels + " 0.25",
        "muster_worker_sent_bytes_total" + labels + " 40",
        "muster_worker_logical_rank_computations_total" + labels + " 32",
        "muster_worker_cpu_seconds_total" + labels + " 2.5",
        "muster_worker_resident_memory_bytes" + labels + " 1000000",
        "muster_worker_checkpoint_step" + labels + " 5"}) {
    CAPTURE(line);
    CHECK(text.find(line + "\n") != std::string::npos);
  }
  CHECK(text.find("muster_worker_step_seconds_count" + labels + " 4\n") != std::string::npos);
  // Accuracy is not known before it was measured, nor a stage before it has ended.
  CHECK(text.find("muster_worker_accuracy_ratio{") == std::string::npos);
  CHECK(text.find("muster_worker_start_seconds{") == std::string::npos);
  metrics.set_start(0, "join", 1.5);
  CHECK(metrics.render().find(
            R"(muster_worker_start_seconds{namespace="ns",process="0",slot="3",stage="join",)"
            R"(training_job="digits"} 1.5)") != std::string::npos);
}
