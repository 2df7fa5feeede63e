// What a job costs, in words. Pure.
#pragma once

#include <optional>
#include <string>

#include "operator/api/training_job.h"

namespace muster::cli {

/// "12.35 EUR": rounded to hundredths; of less than a tenth, to millionths.
std::string money_text(api::Billionths amount, const std::string& currency);
/// "4.92 EUR an hour", or that it is not known and why.
std::string rate_words(const api::JobCost& cost);
/// What it has cost so far, and costs now.
std::string cost_words(const api::JobCost& cost, WallTime now);
/// What a job that is over has cost; absent: nothing was counted of it.
std::string final_cost_words(const std::optional<api::JobCost>& cost);

}  // namespace muster::cli
