#include "cli/simulate_command.h"

#include <algorithm>

#include "cli/files.h"
#include "cli/kube_query.h"
#include "cli/saved_cluster.h"
#include "cli/simulation_text.h"
#include "cli/simulation_trace.h"
#include "cli/tell.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/log.h"
#include "operator/runtime/what_if.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;
using runtime::make_peer;
using runtime::PeerRule;
using runtime::SimulatedScheduler;

std::unique_ptr<SimulatedScheduler> make_rule(const std::string& rule,
                                              const std::vector<Json>& objects,
                                              const std::vector<TraceJob>& trace) {
  if (rule == "strict-fifo") return make_peer(PeerRule::kStrictFifo, objects, trace);
  if (rule == "any-that-fits") return make_peer(PeerRule::kAnyThatFits, objects, trace);
  if (rule == "best-fit") return make_peer(PeerRule::kBestFit, objects, trace);
  if (rule == "pods") return make_peer(PeerRule::kPods, objects, trace);
  return runtime::make_operator(objects, trace);
}

/// Of the file, or without one of the cluster itself.
Result<std::vector<TraceJob>> trace_of(const SimulateOptions& options,
                                       const std::vector<Json>& objects) {
  const bool is_recorded = options.jobs.empty();
  auto text = is_recorded ? Result<std::string>("") : read_file(options.jobs, kMaxTraceBytes);
  if (!text) return text.error().with_exit_code(codes::kUsage);
  auto trace = is_recorded ? recorded_trace(objects) : read_trace(*text);
  if (trace) return trace;
  return trace.error()
      .with(is_recorded ? options.cluster : options.jobs)
      .with_exit_code(codes::kUsage);
}

/// A trace names no namespaces: its jobs are of one that each queue takes.
void open_queues(std::vector<Json>& objects) {
  for (Json& object : objects) {
    if (!runtime::is_of_kind(object, contract::kKindTrainingQueue)) continue;
    const auto spec = object.find("spec");
    if (spec != object.end() && spec->is_object()) spec->erase("namespaces");
  }
}

Result<int> run(const SimulateOptions& options, const Display& display, const Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<Json> objects, read_saved_cluster(options.cluster));
  if (!options.jobs.empty()) open_queues(objects);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<TraceJob> trace, trace_of(options, objects));
  const bool has_nodes = std::any_of(objects.begin(), objects.end(), [](const Json& object) {
    return runtime::is_of_kind(object, "Node");
  });
  if (!has_nodes) {
    return Error(ErrorCode::kInvalid, options.cluster + ": has no Node among its objects")
        .with_exit_code(codes::kUsage);
  }
  std::vector<RuleResult> results;
  for (const std::string& rule : options.rules.empty() ? kSimulateRules : options.rules) {
    const auto scheduler = make_rule(rule, objects, trace);
    const std::chrono::minutes every(options.checkpoint_minutes);
    results.push_back({rule, runtime::simulate(*scheduler, objects, trace, every, clock),
                       rule != kSimulateRules.front()});
  }
  print(options.output == "json" ? dump_pretty(simulation_json(results, trace, objects))
                                 : simulation_text(results, trace, objects, display));
  return codes::kComplete;
}

}  // namespace

int simulate_command(const SimulateOptions& options, const Display& display, const Clock& clock) {
  configure_log(LogLevel::kError, {{"component", "muster-simulate"}});
  const auto code = run(options, display, clock);
  (void)flush();
  return code ? *code : tell_error(code.error());
}

}  // namespace muster::cli
