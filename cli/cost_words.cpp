#include "cli/cost_words.h"

#include "cli/kube_objects.h"
#include "cli/progress_view.h"

namespace muster::cli {
namespace {

constexpr api::Billionths kHundredth = api::kOne / 100;
constexpr api::Billionths kMillionth = api::kOne / 1'000'000;

/// To the nearest multiple of `unit`.
api::Billionths rounded(api::Billionths amount, api::Billionths unit) {
  return amount / unit * unit + (amount % unit * 2 >= unit ? unit : 0);
}

/// Until now, whatever it costs from now on.
std::string counted_words(const api::JobCost& cost) {
  if (!cost.amount) return "not known: " + cost.unknown;
  std::string text = money_text(*cost.amount, cost.currency);
  if (cost.unknown_seconds > 0) {
    text += " and what " + duration_text(static_cast<double>(cost.unknown_seconds)) +
            " cost, which is not known: " + cost.unknown;
  }
  return text;
}

}  // namespace

std::string money_text(api::Billionths amount, const std::string& currency) {
  if (amount < 10 * kHundredth) {
    return api::billionths_text(rounded(amount, kMillionth)) + " " + currency;
  }
  const api::Billionths hundredths = rounded(amount, kHundredth) / kHundredth;
  const std::string rest = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + (rest.size() < 2 ? ".0" : ".") + rest + " " + currency;
}

std::string rate_words(const api::JobCost& cost) {
  if (cost.rate_per_hour) return money_text(*cost.rate_per_hour, cost.currency) + " an hour";
  return "not known: " + cost.unknown;
}

std::string cost_words(const api::JobCost& cost, WallTime now) {
  std::string text = counted_words(cost);
  if (!cost.amount) return text;
  if (!cost.rate_per_hour) return text + "; nor is what it costs now";
  if (*cost.rate_per_hour == 0) return text;
  text += "; " + rate_words(cost) + " now";
  if (cost.updated_at) text += " (as of " + age_text(cost.updated_at, now) + " ago)";
  return text;
}

std::string final_cost_words(const std::optional<api::JobCost>& cost) {
  return cost ? counted_words(*cost) : "not known: the job had no place yet";
}

}  // namespace muster::cli
