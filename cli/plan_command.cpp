#include "cli/plan_command.h"

#include "cli/files.h"
#include "cli/kube_objects.h"
#include "cli/kube_query.h"
#include "cli/live_cluster.h"
#include "cli/manifest.h"
#include "cli/plan_forecast.h"
#include "cli/plan_text.h"
#include "cli/saved_cluster.h"
#include "cli/tell.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"
#include "common/log.h"
#include "operator/runtime/price_file.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

Result<PlanCluster> saved_cluster(const std::string& file) {
  PlanCluster cluster;
  MUSTER_ASSIGN_OR_RETURN(cluster.objects, read_saved_cluster(file));
  auto now = newest_time(cluster.objects);
  if (!now) return now.error().with(file).with_exit_code(codes::kUsage);
  cluster.now = *now;
  return cluster;
}

Status check_plannable(const api::TrainingJob& job, const PlanCluster& cluster) {
  const auto refuse = [](const std::string& sentence) {
    return Error(ErrorCode::kInvalid, sentence).with_exit_code(codes::kInvalidSpec);
  };
  if (job.spec.managed_by != contract::kManagedBy) {
    return refuse("spec.managedBy: must be " + std::string(contract::kManagedBy) +
                  " for `muster plan`, which knows that operator's rules");
  }
  if (job.spec.suspend) {
    return refuse("spec.suspend: must be false for `muster plan`; a suspended job takes no place");
  }
  for (const Json& object : cluster.objects) {
    const bool is_it = text_at(object, {"kind"}) == contract::kKindTrainingJob &&
                       text_at(object, {"metadata", "name"}) == job.meta.name &&
                       text_at(object, {"metadata", "namespace"}) == job.meta.namespace_name;
    if (!is_it) continue;
    return Error(ErrorCode::kInvalid,
                 "metadata.name: the cluster has a job " + job.meta.key().text() +
                     " already; `muster describe " + job.meta.name +
                     "` tells what it waits for, or give --set metadata.name=ANOTHER")
        .with_exit_code(codes::kUsage);
  }
  return {};
}

Result<int> plan(Kubectl* kubectl, const PlanOptions& options, const Display& display) {
  MUSTER_ASSIGN_OR_RETURN(Manifest manifest, load_manifest(options.file, options.overrides));
  std::string& name_space = manifest.job.meta.namespace_name;
  if (!options.namespace_name.empty()) name_space = options.namespace_name;
  if (name_space.empty()) name_space = kubectl == nullptr ? "default" : kubectl->namespace_in_use();
  manifest.json["metadata"]["namespace"] = name_space;
  auto cluster = kubectl == nullptr ? saved_cluster(options.cluster) : read_live_cluster(*kubectl);
  if (!cluster) return cluster.error();
  // The rest is computing, which may take minutes and writes nothing but its result.
  if (kubectl != nullptr) kubectl->let_signals_end();
  if (!options.price_list.empty()) {
    auto prices = runtime::read_price_file(options.price_list);
    if (!prices) return prices.error();
    cluster->prices = std::move(*prices);
  }
  const Status checked = check_plannable(manifest.job, *cluster);
  if (!checked) return checked.error().with(name_of_file(options.file));
  auto told = forecast(*cluster, manifest.json);
  if (!told) return told.error().with_exit_code(codes::kUsage);
  print(options.output == "json" ? dump_pretty(plan_json(*told))
                                 : plan_text(*told, display, cluster->now));
  return told->starts_now ? codes::kComplete : codes::kFailedJob;
}

}  // namespace

int plan_command(Kubectl* kubectl, const PlanOptions& options, const Display& display) {
  // What the operator's rules say to its log is no news to whoever asks.
  configure_log(LogLevel::kError, {{"component", "muster-plan"}});
  const auto code = plan(kubectl, options, display);
  return code ? *code : tell_error(code.error());
}

}  // namespace muster::cli
