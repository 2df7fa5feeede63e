#include "worker/step_times.h"

#include <doctest/doctest.h>

#include <cstdint>

using muster::engine::StepReport;
using muster::worker::StepTimes;

namespace {

/// A step whose parts take one to four such parts of its time.
StepReport step_of(double unit) {
  StepReport report;
  report.data_seconds = unit;
  report.compute_seconds = 2 * unit;
  report.communicate_seconds = 3 * unit;
  report.update_seconds = 4 * unit;
  report.step_seconds = 10 * unit;
  return report;
}

}  // namespace

TEST_CASE("times of steps are medians, of each part by itself") {
  StepTimes times;
  CHECK(times.steps() == 0);
  CHECK(times.medians().step == 0);
  for (const double unit : {64.0, 1.0, 2.0, 1.0, 0.5, 1.0}) times.add(step_of(unit));
  StepReport late = step_of(1.0);
  late.update_seconds = 99;
  times.add(late);
  const StepTimes::Times usual = times.medians();
  CHECK(times.steps() == 7);
  CHECK(usual.step == 10);
  CHECK(usual.data == 1);
  CHECK(usual.compute == 2);
  CHECK(usual.communicate == 3);
  CHECK(usual.update == 4);
}

TEST_CASE("of a long training the times of the newest steps are told") {
  StepTimes times;
  for (std::size_t i = 0; i < 10 * StepTimes::kKept; ++i) times.add(step_of(1.0));
  for (std::size_t i = 0; i <= StepTimes::kKept / 2; ++i) times.add(step_of(2.0));
  CHECK(times.steps() == StepTimes::kKept);
  CHECK(times.medians().compute == 4);
}

TEST_CASE("what a process has computed is told of a usual step") {
  StepTimes times;
  StepReport report;
  for (const std::uint64_t computed : {3, 11, 19, 27, 59}) {
    report.logical_rank_computations = computed;
    times.add(report);
  }
  CHECK(times.medians().ranks == 8);
}

TEST_CASE("what a sample asks for is counted as llm.c does, that of GPT-2 by hand") {
  muster::engine::TrainingConfig config;
  CHECK(muster::worker::flops_of_sample(config, 1000) == 6000);
  config.gpt = muster::engine::GptConfig{12, 12, 768, 1024, 50'257};
  // 6 x 124,439,808 + 6 x 12 x 768 x 1,024 for each of 1,024 tokens.
  CHECK(muster::worker::flops_of_sample(config, 124'439'808) == 1024.0 * 803'261'952.0);
  config.gpt.reset();
  config.cnn.emplace();
  CHECK(muster::worker::flops_of_sample(config, 1000) == 0);
}
