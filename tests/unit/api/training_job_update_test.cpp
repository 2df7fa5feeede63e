// What may change of a job, by how far it is.
#include <doctest/doctest.h>

#include "operator/api/training_job.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

TEST_CASE("what may change of a job depends on how far it is") {
  TrainingJob before = *parse_training_job(full_training_job());
  before.status.went_ahead = false;
  const auto verdict = [&](const std::string& pointer, const Json& value) {
    const Json changed = with(to_json(before), "/spec" + pointer, value);
    const auto after = parse_training_job(changed);
    REQUIRE_MESSAGE(after, after.error().message());
    const Status status = check_update(before, *after);
    return status ? "" : status.error().message();
  };
  const std::vector<std::pair<const char*, Json>> free = {{"/worker/count", 3},
                                                          {"/worker/min", 2},
                                                          {"/worker/max", 3},
                                                          {"/worker/growsTo", "Count"},
                                                          {"/suspend", true},
                                                          {"/queueName", "other"},
                                                          {"/priorityClassName", nullptr},
                                                          {"/activeDeadlineSeconds", nullptr},
                                                          {"/ttlSecondsAfterFinished", 1}};
  const std::vector<std::pair<const char*, Json>> held = {{"/worker/image", "other"},
                                                          {"/worker/threads", 1},
                                                          {"/worker/resources/cpu", "1"},
                                                          {"/training/batchSize", 256},
                                                          {"/restart/maxRestarts", 9},
                                                          {"/scheduling", "Placed"},
                                                          {"/topology", nullptr},
                                                          {"/training/checkpoint/keep", 9},
                                                          {"/worker/initContainers", nullptr}};
  const std::vector<std::pair<const char*, Json>> fixed = {{"/training/logicalRanks", 64},
                                                           {"/training/seed", 8},
                                                           {"/training/precision", "BFloat16"},
                                                           {"/managedBy", "a.b/c"},
                                                           {"/training/model/mlp/hidden", {7}}};
  const std::vector<SlotPlacement> places = {{0, 3, "n", ""}};
  for (const bool suspended : {false, true}) {
    for (const auto& [epoch, placed] : {std::pair{0, false}, {4, false}, {4, true}}) {
      before.spec.suspend = suspended;
      before.status.membership_epoch = epoch;
      before.status.placement = placed ? places : std::vector<SlotPlacement>();
      CAPTURE(suspended);
      CAPTURE(epoch);
      CAPTURE(placed);
      for (const auto& [pointer, value] : free) CHECK(verdict(pointer, value) == "");
      for (const auto& [pointer, value] : held) {
        // A gang that was only asked to stop may be resumed before anybody has seen it.
        const bool is_free = epoch == 0 || (suspended && !placed);
        CHECK_MESSAGE((verdict(pointer, value) == "") == is_free, pointer);
      }
      for (const auto& [pointer, value] : fixed) {
        CHECK_MESSAGE(verdict(pointer, value).find("cannot change; delete") != std::string::npos,
                      pointer);
      }
    }
  }
  before.spec.suspend = false;
  CHECK(verdict("/worker/image", "other") ==
        "spec.worker.image: cannot change while the job trains; set suspend to true first, and "
        "wait until the condition Suspended is True");
  CHECK(verdict("/training/seed", 8).starts_with("spec.training.seed: cannot change"));
  const TrainingJob own = *parse_training_job(least_program_job());
  CHECK_FALSE(check_update(before, own));
  CHECK_FALSE(check_update(own, before));
}

TEST_CASE("who went ahead by its deadline cannot put it off while it has its places") {
  TrainingJob before = *parse_training_job(full_training_job());
  before.spec.active_deadline_seconds = 600;
  const auto refused = [&](std::optional<std::int64_t> deadline) {
    TrainingJob after = before;
    after.spec.active_deadline_seconds = deadline;
    const Status status = check_update(before, after);
    return !status &&
           status.error().message().starts_with("spec.activeDeadlineSeconds: can only be lowered");
  };
  for (const bool went_ahead : {false, true}) {
    for (const bool placed : {false, true}) {
      before.status.went_ahead = went_ahead;
      before.status.placement.clear();
      if (placed) before.status.placement.push_back({0, 3, "n", ""});
      CHECK_FALSE(refused(599));
      CHECK(refused(601) == (went_ahead && placed));
      CHECK(refused(std::nullopt) == (went_ahead && placed));
    }
  }
}
