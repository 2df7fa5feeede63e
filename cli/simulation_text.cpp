#include "cli/simulation_text.h"

#include <algorithm>
#include <cstdio>

#include "cli/percentile.h"
#include "cli/progress_view.h"
#include "operator/api/pod.h"
#include "operator/runtime/what_if.h"

namespace muster::cli {
namespace {

using runtime::SimulatedJob;
using runtime::Simulation;

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double one : values) sum += one;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// What the cluster has of what is scarce.
struct Scarce {
  bool is_gpu = false;
  double all = 0;

  double of(const api::Resources& one) const {
    return is_gpu ? static_cast<double>(one.gpus) : static_cast<double>(one.cpu_millis) / 1e3;
  }
};

Scarce scarce_of(const std::vector<TraceJob>& trace, const std::vector<Json>& objects) {
  const runtime::ScarceResource resource = runtime::scarce_in(trace);
  Scarce scarce{resource.is_gpu};
  for (const api::Node& node : runtime::nodes_among(objects)) {
    const auto found = node.allocatable.find(resource.name);
    if (found == node.allocatable.end()) continue;
    scarce.all += static_cast<double>(found->second) / (scarce.is_gpu ? 1 : 1e3);
  }
  return scarce;
}

/// How much longer than it ran a job took from its submission, at least 1. What ran for less than
/// this counts as so long, else moments of waiting would decide (Feitelson's bounded slowdown).
constexpr double kSlowdownBound = 10;

double slowdown_of(double completion, double duration) {
  return std::max(1.0, completion / std::max(duration, kSlowdownBound));
}

/// Jain's index: 1 where all are alike, 1 / n where one has everything.
double fairness_of(const std::vector<double>& shares) {
  double sum = 0, squares = 0;
  for (const double one : shares) {
    sum += one;
    squares += one * one;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

struct Figures {
  std::size_t ended = 0;
  int stops = 0, resizes = 0;
  double completion_mean = 0, completion_p95 = 0, wait_mean = 0, wait_p95 = 0, lost = 0, used = 0,
         leaves = 0, slowdown_mean = 0, slowdown_p95 = 0, fairness = 0, decision_p50 = 0,
         decision_p99 = 0, makespan = 0;
};

Figures figures_of(const Simulation& simulation, const std::vector<TraceJob>& trace,
                   const Scarce& scarce) {
  Figures figures;
  std::vector<double> completion, wait, leaves, slowdown;
  double used = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const SimulatedJob& job = simulation.jobs[i];
    figures.stops += job.stops;
    figures.resizes += job.resizes;
    figures.lost += seconds_of(job.lost);
    if (job.started) {
      wait.push_back(seconds_of(*job.started - trace[i].submit));
      if (job.leaves > 0) leaves.push_back(job.leaves);
    }
    if (!job.ended) continue;
    ++figures.ended;
    completion.push_back(seconds_of(*job.ended - trace[i].submit));
    slowdown.push_back(slowdown_of(completion.back(), seconds_of(trace[i].duration)));
    used += seconds_of(trace[i].duration) * scarce.of(trace[i].job.spec.worker.resources) *
            trace[i].job.spec.worker.count;
  }
  figures.makespan = seconds_of(simulation.end - trace.front().submit);
  figures.completion_mean = mean(completion);
  figures.completion_p95 = percentile(completion, 95);
  figures.slowdown_mean = mean(slowdown);
  figures.slowdown_p95 = percentile(slowdown, 95);
  figures.fairness = fairness_of(slowdown);
  figures.wait_mean = mean(wait);
  figures.wait_p95 = percentile(wait, 95);
  if (scarce.all > 0 && figures.makespan > 0) {
    figures.used = used / (scarce.all * figures.makespan);
  }
  figures.leaves = mean(leaves);
  figures.decision_p50 = percentile(simulation.decision_seconds, 50);
  figures.decision_p99 = percentile(simulation.decision_seconds, 99);
  return figures;
}

}  // namespace

std::string simulation_text(const std::vector<RuleResult>& results,
                            const std::vector<TraceJob>& trace, const std::vector<Json>& objects,
                            const Display& display) {
  const Scarce scarce = scarce_of(trace, objects);
  Table table({"RULE", ">ENDED", ">COMPLETION", ">P95", ">WAIT", ">P95", ">SLOWDOWN", ">FAIR",
               ">MAKESPAN", scarce.is_gpu ? ">GPUS USED" : ">CPU USED", ">STOPS", ">LOST",
               ">RESIZED", ">LEAVES", ">ROOM LOST", ">DECISION MS", ">P99"});
  for (const RuleResult& one : results) {
    const Figures is = figures_of(one.simulation, trace, scarce);
    const std::optional<double>& lost = one.simulation.room_lost;
    table.add({{one.rule + (one.is_model ? " (model)" : "")},
               {std::to_string(is.ended) + "/" + std::to_string(trace.size())},
               {duration_text(is.completion_mean)},
               {duration_text(is.completion_p95)},
               {duration_text(is.wait_mean)},
               {duration_text(is.wait_p95)},
               {fixed(is.slowdown_mean, 1)},
               {fixed(is.fairness, 2)},
               {duration_text(is.makespan)},
               {fixed(100 * is.used, 1) + "%"},
               {std::to_string(is.stops)},
               {duration_text(is.lost)},
               {std::to_string(is.resizes)},
               {is.leaves > 0 ? fixed(is.leaves, 2) : ""},
               {lost ? fixed(100 * *lost, 1) + "%" : ""},
               {fixed(is.decision_p50 * 1e3, 2)},
               {fixed(is.decision_p99 * 1e3, 2)}});
  }
  return table.take(display);
}

Json simulation_json(const std::vector<RuleResult>& results, const std::vector<TraceJob>& trace,
                     const std::vector<Json>& objects) {
  const Scarce scarce = scarce_of(trace, objects);
  Json out = Json::array();
  for (const RuleResult& one : results) {
    const Figures is = figures_of(one.simulation, trace, scarce);
    Json jobs = Json::array();
    for (std::size_t i = 0; i < trace.size(); ++i) {
      const SimulatedJob& job = one.simulation.jobs[i];
      Json row{{"name", trace[i].job.meta.name},
               {"submit", seconds_of(trace[i].submit)},
               {"stops", job.stops},
               {"lostSeconds", seconds_of(job.lost)},
               {"resizes", job.resizes},
               {"leaves", job.leaves}};
      if (job.started) row["started"] = seconds_of(*job.started);
      if (job.ended) row["ended"] = seconds_of(*job.ended);
      jobs.push_back(std::move(row));
    }
    out.push_back(
        Json{{"rule", one.rule},
             {"model", one.is_model},
             {"ended", is.ended},
             {"completionSeconds", {{"mean", is.completion_mean}, {"p95", is.completion_p95}}},
             {"waitSeconds", {{"mean", is.wait_mean}, {"p95", is.wait_p95}}},
             {"slowdown", {{"mean", is.slowdown_mean}, {"p95", is.slowdown_p95}}},
             {"fairness", is.fairness},
             {"makespanSeconds", is.makespan},
             {"used", is.used},
             {"stops", is.stops},
             {"lostSeconds", is.lost},
             {"resizes", is.resizes},
             {"leaves", is.leaves},
             {"roomLost", one.simulation.room_lost ? Json(*one.simulation.room_lost) : Json()},
             {"decisionSeconds", {{"p50", is.decision_p50}, {"p99", is.decision_p99}}},
             {"jobs", std::move(jobs)}});
  }
  return out;
}

}  // namespace muster::cli
