// Budgets of queues: what is counted when, in which period, and who stops.
#include "operator/core/spending.h"

#include <doctest/doctest.h>

#include "operator/core/schedule.h"
#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::test;
using api::BudgetPeriod;
using api::kOne;

namespace {

WallTime at(const char* text) { return parse_time(text).value(); }

api::TrainingQueue queue_with(std::int64_t amount, BudgetPeriod period) {
  api::TrainingQueue queue;
  queue.meta.name = "research";
  queue.spec.budget = api::QueueBudget{"EUR", amount * kOne, period};
  return queue;
}

core::QueueHolder holder(const std::string& job, std::optional<api::Billionths> rate,
                         const std::string& currency = "EUR") {
  core::QueueHolder one;
  one.job = {"team", job};
  one.turn.queue = "research";
  one.slots = {{0, "n"}};
  one.rate_per_hour = rate;
  one.currency = currency;
  return one;
}

}  // namespace

TEST_CASE("days, weeks and months of a budget begin in UTC") {
  // A Monday, and the last day of a month that has 31.
  const WallTime monday = at("2026-11-23T16:39:00Z"), last = at("2026-12-31T23:59:59Z");
  const auto start = [](BudgetPeriod period, WallTime now) {
    return format_time(core::period_start(period, now));
  };
  const auto next = [](BudgetPeriod period, WallTime now) {
    return format_time(core::next_period(period, now).value());
  };
  CHECK(start(BudgetPeriod::kDay, monday) == "2026-11-23T00:00:00Z");
  CHECK(start(BudgetPeriod::kWeek, monday) == "2026-11-23T00:00:00Z");
  CHECK(start(BudgetPeriod::kWeek, at("2026-11-22T23:59:59Z")) == "2026-11-16T00:00:00Z");
  CHECK(start(BudgetPeriod::kMonth, monday) == "2026-11-01T00:00:00Z");
  CHECK(next(BudgetPeriod::kDay, last) == "2027-01-01T00:00:00Z");
  CHECK(next(BudgetPeriod::kWeek, monday) == "2026-11-30T00:00:00Z");
  CHECK(next(BudgetPeriod::kMonth, last) == "2027-01-01T00:00:00Z");
  CHECK(next(BudgetPeriod::kMonth, at("2026-02-01T00:00:00Z")) == "2026-03-01T00:00:00Z");
  CHECK_FALSE(core::next_period(BudgetPeriod::kForever, monday).has_value());
}

TEST_CASE("what is spent is the rate times the time, and begins anew with the period") {
  const api::QueueBudget budget{"EUR", 10 * kOne, BudgetPeriod::kDay};
  const WallTime noon = at("2026-11-23T12:00:00Z");
  auto counted = core::spending_until(budget, std::nullopt, noon);
  CHECK(counted.spent == 0);
  CHECK(counted.since == noon);
  counted.rate_per_hour = 2 * kOne;
  const auto later = core::spending_until(budget, counted, noon + std::chrono::hours(3));
  CHECK(later.spent == 6 * kOne);
  CHECK(later.since == noon);
  CHECK_FALSE(core::is_spent(budget, later));
  CHECK(core::is_spent(budget, core::spending_until(budget, later, noon + std::chrono::hours(5))));
  // Of the next day its own hour alone.
  const auto next_day = core::spending_until(budget, later, noon + std::chrono::hours(13));
  CHECK(next_day.spent == 2 * kOne);
  CHECK(next_day.since == at("2026-11-24T00:00:00Z"));
  // A clock that was set back counts nothing twice, another currency nothing of the old one.
  CHECK(core::spending_until(budget, later, noon + std::chrono::hours(2)) == later);
  const api::QueueBudget other{"USD", 10 * kOne, BudgetPeriod::kDay};
  CHECK(core::spending_until(other, later, noon).spent == 0);
}

TEST_CASE(
    "status of a budget changes with the rate, with what is not known, and when it is spent") {
  api::TrainingQueue queue = queue_with(10, BudgetPeriod::kMonth);
  WallTime now = at("2026-11-23T12:00:00Z");
  const std::vector<core::QueueHolder> two{holder("a", 2 * kOne), holder("b", 3 * kOne)};
  queue.status.budget = core::queue_spending(queue, two, now);
  CHECK(queue.status.budget->rate_per_hour == 5 * kOne);
  CHECK(core::queue_spending(queue, two, now + seconds(599)) == queue.status.budget);
  CHECK(core::queue_spending(queue, two, now + seconds(600))->spent > 0);
  CHECK(core::until_spending_news(queue, now) == seconds(60));
  const auto left = core::until_spending_news(queue, now + std::chrono::minutes(119) + seconds(30));
  CHECK(std::clamp(left.value(), seconds(30), seconds(31)) == left);  // to the second above
  CHECK(core::queue_at({}, queue, now + std::chrono::minutes(119)).spent.empty());
  const core::Queue spent = core::queue_at({}, queue, now + std::chrono::minutes(120));
  CHECK(spent.spent ==
        "its budget of 10 EUR a month is spent; raise spec.budget.amount, or wait until "
        "2026-12-01T00:00:00Z");
  CHECK(spent.closed == spent.spent);
  CHECK(core::queue_at({}, queue, at("2026-12-01T00:00:00Z")).spent.empty());
  now += std::chrono::hours(1);
  const auto unknown = core::queue_spending(
      queue, {two[0], holder("c", std::nullopt), holder("d", kOne, "USD")}, now);
  CHECK(unknown->rate_per_hour == 2 * kOne);
  CHECK(unknown->spent == 5 * kOne);
  CHECK(unknown->unknown ==
        "of team/c the cost is not known (status.cost of the job), nor of 1 more");
  queue.status.budget = unknown;
  CHECK(core::queue_spending(queue, two, now)->unknown.empty());
  // Of a spec that is refused nothing is known, and what was spent stays.
  api::TrainingQueue refused = queue;
  refused.spec = {};
  const Status verdict = Error(ErrorCode::kInvalid, "spec.budget.amount: wrong");
  CHECK(core::queue_status(refused, core::queue_of(refused, verdict), two, 0, now).budget ==
        unknown);
  queue.spec.budget.reset();
  CHECK_FALSE(core::queue_status(queue, core::queue_of(queue, {}), two, 0, now).budget.has_value());
}

TEST_CASE("a budget is looked at again although nothing costs anything now") {
  // A price begins with an hour of the week, and nobody tells of it.
  api::TrainingQueue queue = queue_with(10, BudgetPeriod::kForever);
  const WallTime now = at("2026-11-23T12:00:00Z");
  queue.status.budget = core::queue_spending(queue, {holder("a", 0)}, now);
  REQUIRE(queue.status.budget->rate_per_hour == 0);
  CHECK(core::until_spending_news(queue, now) == seconds(60));
}

TEST_CASE("what was counted by a clock that ran ahead does not hold the budget up") {
  const WallTime noon = at("2026-11-23T12:00:00Z");
  api::QueueBudget budget{"EUR", 10 * kOne, BudgetPeriod::kMonth};
  api::QueueSpending ahead;
  ahead.currency = "EUR";
  ahead.spent = 4 * kOne;
  ahead.rate_per_hour = 2 * kOne;
  ahead.since = at("2026-11-01T00:00:00Z");
  ahead.updated_at = noon + std::chrono::hours(48);
  auto counted = core::spending_until(budget, ahead, noon);
  CHECK(counted.updated_at == noon);
  CHECK(counted.spent == 4 * kOne);
  counted = core::spending_until(budget, counted, noon + std::chrono::hours(1));
  CHECK(counted.spent == 6 * kOne);
  // It is written, or each look would count from its own time.
  api::TrainingQueue queue = queue_with(10, BudgetPeriod::kMonth);
  queue.status.budget = ahead;
  CHECK(core::queue_spending(queue, {holder("a", 2 * kOne)}, noon)->updated_at == noon);
  // Clocks differ by moments.
  ahead.updated_at = noon + seconds(3600);
  CHECK(core::spending_until(budget, ahead, noon) == ahead);
  // Of a period that has not begun nothing can be spent, and the message names this one's end.
  ahead.since = ahead.updated_at = at("2027-03-05T00:00:00Z");
  ahead.spent = 20 * kOne;
  counted = core::spending_until(budget, ahead, noon);
  CHECK(counted.spent == 0);
  CHECK(counted.since == noon);
  CHECK(counted.updated_at == noon);
  CHECK(counted.rate_per_hour == 2 * kOne);
  // Where there are no periods, what was spent stays spent.
  budget.period = BudgetPeriod::kForever;
  counted = core::spending_until(budget, ahead, noon);
  CHECK(counted.spent == 20 * kOne);
  CHECK(counted.since == noon);
  CHECK(counted.updated_at == noon);
}

TEST_CASE("all jobs of a queue whose budget is spent stop, and none of another") {
  core::ClusterSnapshot cluster;
  cluster.queues = {make_queue("research", 8), make_queue("product", 8)};
  cluster.queues[0].spent = cluster.queues[0].closed = "its budget is spent";
  core::QueueHolder leaving = holder("gone", kOne);
  leaving.leaving = std::exchange(leaving.slots, {});
  core::QueueHolder other = holder("other", kOne);
  other.turn.queue = "product";
  cluster.holders = {holder("a", kOne), leaving, other};
  const core::Schedule told = core::schedule(cluster);
  REQUIRE(told.taken.size() == 1);
  const auto& [job, taken] = *told.taken.begin();
  CHECK(job.name == "a");
  CHECK(taken.workers == 0);
  CHECK(taken.job.name.empty());
  CHECK(taken.why == "queue research: its budget is spent");
}
