// What a gang is taken to send in a step, by its job.
#include <doctest/doctest.h>

#include <cstdint>

#include "common/json.h"
#include "operator/core/schedule.h"

using namespace muster;
using namespace muster::core;

TEST_CASE("what the processes of a split model send goes by their stages and the model's width") {
  api::TrainingJob job;
  CHECK_FALSE(mesh_work_of(job));
  job.spec.training.emplace();
  job.spec.training->batch_size = 32;
  job.spec.training->model = Json{{"mlp", {{"hidden", {100, 300, 200}}}}};
  CHECK_FALSE(mesh_work_of(job));
  job.spec.training->split.pipeline = 4;
  job.spec.worker.processes = 2;
  CHECK(mesh_work_of(job) == MeshWork{4, 2, kUsualGradientBytes, 4.0 * 300 * 32, false});
  CHECK(gang_of(job).step.gradient_bytes == kUsualGradientBytes / 2);
  job.spec.training->model = Json{{"gpt", {{"layers", 2}, {"width", 8}, {"contextLength", 16}}}};
  job.status.model_parameters = 1000;
  CHECK(mesh_work_of(job) == MeshWork{4, 2, 4000, 4.0 * 8 * 16 * 32, true});
  job.spec.training->split.tensor = 2;  // both slices in one worker
  CHECK(mesh_work_of(job) == MeshWork{4, 1, 4000, 4.0 * 8 * 16 * 32 * 2, true});
  CHECK(gang_of(job).step.gradient_bytes == 4000.0 * 2 / 8);
  job.spec.training->split.tensor = 4;  // in two workers: copies stay together
  CHECK_FALSE(mesh_work_of(job));
  job.spec.training->split.tensor = 1;
  job.spec.training->model = Json{{"cnn", {{"channels", {8}}}}};
  CHECK_FALSE(mesh_work_of(job));
}

TEST_CASE("processes with the same part of a model send it once from their pod, or each if small") {
  api::TrainingJob job;
  job.spec.training.emplace();
  job.spec.worker.processes = 8;
  const auto bytes = [&](std::int64_t parameters) {
    job.status.model_parameters = parameters;
    CHECK(gang_of(job).step == running_gang(job, {}).step);
    return gang_of(job).step.gradient_bytes;
  };
  constexpr std::int64_t kLeast = 255 * 4096 + 1;  // parameters: blocks that are begun count
  CHECK(bytes(1000) == 8 * 4000);
  CHECK(bytes(kLeast - 1) == 8 * 4 * (kLeast - 1));
  CHECK(bytes(kLeast) == 4 * kLeast);
  job.spec.training->split.pipeline = 4;  // two copies in a pod, and what counts is a part
  CHECK(bytes(1000) == 2 * 4000);
  CHECK(bytes(4 * kLeast - 4) == 2 * 4 * (4 * kLeast - 4));
  CHECK(bytes(4 * kLeast) == 4 * 4 * kLeast);
}
