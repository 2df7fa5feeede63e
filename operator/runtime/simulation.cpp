#include "operator/runtime/simulation.h"

#include <algorithm>
#include <set>

#include "operator/runtime/simulation_room.h"

namespace muster::runtime {
namespace {

/// Without anybody running, whoever has not started by then never will: the operator's own waits
/// (back-off, quota) are shorter.
constexpr milliseconds kPatience = std::chrono::hours(24);

class Simulator {
 public:
  Simulator(SimulatedScheduler& scheduler, const std::vector<Json>& objects,
            const std::vector<TraceJob>& trace, milliseconds checkpoint_every, const Clock& clock)
      : scheduler_(scheduler),
        trace_(trace),
        checkpoint_every_(checkpoint_every),
        clock_(clock),
        room_(objects, trace),
        states_(trace.size()) {
    result_.jobs.resize(trace.size());
    for (std::size_t i = 0; i < trace.size(); ++i) states_[i].left = trace[i].duration;
  }
  Simulation run();

 private:
  struct State {
    milliseconds left{};   ///< of running with all workers
    milliseconds since{};  ///< when its workers last changed
    int workers = 0;
    bool is_given_up = false;
  };

  std::optional<milliseconds> next_event() const;
  void decide_until(milliseconds until);
  void take(const SimulatedScheduler::Change& change);
  void settle(std::size_t job);
  void end(std::size_t job);
  int wished(std::size_t job) const { return trace_[job].job.spec.worker.count; }
  /// Of one that runs, if its workers stay.
  std::pair<milliseconds, std::size_t> end_of(std::size_t job) const {
    const State& state = states_[job];
    return {state.since + state.left * wished(job) / state.workers, job};
  }

  SimulatedScheduler& scheduler_;
  const std::vector<TraceJob>& trace_;
  milliseconds checkpoint_every_;
  const Clock& clock_;
  RoomMeter room_;
  Simulation result_;
  std::vector<State> states_;
  std::set<std::pair<milliseconds, std::size_t>> ends_;  ///< of those that run
  std::size_t submitted_ = 0, ended_ = 0;
  milliseconds now_{};
  bool has_news_ = false;
};

std::optional<milliseconds> Simulator::next_event() const {
  std::optional<milliseconds> next;
  if (submitted_ < trace_.size()) next = trace_[submitted_].submit;
  if (!ends_.empty()) next = std::min(next.value_or(milliseconds::max()), ends_.begin()->first);
  return next;
}

/// What it has run since its workers last changed counts by how many there were.
void Simulator::settle(std::size_t job) {
  State& state = states_[job];
  if (state.workers > 0) {
    ends_.erase(end_of(job));
    state.left -= (now_ - state.since) * state.workers / wished(job);
    state.left = std::max(state.left, milliseconds(0));
  }
  state.since = now_;
}

void Simulator::take(const SimulatedScheduler::Change& change) {
  State& state = states_[change.job];
  SimulatedJob& told = result_.jobs[change.job];
  if (told.ended || state.is_given_up) return;
  room_.place(change.job, change.nodes, now_);
  if (change.is_given_up) {
    settle(change.job);
    state.workers = 0;
    state.is_given_up = true;
    ++ended_;
    return;
  }
  if (state.workers == change.workers) return;
  settle(change.job);
  if (state.workers > 0 && change.workers > 0) ++told.resizes;
  if (change.workers == 0) {
    const milliseconds done = trace_[change.job].duration - state.left;
    const milliseconds lost = checkpoint_every_.count() > 0 ? done % checkpoint_every_ : done;
    state.left += lost;
    told.lost += lost;
    ++told.stops;
  } else if (!told.started) {
    told.started = now_;
    told.leaves = change.leaves;
  }
  state.workers = change.workers;
  if (state.workers > 0) ends_.insert(end_of(change.job));
}

void Simulator::decide_until(milliseconds until) {
  const MonoTime began = clock_.mono_now();
  now_ = scheduler_.run(until);
  if (std::exchange(has_news_, false)) {
    result_.decision_seconds.push_back(seconds_of(clock_.mono_now() - began));
  }
  for (const auto& change : scheduler_.take_changes()) take(change);
}

void Simulator::end(std::size_t job) {
  settle(job);
  result_.jobs[job].ended = result_.end = now_;
  states_[job].workers = 0;
  room_.place(job, {}, now_);
  ++ended_;
  scheduler_.end(job);
}

Simulation Simulator::run() {
  while (ended_ < trace_.size()) {
    const auto next = next_event();
    const milliseconds until = next.value_or(now_ + kPatience);
    decide_until(until);
    if (now_ < until) continue;
    if (!next && ends_.empty()) break;
    while (submitted_ < trace_.size() && trace_[submitted_].submit <= now_) {
      scheduler_.submit(submitted_++);
      has_news_ = true;
    }
    while (!ends_.empty() && ends_.begin()->first <= now_) {
      end(ends_.begin()->second);
      has_news_ = true;
    }
  }
  result_.room_lost = room_.lost();
  return std::move(result_);
}

}  // namespace

ScarceResource scarce_in(const std::vector<TraceJob>& trace) {
  ScarceResource scarce;
  for (const TraceJob& one : trace) {
    const api::Resources& resources = one.job.spec.worker.resources;
    if (resources.gpus > 0) scarce = {true, resources.gpu_resource};
  }
  return scarce;
}

Simulation simulate(SimulatedScheduler& scheduler, const std::vector<Json>& objects,
                    const std::vector<TraceJob>& trace, milliseconds checkpoint_every,
                    const Clock& clock) {
  return Simulator(scheduler, objects, trace, checkpoint_every, clock).run();
}

}  // namespace muster::runtime
