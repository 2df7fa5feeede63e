// What `muster plan` says: a page for people, JSON for scripts. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/kube_table.h"
#include "cli/plan_forecast.h"

namespace muster::cli {

/// With a newline at its end.
std::string plan_text(const PlanForecast& forecast, const Display& display, WallTime now);
/// When a job starts that does not start now, as far as it is known.
std::string start_words(const PlanForecast& forecast, WallTime now);
nlohmann::json plan_json(const PlanForecast& forecast);

}  // namespace muster::cli
