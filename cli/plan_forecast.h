// `muster plan`: what the operator would do with a job, asked of a cluster that was read once.
// Pure: the operator's own rules (operator/runtime/what_if.h), and the ends that running jobs
// foretell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/api/price_list.h"
#include "operator/api/training_job.h"
#include "operator/runtime/what_if.h"

namespace muster::cli {

/// A job that would have other workers than without the planned one.
struct PlanDisplaced {
  api::ObjectKey job;
  int workers_before = 0, workers_after = 0;
  std::string why;  ///< of a job that is stopped; may be empty
};

struct PlanForecast {
  api::TrainingJob job;  ///< with the places it would get; of a job that never does, as it waits
  bool starts_now = false;
  std::string why;  ///< why there, or what is missing now
  /// Of a job that gets places and has a deadline: when it is over by that at the latest, and what
  /// it will have cost then. What an hour costs at its start stands in the job's status.
  std::optional<WallTime> over_by;
  std::optional<api::JobCost> cost_at_most;
  /// Of a job that gets places: how long a step should take there, and of which job it is known
  /// what the workers compute in it; absent: not known.
  std::optional<runtime::StepForecast> step;
  /// Where that is not known: milliseconds that its workers would exchange gradients; absent: that
  /// is not known either.
  std::optional<std::string> exchange;
  std::vector<PlanDisplaced> displaced;

  // ---- Of a job that does not start now
  std::optional<WallTime> starts_at;  ///< absent: not known
  /// Why these nodes could not hold it even if nothing else were on them; empty: they could, or
  /// that was not asked.
  std::string why_never;
  std::vector<api::ObjectKey> awaited;   ///< whose ends come before, in that order
  std::vector<api::ObjectKey> unending;  ///< jobs that run, now or then, and do not say how long
};

/// Ends looked at before a forecast is given up.
inline constexpr int kMostPlanEnds = 500;

/// Objects that a cluster has, as `kubectl get -o json` lists them; kinds that the operator does
/// not look at are passed over. Errors: kInvalid when the list has no node: then nothing is known.
struct PlanCluster {
  std::vector<Json> objects;
  WallTime now;
  std::optional<api::PriceList> prices{};  ///< absent: no cost is told
};
Result<PlanForecast> forecast(const PlanCluster& cluster, const Json& manifest);
/// The same of a job that the cluster has and that waits there; what it may cost and whom it
/// displaces is not told. Errors: also kNotFound.
Result<PlanForecast> forecast_waiting(const PlanCluster& cluster, const api::ObjectKey& job);

/// The newest time that the objects tell of: when a saved cluster was read, as far as can be known.
/// Errors: kInvalid when there is none.
Result<WallTime> newest_time(const std::vector<Json>& objects);

}  // namespace muster::cli
