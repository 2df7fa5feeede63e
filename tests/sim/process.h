// One operator of the seeded simulation with what is its own: a clock, a way to the server, what it
// was told, and its part in an election.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "operator/kube/transport_guards.h"
#include "operator/runtime/metrics.h"
#include "tests/sim/electing.h"
#include "tests/sim/faults.h"
#include "tests/sim/one_operator.h"
#include "tests/sim/told.h"

namespace muster::sim {

/// What operators of a world have and see, drawn from its seed alone, so that each comes with each.
struct Manner {
  explicit Manner(std::uint64_t seed)
      : elects(seed % 7 < 2),
        has_right_clocks(elects && seed % 2 == 0),
        has_groups(seed % 5 < 2),
        sees_kueue(seed % 11 < 3),
        has_metrics(seed % 8 == 1) {}
  /// They elect who leads; elsewhere all think that they do, the worst that any Lease can give.
  bool elects;
  /// All clocks run as fast, and nobody takes the Lease from its holder: never do two lead.
  bool has_right_clocks;
  bool has_groups;  ///< the cluster serves PodGroups
  bool sees_kueue;
  bool has_metrics;  ///< each operator counts, which takes its time
  bool sees_topologies = false;
};

/// A machine's own clocks: as fast as it likes, and set by whoever likes.
class SkewedClock final : public Clock {
 public:
  SkewedClock(const ManualClock& true_time, bool is_steady, Rng& rng)
      : true_(true_time), since_(true_time.mono_now()), then_(since_) {
    percent_ = 50 + static_cast<std::int64_t>(rng.below(150));
    if (is_steady) percent_ = 100;
    leap(rng);
  }
  void leap(Rng& rng) { offset_ = seconds(static_cast<std::int64_t>(rng.below(7200)) - 3600); }
  void heal() {
    then_ = mono_now();
    since_ = true_.mono_now();
    percent_ = 100;
    offset_ = seconds(0);
  }
  MonoTime mono_now() const override {
    return then_ + (true_.mono_now() - since_) * percent_ / 100;
  }
  WallTime wall_now() const override { return true_.wall_now() + offset_; }

 private:
  const ManualClock& true_;
  MonoTime since_, then_;  ///< true time, and what this clock showed then
  std::int64_t percent_ = 100;
  seconds offset_{0};
};

struct Process {
  Process(const ManualClock& true_time, kube::HttpTransport& server, Faults& faults,
          std::uint64_t seed, const Manner& manner, const std::string& identity, Judged& judged)
      : clock(true_time, manner.has_right_clocks, faults.rng),
        transport(server, faults),
        electing(manner.elects ? std::make_unique<Electing>(transport, clock, identity, seed)
                               : nullptr),
        fenced(electing ? kube::make_fenced_transport(transport, *electing, clock) : nullptr),
        told(judged),
        metrics(manner.has_metrics ? std::make_unique<runtime::Metrics>(runtime::MetricsOptions{
                                         .clock = &clock, .version = "simulated"})
                                   : nullptr),
        op(clock, fenced ? *fenced : transport, seed,
           {.sees_topologies = manner.sees_topologies,
            .sees_kueue = manner.sees_kueue,
            .pod_groups = manner.has_groups ? std::optional(api::Kind::kPodGroup) : std::nullopt,
            .is_leader = !manner.elects,
            .on_told = [this](const runtime::WatchBatch& batch) { told.take(batch); },
            .metrics = metrics.get()}) {
    op.executor.on_decided = [this, &faults](const runtime::Work& work) {
      std::string wrong = told.judge(work);
      if (faults.wrong.empty()) faults.wrong = std::move(wrong);
    };
  }
  bool is_over() const { return transport.crashed() || (electing && electing->has_lost()); }

  SkewedClock clock;
  FaultyTransport transport;
  std::unique_ptr<Electing> electing;           ///< none: it leads from its birth
  std::unique_ptr<kube::HttpTransport> fenced;  ///< before `transport`, where it elects
  Told told;                                    ///< before the operator, which fills it
  std::unique_ptr<runtime::Metrics> metrics;    ///< likewise
  OneOperator op;
};

}  // namespace muster::sim
