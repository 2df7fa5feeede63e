#include "operator/core/claim_uses.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;
using Words = std::vector<std::string>;

namespace {

/// A job that is so old and has never run.
api::TrainingJob job_on(const std::string& claim, const std::string& name, seconds age) {
  api::TrainingJob job;
  job.meta.name = name;
  job.meta.namespace_name = "ns";
  job.meta.uid = "u-" + name;
  job.meta.creation_time = kNow - age;
  job.spec.training.emplace().checkpoint.emplace().volume_claim_name = claim;
  return job;
}

api::TrainingJob with_workers(api::TrainingJob job) {
  job.status.membership_epoch = 1;
  job.status.placement = {{0, 0, "n", ""}};
  return job;
}

api::TrainingJob that_ran(api::TrainingJob job) {
  job.status.membership_epoch = 1;
  job.status.progress.emplace().step = 1;
  return job;
}

struct Book {
  ClaimUses uses;

  std::vector<api::ObjectKey> take(const api::TrainingJob& job) {
    auto use = claim_use_of(job);
    return uses.take(job.meta.key(),
                     use ? std::vector<ClaimUse>{*std::move(use)} : std::vector<ClaimUse>{});
  }
  /// Names of those that wait, and for whom.
  std::string before(const api::TrainingJob& job) const {
    const ClaimUse* other = uses.before(job);
    return other == nullptr ? "" : other->job.name;
  }
};

}  // namespace

TEST_CASE("who has trained on a claim has it, whatever their paths; another claim is another") {
  auto old = job_on("disk", "old", seconds(2)), young = job_on("disk", "young", seconds(1));
  young.spec.training->checkpoint->path = "/elsewhere";
  const auto other = job_on("disk2", "other", seconds(3));
  auto foreign = job_on("disk", "foreign", seconds(4));
  foreign.meta.namespace_name = "ns2";
  Book book;
  for (const api::TrainingJob& job : {young, other, foreign, that_ran(old)}) book.take(job);
  CHECK(book.before(young) == "old");
  CHECK(book.before(old).empty());
  CHECK(book.before(other).empty());
  CHECK(book.before(foreign).empty());
  CHECK(book.before(job_on("", "none", seconds(9))).empty());
}

TEST_CASE("of jobs on one claim that never ran none waits for another") {
  auto suspended = job_on("disk", "suspended", seconds(9));
  suspended.spec.suspend = true;
  // Its pods were refused when it had its places.
  auto refused = job_on("disk", "refused", seconds(5));
  refused.status.membership_epoch = 1;
  const auto young = job_on("disk", "young", seconds(1));
  Book book;
  for (const api::TrainingJob& job : {suspended, refused, young}) book.take(job);
  for (const api::TrainingJob& job : {suspended, refused, young}) CHECK(book.before(job).empty());
  book.take(with_workers(young));
  CHECK(book.before(suspended) == "young");
  CHECK(book.before(refused) == "young");
}

TEST_CASE("that its workers ran is told by what they trained, what they saved, or their image") {
  const auto hold_after = [](const std::function<void(api::TrainingJobStatus&)>& edit) {
    auto job = job_on("disk", "a", seconds(1));
    job.status.membership_epoch = 1;
    edit(job.status);
    return claim_use_of(job)->hold;
  };
  CHECK(hold_after([](auto&) {}) == ClaimHold::kWaits);
  CHECK(hold_after([](auto& status) { status.progress.emplace(); }) == ClaimHold::kTrained);
  CHECK(hold_after([](auto& status) { status.checkpoint.emplace(); }) == ClaimHold::kTrained);
  CHECK(hold_after([](auto& status) { status.image_digest = "d"; }) == ClaimHold::kTrained);
}

TEST_CASE("of two jobs of one second that ran the uid decides, alike for both") {
  const auto a = that_ran(job_on("disk", "a", seconds(1)));
  const auto b = that_ran(job_on("disk", "b", seconds(1)));
  Book book;
  book.take(b);
  book.take(a);
  CHECK(book.before(a).empty());
  CHECK(book.before(b) == "a");
}

TEST_CASE(
    "who has workers has the claim, then who starts again, then who has run, then the older") {
  const auto oldest = job_on("disk", "oldest", seconds(9));
  const auto ran = that_ran(job_on("disk", "ran", seconds(3)));
  auto restarts = that_ran(job_on("disk", "restarts", seconds(2)));
  restarts.status.conditions = {{"Restarting", "True", "Restarting", "", 1, kNow}};
  const auto runs = with_workers(job_on("disk", "runs", seconds(1)));
  Book book;
  book.take(oldest);
  book.take(ran);
  CHECK(book.before(oldest) == "ran");
  CHECK(book.before(ran).empty());
  book.take(restarts);
  CHECK(book.before(ran) == "restarts");
  CHECK(book.before(restarts).empty());
  book.take(runs);
  CHECK(book.before(restarts) == "runs");
  CHECK(book.before(oldest) == "runs");
  CHECK(book.before(runs).empty());
}

TEST_CASE("a job waits for another's workers though its own still leave") {
  auto mine = that_ran(job_on("disk", "mine", seconds(9)));
  auto use = *claim_use_of(mine);
  use.hold = ClaimHold::kWorkers;
  Book book;
  book.uses.take(mine.meta.key(), {use});
  book.take(job_on("disk", "waits", seconds(1)));
  CHECK(book.before(mine).empty());
  book.take(with_workers(job_on("disk", "runs", seconds(1))));
  CHECK(book.before(mine) == "runs");
}

TEST_CASE("a suspended job keeps its claim, one that is over or another controller's does not") {
  auto job = that_ran(job_on("disk", "a", seconds(9)));
  job.spec.suspend = true;
  REQUIRE(claim_use_of(job));
  CHECK_FALSE(claim_use_of(job)->is_over);
  CHECK(claim_use_of(job)->hold == ClaimHold::kTrained);
  auto ended = with_workers(job);
  ended.status.conditions = {{"Complete", "True", "Completed", "", 1, kNow}};
  CHECK(claim_use_of(ended)->is_over);
  // Its places stay in status, and say nothing of workers.
  CHECK(claim_use_of(ended)->hold != ClaimHold::kWorkers);
  auto leaving = job;
  leaving.meta.deletion_time = kNow;
  CHECK(claim_use_of(leaving)->is_over);
  job.spec.managed_by = "example.com/other";
  CHECK_FALSE(claim_use_of(job));
}

TEST_CASE("who shares a claim hears when another's use of it changes, and nobody else") {
  const auto a = job_on("disk", "a", seconds(3));
  const auto b = that_ran(job_on("disk", "b", seconds(2)));
  const auto c = job_on("disk2", "c", seconds(1));
  using Keys = std::vector<api::ObjectKey>;
  Book book;
  CHECK(book.take(a).empty());
  CHECK(book.take(c).empty());
  CHECK(book.take(b) == Keys{a.meta.key()});
  CHECK(book.take(b).empty());
  CHECK(book.take(with_workers(a)) == Keys{b.meta.key()});
  auto moved = b;
  moved.spec.training->checkpoint->volume_claim_name = "disk2";
  CHECK(book.take(moved) == Keys{a.meta.key(), c.meta.key()});
  CHECK(book.before(c) == "b");
  CHECK(book.uses.take(b.meta.key(), {}) == Keys{c.meta.key()});
  CHECK(book.before(c).empty());
  CHECK(book.uses.of(b.meta.key()).empty());
}

TEST_CASE("of thousands on one claim a change is told to few, the first of them among these") {
  Book book;
  for (int i = 0; i < 1000; ++i) {
    book.take(job_on("disk", "j" + std::to_string(i), seconds(2000 - i)));
  }
  const auto told = book.uses.take({"ns", "j0"}, {});
  CHECK(told.size() == ClaimUses::kToldMost);
  CHECK(told.front() == api::ObjectKey{"ns", "j1"});
}

TEST_CASE("a gang whose claim is another's waits with a reason of its own, and stands in no line") {
  auto job = make_job("j").engine().fits_on("n");
  job.edit().claim_of = claim_use_of(with_workers(job_on("disk", "first", seconds(1))));
  CHECK_FALSE(wanted_places(job.snapshot()).has_value());
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(status_of(plan).placement.empty());
  const auto* admitted = status_of(plan).condition("Admitted");
  CHECK(admitted->status == "False");
  CHECK(admitted->reason == "CheckpointInUse");
  CHECK(admitted->message == in_use_text(*job.snapshot().claim_of));
  test::apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().claim_of.reset();
  CHECK(wanted_places(job.snapshot()).has_value());
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a job that runs is not stopped for its claim, and old pods go before it waits") {
  const auto other = claim_use_of(with_workers(job_on("disk", "first", seconds(1))));
  auto runs = make_job("j").engine().workers(2).all_running();
  const auto alone = runs.plan();
  runs.edit().claim_of = other;
  CHECK(words_of(runs.plan()) == words_of(alone));
  auto leaves = make_job("j").engine().placed().running(0);
  leaves.edit().job.status.placement.clear();
  leaves.edit().claim_of = other;
  CHECK(words_of(leaves.plan()) == Words{"delete pod-0-0"});
}

TEST_CASE("who waits for workers that leave is looked at again without being told") {
  auto job = make_job("j").engine();
  auto other = *claim_use_of(with_workers(job_on("disk", "first", seconds(1))));
  job.edit().claim_of = other;
  CHECK_FALSE(job.plan().requeue_after);
  other.is_over = true;
  job.edit().claim_of = other;
  CHECK(job.plan().requeue_after == core::words::kOverdue);
}

TEST_CASE("the sentence names the other job, what it does, and what helps") {
  const std::string help =
      "; two jobs would overwrite each other's there, so this one starts when that one is over or "
      "deleted, or once it names another claim (spec.training.checkpoint.volumeClaimName; another "
      "path on the same claim is no other place)";
  auto use = *claim_use_of(with_workers(job_on("disk", "first", seconds(1))));
  const std::string head = "claim disk is for the checkpoints of job first, which is ";
  CHECK(in_use_text(use) == head + "not over" + help);
  use.is_suspended = true;
  CHECK(in_use_text(use) == head + "suspended and not over" + help);
  use.is_over = true;
  CHECK(in_use_text(use) ==
        "claim disk is still in use by workers of job first, which is over, was deleted or names "
        "another claim now; this job starts when they have left");
}
