#include "cli/expected_start.h"

#include "cli/live_cluster.h"
#include "cli/plan_text.h"
#include "common/contract.h"
#include "common/log.h"

namespace muster::cli {
namespace {

bool waits_for_a_place(const api::TrainingJob& job) {
  const api::Condition* admitted = job.status.condition("Admitted");
  return admitted != nullptr && admitted->status == "False" && job.status.placement.empty() &&
         job.spec.managed_by == contract::kManagedBy && !job.spec.suspend &&
         !job.meta.deletion_time && !job.status.finished();
}

}  // namespace

Result<std::string> expected_start(Kubectl& kubectl, const api::TrainingJob& job) {
  if (!waits_for_a_place(job)) return std::string();
  MUSTER_ASSIGN_OR_RETURN(PlanCluster cluster, read_live_cluster(kubectl));
  // What the operator's rules say to its log is no news to whoever asks.
  configure_log(LogLevel::kError, {{"component", "muster-describe"}});
  MUSTER_ASSIGN_OR_RETURN(PlanForecast told, forecast_waiting(cluster, job.meta.key()));
  return start_words(told, cluster.now);
}

}  // namespace muster::cli
