// The disruption budget of an elastic job: when it is there, and when it goes.
#include <doctest/doctest.h>

#include "tests/unit/core/builders.h"

using namespace muster;
using test::make_job;
using test::SnapshotBuilder;
using test::words_of;
using Words = std::vector<std::string>;

namespace {

/// An elastic gang of two that runs and has its budget; all that is seen of it is stored.
SnapshotBuilder budgeted_gang() {
  auto job = make_job("j").workers(2).all_running();
  job.edit().job.spec.worker.min = 1;
  for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().budget == 1);
  REQUIRE(job.plan().empty());
  return job;
}

/// What is decided is done at once, until nothing but the budget may be left to do.
core::Plan settled(SnapshotBuilder& job) {
  for (int i = 0; i < 5 && !job.plan().empty(); ++i) {
    if (words_of(job.plan()) == Words{"no budget"}) break;
    test::apply(job.edit(), job.plan());
  }
  return job.plan();
}

}  // namespace

TEST_CASE("a budget goes when the job has ended: without pods it is nothing but an alert") {
  auto job = budgeted_gang();
  job.edit().pods.clear();
  job.ended(0, 0).ended(1, 0);
  CHECK(words_of(settled(job)) == Words{"no budget"});
  test::apply(job.edit(), job.plan());
  CHECK(job.plan().empty());
  // A fresh operator has no question about a job that is over.
  job.edit().budget.reset();
  CHECK(job.plan().empty());
}

TEST_CASE("a budget goes while the job is suspended or waits, and comes back with its gang") {
  auto job = budgeted_gang();
  job.suspended_spec();
  CHECK(words_of(settled(job)) == Words{"no budget"});
  // So it does where the operator that knew of it is gone.
  job.edit().budget.reset();
  CHECK(words_of(job.plan()) == Words{"no budget"});
  test::apply(job.edit(), job.plan());
  CHECK(job.plan().empty());
  job.edit().job.spec.suspend = false;
  job.does_not_fit("no room");
  CHECK(settled(job).empty());
  job.fits_on("n");
  CHECK(settled(job).empty());
  CHECK(job.snapshot().budget == 1);
}

TEST_CASE("a budget goes when its gang may not be smaller any more, whoever leads then") {
  auto job = budgeted_gang();
  job.edit().job.spec.worker.min = job.snapshot().job.spec.worker.max;
  ++job.edit().job.meta.generation;
  CHECK(words_of(settled(job)) == Words{"no budget"});
  // The operator that knew of it is gone. One that stays would hold up every drain for ever.
  job.edit().budget.reset();
  CHECK(words_of(settled(job)) == Words{"no budget"});
  test::apply(job.edit(), job.plan());
  CHECK(job.plan().empty());
}

TEST_CASE("no budget is looked for that no gang can have left") {
  auto job = make_job("j").workers(2).does_not_fit("no room");
  job.edit().job.spec.worker.min = 1;
  CHECK(settled(job).empty());
  auto fixed = make_job("j").workers(2).all_running();
  CHECK(settled(fixed).empty());
}
