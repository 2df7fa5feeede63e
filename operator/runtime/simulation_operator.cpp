#include <algorithm>
#include <map>
#include <set>

#include "common/check.h"
#include "operator/runtime/simulation.h"
#include "operator/runtime/what_if.h"

namespace muster::runtime {
namespace {

/// When the trace begins; any time will do.
constexpr WallTime kBegin{seconds(1'700'000'000)};

class OperatorScheduler final : public SimulatedScheduler {
 public:
  OperatorScheduler(const std::vector<Json>& objects, const std::vector<TraceJob>& trace)
      : trace_(trace), what_if_(kBegin, WhatIf::NewPods::kRun) {
    for (const Json& object : objects) {
      const bool is_work = is_of_kind(object, "TrainingJob") || is_of_kind(object, "Pod");
      if (!is_work) what_if_.put(object);
    }
    for (std::size_t i = 0; i < trace.size(); ++i) index_[trace[i].job.meta.key()] = i;
  }

  void submit(std::size_t job) override {
    Json object = trace_[job].manifest;
    Json& meta = object["metadata"];
    meta["uid"] = "uid-" + std::to_string(job);
    meta["resourceVersion"] = "submitted";
    meta["generation"] = 1;
    meta["creationTimestamp"] = format_time(what_if_.now());
    MUSTER_CHECK(what_if_.put(std::move(object)));
  }

  void end(std::size_t job) override {
    what_if_.end_job(trace_[job].job.meta.key());
    crews_.erase(job);
  }

  milliseconds run(milliseconds until) override {
    what_if_.run_to_write(until - now());
    return now();
  }

  std::vector<Change> take_changes() override {
    std::vector<Change> changes;
    for (const api::ObjectKey& key : what_if_.take_written()) {
      const auto found = index_.find(key);
      const auto job = what_if_.job(key);
      if (found == index_.end() || !job) continue;
      if (job->status.finished()) {
        // Its places stay in status, for whoever looks.
        crews_.erase(found->second);
        Change over{found->second};
        over.is_given_up = true;
        changes.push_back(std::move(over));
        continue;
      }
      if (job->spec.training) meet(found->second, *job);
      const auto& placement = job->status.placement;
      std::set<std::string> leaves;
      for (const auto& place : placement) {
        if (!place.domain.empty()) leaves.insert(place.domain);
      }
      // Of workers that became one each counts: the trace has as many.
      const int size = job->spec.worker.size;
      Change change{found->second, static_cast<int>(placement.size()) * size,
                    static_cast<int>(leaves.size())};
      for (const auto& place : placement) {
        change.nodes.insert(change.nodes.end(), static_cast<std::size_t>(size), place.node);
      }
      changes.push_back(std::move(change));
    }
    return changes;
  }

 private:
  /// Who trains together, as an elastic job's workers have agreed on it.
  struct Crew {
    std::int64_t epoch = 0;
    std::vector<int> slots;
  };

  /// The workers of an elastic job agree at once on whoever has a place, and say so.
  void meet(std::size_t index, const api::TrainingJob& job) {
    std::vector<int> slots;
    for (const auto& place : job.status.placement) slots.push_back(place.slot);
    std::sort(slots.begin(), slots.end());
    Crew& crew = crews_[index];
    if (crew.slots == slots) return;
    crew.slots = slots;
    crew.epoch = std::max(crew.epoch, job.status.membership_epoch) + 1;
    for (const auto& place : job.status.placement) {
      ProgressReport report;
      report.job = job.meta.key().text();
      report.slot = place.slot;
      report.attempt = place.attempt;
      report.membership_epoch = crew.epoch;
      report.members = crew.slots;
      what_if_.report(std::move(report));
    }
  }

  milliseconds now() const { return std::chrono::ceil<milliseconds>(what_if_.now() - kBegin); }

  const std::vector<TraceJob>& trace_;
  WhatIf what_if_;
  std::map<api::ObjectKey, std::size_t> index_;
  std::map<std::size_t, Crew> crews_;  ///< by job of the trace
};

}  // namespace

std::unique_ptr<SimulatedScheduler> make_operator(const std::vector<Json>& objects,
                                                  const std::vector<TraceJob>& trace) {
  return std::make_unique<OperatorScheduler>(objects, trace);
}

}  // namespace muster::runtime
