#include "operator/core/spending.h"

#include <algorithm>
#include <cmath>

#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

using api::BudgetPeriod;
using std::chrono::days;
using std::chrono::sys_days;

/// Rates change with the hours of the week and with what is used; nobody tells when.
constexpr seconds kRateLookInterval{60};
/// What is spent is written once in so long although nothing else changes, for people to read.
constexpr seconds kSpentWriteInterval{600};

const char* period_text(BudgetPeriod period) {
  switch (period) {
    case BudgetPeriod::kDay:
      return " a day";
    case BudgetPeriod::kWeek:
      return " a week";
    case BudgetPeriod::kMonth:
      return " a month";
    case BudgetPeriod::kForever:
      return "";
  }
  return "";
}

std::string why_spent(const api::QueueBudget& budget, WallTime now) {
  std::string text = "its budget of " + api::billionths_text(budget.amount) + " " +
                     budget.currency + period_text(budget.period) + " is spent; raise " +
                     "spec.budget.amount";
  const auto next = next_period(budget.period, now);
  return next ? text + ", or wait until " + format_time(*next) : text;
}

/// What an hour of all its jobs costs; in `unknown` those of which that is not known.
api::Billionths rate_of(const api::QueueBudget& budget, const std::string& queue,
                        const std::vector<QueueHolder>& holders, std::string& unknown) {
  api::Billionths rate = 0;
  int others = -1;
  for (const QueueHolder& holder : holders) {
    if (holder.turn.queue != queue || holder.slots.empty()) continue;
    const bool is_known = holder.rate_per_hour && holder.currency == budget.currency;
    if (is_known) {
      rate = api::sum_of(rate, *holder.rate_per_hour);
    } else if (++others == 0) {
      unknown = "of " + holder.job.text() +
                (holder.rate_per_hour ? " the cost is in " + holder.currency
                                      : " the cost is not known (status.cost of the job)");
    }
  }
  if (others > 0) unknown += ", nor of " + std::to_string(others) + " more";
  return rate;
}

WallTime not_ahead(const std::optional<WallTime>& time, WallTime now) {
  return time && *time - now <= words::kClocksDiffer ? *time : now;
}

}  // namespace

WallTime period_start(BudgetPeriod period, WallTime now) {
  const sys_days day = std::chrono::floor<days>(now);
  switch (period) {
    case BudgetPeriod::kDay:
      return day;
    case BudgetPeriod::kWeek:
      return day - (std::chrono::weekday(day) - std::chrono::Monday);
    case BudgetPeriod::kMonth: {
      const std::chrono::year_month_day date(day);
      return sys_days(date.year() / date.month() / 1);
    }
    case BudgetPeriod::kForever:
      return WallTime{};
  }
  return WallTime{};
}

std::optional<WallTime> next_period(BudgetPeriod period, WallTime now) {
  if (period == BudgetPeriod::kForever) return std::nullopt;
  // Of a day in the middle of the next period.
  const days ahead(period == BudgetPeriod::kDay ? 1 : period == BudgetPeriod::kWeek ? 7 : 31);
  return period_start(period, period_start(period, now) + ahead);
}

api::QueueSpending spending_until(const api::QueueBudget& budget,
                                  const std::optional<api::QueueSpending>& before, WallTime now) {
  now = std::chrono::floor<seconds>(now);
  api::QueueSpending next;
  next.currency = budget.currency;
  next.since = next.updated_at = now;
  if (!before || before->currency != budget.currency) return next;
  const WallTime begin = period_start(budget.period, now);
  const auto end = next_period(budget.period, now);
  const WallTime since = not_ahead(before->since, now);
  const bool is_of_later = since != before->since && end && before->since >= *end;
  next = *before;
  next.since = std::max(since, begin);
  if (since < begin || is_of_later) next.spent = 0;
  const WallTime updated = not_ahead(before->updated_at, now);
  // Of a clock that was set back, no second is counted twice.
  next.updated_at = std::max(now, updated);
  const WallTime from = std::max(updated, begin);
  if (now <= from) return next;
  const double hours = std::chrono::duration<double>(now - from).count() / 3600.0;
  next.spent = api::sum_of(next.spent, api::billionths(api::plain(next.rate_per_hour) * hours));
  return next;
}

bool is_spent(const api::QueueBudget& budget, const api::QueueSpending& spending) {
  return spending.spent >= budget.amount;
}

Queue queue_at(Queue queue, const api::TrainingQueue& object, WallTime now) {
  const auto& budget = object.spec.budget;
  if (!budget || !is_spent(*budget, spending_until(*budget, object.status.budget, now))) {
    return queue;
  }
  queue.spent = why_spent(*budget, now);
  if (queue.closed.empty()) queue.closed = queue.spent;
  return queue;
}

std::optional<api::QueueSpending> queue_spending(const api::TrainingQueue& object,
                                                 const std::vector<QueueHolder>& holders,
                                                 WallTime now) {
  const auto& budget = object.spec.budget;
  if (!budget) return std::nullopt;
  const auto& before = object.status.budget;
  api::QueueSpending next = spending_until(*budget, before, now);
  const api::Billionths rate_before = next.rate_per_hour;
  next.unknown.clear();
  next.rate_per_hour = rate_of(*budget, object.meta.name, holders, next.unknown);
  next.unknown = head_of(next.unknown, words::kMaxMessageBytes);
  const bool is_news = !before || before->since != next.since || before->unknown != next.unknown ||
                       next.updated_at < before->updated_at || rate_before != next.rate_per_hour ||
                       is_spent(*budget, *before) != is_spent(*budget, next) ||
                       (next.spent != before->spent &&
                        *next.updated_at - before->updated_at.value_or(now) >= kSpentWriteInterval);
  return is_news ? next : before;
}

std::optional<seconds> until_spending_news(const api::TrainingQueue& object, WallTime now) {
  const auto& budget = object.spec.budget;
  if (!budget) return std::nullopt;
  const api::QueueSpending spending = spending_until(*budget, object.status.budget, now);
  std::optional<seconds> until;
  const auto at_most = [&](seconds left) {
    until = std::min(until.value_or(left), std::max(left, seconds(1)));
  };
  if (const auto next = next_period(budget->period, now)) {
    at_most(std::chrono::ceil<seconds>(*next - now));
  }
  at_most(kRateLookInterval);
  if (spending.rate_per_hour == 0) return until;
  if (!is_spent(*budget, spending)) {
    const double hours =
        api::plain(budget->amount - spending.spent) / api::plain(spending.rate_per_hour);
    if (hours < 1) at_most(seconds(static_cast<std::int64_t>(std::ceil(hours * 3600))));
  }
  return until;
}

}  // namespace muster::core
