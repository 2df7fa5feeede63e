#include "operator/core/witness.h"

#include <doctest/doctest.h>

#include "tests/unit/core/builders.h"

using namespace muster;
using test::make_job;

namespace {

ProgressReport report_of(int slot, std::int64_t epoch, std::vector<int> members, int attempt = 0) {
  ProgressReport report;
  report.job = "default/j";
  report.slot = slot;
  report.attempt = attempt;
  report.membership_epoch = epoch;
  report.members = std::move(members);
  return report;
}

/// Three members at epoch 1, all of them with pods that run.
test::SnapshotBuilder three() {
  auto job = make_job("j").engine().workers(3).all_running();
  for (int slot = 0; slot < 3; ++slot) job.report(report_of(slot, 1, {0, 1, 2}));
  return job;
}

/// Without `from_members` as an older worker asks.
WitnessRequest ask(int slot, std::int64_t epoch, std::int64_t next, std::vector<int> members,
                   std::vector<int> from_members = {}) {
  return {"default/j", slot, 0, epoch, next, std::move(members), std::move(from_members)};
}

std::string answer(const test::SnapshotBuilder& job, const WitnessRequest& request) {
  const auto verdict = core::decide_witness(job.snapshot(), request);
  std::string text = verdict.response.granted ? "yes " : "no ";
  text += std::to_string(verdict.response.epoch);
  if (verdict.plan) text += " written";
  return text;
}

}  // namespace

TEST_CASE("the witness's answers") {
  // Half of the two: the other half cannot go on without asking.
  auto two = make_job("j").engine().workers(2).all_running();
  for (int slot = 0; slot < 2; ++slot) two.report(report_of(slot, 1, {0, 1}));
  CHECK(answer(two, ask(0, 1, 2, {0})) == "yes 2 written");
  CHECK(answer(two, ask(1, 1, 5, {1})) == "yes 5 written");
  // Not a member, not among those it asks for, no step forward, another's slot.
  CHECK(answer(two, ask(2, 1, 2, {2})) == "no 1");
  CHECK(answer(two, ask(0, 1, 2, {1})) == "no 1");
  CHECK(answer(two, ask(0, 1, 1, {0})) == "no 1");
  CHECK(answer(two, ask(0, 1, 2, {0, 7})) == "no 1");
  WitnessRequest old = ask(0, 1, 2, {0});
  old.attempt = 3;
  CHECK(answer(two, old) == "no 1");
  // An epoch that no gang can have come to would use up the numbers of attempts.
  CHECK(answer(two, ask(0, 1, 2'000'000'000, {0})) == "no 1");
}

TEST_CASE("those who might be a majority elsewhere are not left behind") {
  CHECK(answer(three(), ask(0, 1, 2, {0})) == "no 1");
  CHECK(answer(three(), ask(0, 1, 2, {0, 1})) == "yes 2 written");
  // One of the two that are silent has ended for certain.
  auto one_ended = make_job("j").engine().workers(3).placed().running(0).running(1).ended(2, 137);
  one_ended.report(report_of(0, 1, {0, 1, 2}));
  CHECK(answer(one_ended, ask(0, 1, 2, {0})) == "yes 2 written");
  auto one_gone = make_job("j").engine().workers(3).placed().running(0).running(1);
  one_gone.report(report_of(0, 1, {0, 1, 2}));
  CHECK(answer(one_gone, ask(0, 1, 2, {0})) == "yes 2 written");
  // Their node is silent: taken for dead after its time, not before.
  auto silent = three();
  for (auto& pod : silent.edit().pods) {
    if (pod.slot() != 0) pod.node_name = "far";
  }
  silent.edit().not_ready_nodes.insert("far");
  CHECK(answer(silent.lasting(seconds(10)), ask(0, 1, 2, {0})) == "no 1");
  CHECK(answer(silent.lasting(seconds(40)), ask(0, 1, 2, {0})) == "yes 2 written");
}

TEST_CASE("a slot that is no member counts on no side") {
  // Slot 3 is lost; the three that train have gone on without it, and no report has come yet.
  auto job =
      make_job("j").engine().workers(4).placed().running(0).running(1).running(2).ended(3, 137);
  job.edit().job.status.membership_epoch = 7;
  const std::vector<int> three_left{0, 1, 2};
  CHECK(answer(job, ask(0, 7, 8, {0}, three_left)) == "no 7");
  CHECK(answer(job, ask(0, 7, 8, {0, 1}, three_left)) == "yes 8 written");
  // An older worker does not tell of whom there are three: not now, until a report does.
  CHECK(answer(job, ask(0, 7, 8, {0})) == "no 7");
  CHECK(answer(job, ask(0, 7, 8, {0, 1})) == "no 7");
  job.report(report_of(0, 7, {}));
  CHECK(answer(job, ask(0, 7, 8, {0})) == "no 7");
  job.report(report_of(0, 7, three_left));
  CHECK(answer(job, ask(0, 7, 8, {0})) == "no 7");
  CHECK(answer(job, ask(0, 7, 8, {0, 1})) == "yes 8 written");
}

TEST_CASE("who decides without training counts: reports tell of those who train") {
  auto job = make_job("j").engine().workers(5).placed().ended(2, 137);
  for (const int slot : {0, 1, 3, 4}) job.running(slot);
  job.report(report_of(0, 1, {0, 1, 2}));
  CHECK(answer(job, ask(0, 1, 2, {0}, {0, 1, 2, 3, 4})) == "no 1");
  CHECK(answer(job, ask(0, 1, 2, {0, 1, 3}, {0, 1, 2, 3, 4})) == "yes 2 written");
}

TEST_CASE("a member of a newer membership that has not told of it yet may train: not now") {
  // The two that went on without slot 0 let slot 3 in, and have died since.
  auto job = make_job("j").engine().workers(4).placed().running(0).running(3);
  job.ended(1, 137).ended(2, 137);
  job.edit().job.status.placement[3].member = true;
  const WitnessRequest question = ask(0, 1, 2, {0}, {0, 1, 2});
  CHECK(answer(job, question) == "no 1");
  auto told = job;
  told.report(report_of(3, 3, {3}));
  CHECK(answer(told, question) == "no 3");
  // It was left behind before, and waits to be let in.
  auto waits = job;
  waits.report(report_of(3, 0, {}));
  CHECK(answer(waits, question) == "yes 2 written");
  auto gone = job;
  for (auto& pod : gone.edit().pods) {
    if (pod.slot() == 3) pod.phase = api::PodPhase::kFailed;
  }
  CHECK(answer(gone, question) == "yes 2 written");
}

TEST_CASE("whose pod may still run is said by its name, whatever its label says") {
  auto job = three();
  // Two have been replaced, and what was there before still runs.
  for (const int slot : {1, 2}) job.edit().job.status.placement[slot].attempt = 1;
  job.edit().job.status.membership_epoch = 2;
  job.report(report_of(0, 2, {0, 1, 2}));
  CHECK(answer(job, ask(0, 2, 3, {0})).starts_with("no "));
  for (const int slot : {1, 2}) job.edit().pods[slot].meta.labels["muster.dev/slot"] = "0";
  CHECK(answer(job, ask(0, 2, 3, {0})).starts_with("no "));
  for (const int slot : {1, 2}) job.edit().pods[slot].phase = api::PodPhase::kFailed;
  CHECK(answer(job, ask(0, 2, 3, {0})).starts_with("yes "));
}

TEST_CASE("of two sides one is told yes, and it is told the same again") {
  auto job = make_job("j").engine().workers(2).all_running();
  for (int slot = 0; slot < 2; ++slot) job.report(report_of(slot, 1, {0, 1}));
  const auto first = core::decide_witness(job.snapshot(), ask(0, 1, 2, {0}));
  REQUIRE(first.plan.has_value());
  CHECK(first.plan->pass == core::Pass::kDecision);
  test::apply(job.edit(), *first.plan);
  CHECK(job.snapshot().job.status.membership_epoch == 2);
  CHECK(answer(job, ask(0, 1, 2, {0})) == "yes 2");
  CHECK(answer(job, ask(1, 1, 2, {1})) == "no 2");
  CHECK(core::decide_witness(job.snapshot(), ask(1, 1, 2, {1})).response.members ==
        std::vector<int>{0});
  // From there it goes on.
  CHECK(answer(job, ask(0, 2, 3, {0})) == "yes 3 written");
}

TEST_CASE("a newer membership that a worker tells of refuses those of the older one") {
  auto job = three();
  job.report(report_of(1, 4, {1, 2}));
  const auto verdict = core::decide_witness(job.snapshot(), ask(0, 1, 2, {0, 1}));
  CHECK_FALSE(verdict.response.granted);
  CHECK(verdict.response.epoch == 4);
  CHECK(verdict.response.members == std::vector<int>{1, 2});
  // A report of an attempt that is no more says nothing.
  auto stale = three();
  stale.report(report_of(1, 4, {1, 2}, 7));
  CHECK(answer(stale, ask(0, 1, 2, {0, 2})) == "yes 2 written");
}

TEST_CASE("a decision about pods takes no epoch away from the workers") {
  auto job = make_job("j").engine().workers(2).all_running();
  job.edit().job.status.membership_epoch = 9;
  for (int slot = 0; slot < 2; ++slot) job.report(report_of(slot, 1, {0, 1}));
  const auto verdict = core::decide_witness(job.snapshot(), ask(0, 1, 2, {0}));
  REQUIRE(verdict.plan.has_value());
  CHECK(test::status_of(*verdict.plan).membership_epoch == 9);
  CHECK(test::status_of(*verdict.plan).witness->epoch == 2);
}

TEST_CASE("a job that has ended has no witness") {
  auto job = make_job("j").engine().workers(2).all_running().condition("Complete", true);
  CHECK(answer(job, ask(0, 1, 2, {0})) == "no 1");
}
