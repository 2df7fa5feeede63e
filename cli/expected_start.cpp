#include "cli/expected_start.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/live_cluster.h"
#include "cli/plan_text.h"
#include "common/contract.h"
#include "common/log.h"

namespace muster::cli {
namespace {

/// Why a job is not admitted whatever room there is: somebody has to change something first.
constexpr std::array<std::string_view, 6> kOtherReasons{
    "NameConflict", "CreateFailed", "QuotaExceeded", "Refused", "InvalidSpec", "KueueDeactivated"};

}  // namespace

bool waits_for_room(const api::TrainingJob& job) {
  const api::Condition* admitted = job.status.condition("Admitted");
  const auto& others = kOtherReasons;
  return admitted != nullptr && admitted->status == "False" &&
         std::find(others.begin(), others.end(), admitted->reason) == others.end() &&
         job.status.placement.empty() && job.spec.managed_by == contract::kManagedBy &&
         !job.spec.suspend && !job.meta.deletion_time && !job.status.finished();
}

Result<std::string> expected_start(Kubectl& kubectl, const api::TrainingJob& job) {
  if (!waits_for_room(job)) return std::string();
  MUSTER_ASSIGN_OR_RETURN(PlanCluster cluster, read_live_cluster(kubectl));
  // The rest is computing, which may take minutes, and the page, which is the last to be written.
  kubectl.let_signals_end();
  // What the operator's rules say to its log is no news to whoever asks.
  configure_log(LogLevel::kError, {{"component", "muster-describe"}});
  MUSTER_ASSIGN_OR_RETURN(PlanForecast told, forecast_waiting(cluster, job.meta.key()));
  return start_words(told, cluster.now);
}

}  // namespace muster::cli
