// Models in the stages of a pipeline: sizes in which every copy of the model is whole.
#include "operator/core/copies.h"

#include <doctest/doctest.h>

#include "tests/unit/core/builders.h"

using namespace muster;

namespace {

api::TrainingJob job_of(int processes, int stages) {
  api::TrainingJob job = test::SnapshotBuilder("j").engine().snapshot().job;
  job.spec.worker.processes = processes;
  job.spec.training->split.pipeline = stages;
  return job;
}

}  // namespace

TEST_CASE("so many workers belong together as make their processes a multiple of the stages") {
  CHECK(core::workers_together(job_of(1, 1)) == 1);
  CHECK(core::workers_together(job_of(1, 3)) == 3);
  CHECK(core::workers_together(job_of(2, 2)) == 1);
  CHECK(core::workers_together(job_of(4, 2)) == 1);
  CHECK(core::workers_together(job_of(2, 4)) == 2);
  CHECK(core::workers_together(job_of(3, 2)) == 2);
  CHECK(core::workers_together(job_of(4, 6)) == 3);
  api::TrainingJob divided = job_of(2, 3);
  divided.spec.training->split.tensor = 2;
  CHECK(core::workers_together(divided) == 3);
  CHECK(core::waiting_for_their_copy(divided, {0, 1, 2, 4, 5}) == std::vector<int>{4, 5});
  CHECK(core::workers_together(test::SnapshotBuilder("own").snapshot().job) == 1);
}

TEST_CASE("who runs waits for the others of its copy, and nobody else does") {
  using Slots = std::vector<int>;
  CHECK(core::waiting_for_their_copy(job_of(1, 2), {0, 1, 2, 3}).empty());
  CHECK(core::waiting_for_their_copy(job_of(1, 2), {0, 1, 3}) == Slots{3});
  CHECK(core::waiting_for_their_copy(job_of(1, 2), {1, 2}) == Slots{1, 2});
  CHECK(core::waiting_for_their_copy(job_of(1, 3), {0, 2, 3, 4, 5}) == Slots{0, 2});
  CHECK(core::waiting_for_their_copy(job_of(2, 2), {1, 5}).empty());
  CHECK(core::waiting_for_their_copy(job_of(2, 4), {0, 1, 2}) == Slots{2});
  // Of three processes each, two stages: the second copy is in both workers.
  CHECK(core::waiting_for_their_copy(job_of(3, 2), {0, 2, 3}) == Slots{0});
  CHECK(core::waiting_for_their_copy(job_of(1, 1), {7}).empty());
  CHECK(core::waiting_for_their_copy(job_of(1, 2), {}).empty());
}
