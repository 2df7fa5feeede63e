// A cluster as it was read once, under the operator's own rules and without its hands: the loop
// decides as it would, its writes are kept here, pods that are deleted are gone at once, whoever
// has done it, and time passes when told to. For plans, forecasts and simulations.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "operator/runtime/loop.h"

namespace muster::runtime {

/// Whether that is what the object says of itself; whatever it may be.
bool is_of_kind(const Json& object, std::string_view kind);
/// Those of `objects` that are nodes and can be read, in their order.
std::vector<api::Node> nodes_among(const std::vector<Json>& objects);
/// When spec.activeDeadlineSeconds end it; absent without them, or before its start.
std::optional<WallTime> deadline_of(const api::TrainingJob& job);

/// How long a step of a job should take that has not begun.
struct StepForecast {
  std::string milliseconds;  ///< as status says it
  api::ObjectKey measured;   ///< the job whose workers' computing is counted
};

/// Threads: one.
class WhatIf {
 public:
  /// What becomes of a pod that the operator creates.
  enum class NewPods {
    kImplied,  ///< it is not there; its place in the job's status counts as taken
    kRun,      ///< it runs at once, where it was meant to
  };

  /// `now`: when the cluster was read.
  /// `prices`: as LoopOptions'.
  explicit WhatIf(WallTime now, NewPods new_pods = NewPods::kImplied,
                  const api::PriceList* prices = nullptr);

  /// An object as the API server has it, in place of any of its name; a pod that leaves in time is
  /// gone. False, and nothing is
  /// changed: it has no name, or is of a kind that the operator does not watch.
  bool put(Json object);
  /// The job is over: it goes, and its pods with it.
  void end_job(const api::ObjectKey& job);
  /// What a worker says of itself and of those it trains with.
  void report(ProgressReport report);
  /// Whatever the operator decides from now on for so long. Returns in how many turns of its loop.
  int run(nanoseconds time) { return run(time, false); }
  /// The same, but no longer than until take_written() has something.
  int run_to_write(nanoseconds time) { return run(time, true); }
  /// Jobs whose status was written since this was last asked.
  std::set<api::ObjectKey> take_written() { return std::exchange(written_, {}); }

  WallTime now() const { return clock_.wall_now(); }
  /// With the status that the operator has given them.
  std::map<api::ObjectKey, api::TrainingJob> jobs() const;
  std::optional<api::TrainingJob> job(const api::ObjectKey& key) const;
  /// So long at most a job that runs now is spared from giving way to others.
  seconds longest_sparing() const;
  /// What the job will have cost by then, should it keep the places it has; absent: that is not
  /// counted.
  std::optional<api::JobCost> cost_until(const api::ObjectKey& job, WallTime then) const;
  /// Of a job where it has its places: the network as far as it is known there, and what the
  /// workers compute as it was measured last, in one of `known` that trains the same with as many
  /// workers, all of them, or is over. Absent: there is no such job, or nothing is known of the
  /// network.
  std::optional<StepForecast> step_of(const api::ObjectKey& job,
                                      const std::map<api::ObjectKey, api::TrainingJob>& known);
  /// Milliseconds of the exchange alone, of a job that nobody need have trained: as step_of counts
  /// it, were nothing computed beside it. Absent: nothing is known of the network or of the model's
  /// size, or it is split between workers.
  std::optional<std::string> exchange_of(const api::ObjectKey& job);

 private:
  /// Keeps what the loop wants done until it is looked at.
  class Hands final : public Executor {
   public:
    void execute(Work work) override { works.push_back(std::move(work)); }
    void stop() override { works.clear(); }
    std::deque<Work> works;
  };

  LoopOptions loop_options();
  int run(nanoseconds time, bool ends_with_write);
  void begin();
  bool work();
  void apply(Work work);
  void write_status(api::Kind kind, const api::ObjectKey& key, const Json& patch, ApplyDone& done);
  void create(const api::Pod& pod);
  void remove(api::Kind kind, const api::ObjectKey& key);
  void tell(api::Kind kind, kube::WatchEvent::Type type, const Json& object);

  NewPods new_pods_;
  const api::PriceList* prices_;
  ManualClock clock_;
  Mailbox mailbox_;
  Hands hands_;
  OperatorLoop loop_;
  std::map<api::Kind, std::map<api::ObjectKey, Json>> objects_;
  std::set<api::ObjectKey> written_;
  bool has_begun_ = false;
  std::int64_t writes_ = 0;
};

}  // namespace muster::runtime
