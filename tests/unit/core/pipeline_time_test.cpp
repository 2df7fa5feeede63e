// How long a pipeline takes: by hand, and as what the engine's own schedule says comes to.
#include "operator/core/pipeline_time.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "common/rng.h"
#include "operator/core/topology.h"
#include "worker/engine/pipeline_schedule.h"

using namespace muster;
using namespace muster::core;

namespace {

PipelineWork even(int stages, int micro_batches, double forward, double backward, Hop hop = {}) {
  const auto count = as_index(stages);
  return {micro_batches, false, std::vector(count, forward), std::vector(count, backward),
          std::vector(count, hop)};
}

/// When a stage has what one of the engine's transfers brings it, and when each stage ends.
class AsEngine {
 public:
  explicit AsEngine(const PipelineWork& work) : work_(work) {}

  std::vector<double> ends() {
    const int stages = static_cast<int>(work_.hops.size());
    const engine::PipelineShape shape{stages, work_.micro_batches,
                                      engine::Pipelining::kOneForwardOneBackward, work_.is_tied};
    std::vector<double> now(as_index(stages), 0);
    for (int tick = 0; tick < engine::pipeline_ticks(shape); ++tick) {
      std::map<Transfer, double> sent;
      for (int stage = 0; stage < stages; ++stage) {
        for (const auto& operation : engine::pipeline_operations(shape, stage)) {
          if (operation.tick == tick) run(operation, stage, now[as_index(stage)], sent);
        }
      }
      arrived_.merge(sent);
    }
    return now;
  }

 private:
  enum Kind { kActivations, kGradient };
  using Transfer = std::tuple<Kind, int, int>;  ///< of a micro-batch, to a stage

  void run(const engine::PipelineOperation& operation, int stage, double& now,
           std::map<Transfer, double>& sent) {
    using enum engine::PipelineAction;
    const int m = operation.micro_batch, last = static_cast<int>(work_.hops.size()) - 1;
    const auto wait_for = [&](Kind kind) {
      const auto at = arrived_.find({kind, m, stage});
      if (at != arrived_.end()) now = std::max(now, at->second);
    };
    const auto send = [&](Kind kind, int from) {
      const Hop& hop = work_.hops[as_index(from)];
      double& free_at = free_at_[{kind, from, 0}];
      free_at = std::max(free_at, now) + hop.load_seconds;
      sent[{kind, m, operation.peer}] = free_at + hop.latency_seconds;
    };
    if (operation.action == kForward) {
      wait_for(kActivations);
      now += work_.forward_seconds[as_index(stage)];
    } else if (operation.action == kBackward) {
      if (stage < last) wait_for(kGradient);
      now += work_.backward_seconds[as_index(stage)];
    } else if (operation.action == kFinishTable) {
      wait_for(kGradient);
    } else if (operation.action == kSendActivations) {
      send(kActivations, stage);
    } else if (operation.action == kSendGradient) {
      send(kGradient, operation.peer);
    }
  }

  const PipelineWork& work_;
  std::map<Transfer, double> arrived_;
  std::map<Transfer, double> free_at_;  ///< by kind and the hop's first stage
};

}  // namespace

TEST_CASE("even stages stand still for as long as it takes to fill and to empty them") {
  for (const int stages : {1, 2, 4, 7}) {
    for (const int micro_batches : {1, 2, 8, 400, 5000}) {
      const double all = (micro_batches + stages - 1) * 3.0;
      CHECK(pipeline_ends(even(stages, micro_batches, 1, 2))[0] == doctest::Approx(all));
      if (micro_batches > 1000) continue;  // those are not followed
      const double idle = engine::idle_share({stages, micro_batches});
      CHECK(micro_batches * 3.0 / all == doctest::Approx(1 - idle));
    }
  }
}

TEST_CASE("stages end one after the other, and the slowest holds up all") {
  CHECK(pipeline_ends(even(3, 4, 1, 2)) ==
        std::vector<double>{18, 16, 14});  // the first one's last pass comes back last
  PipelineWork work = even(2, 10, 1, 1);
  work.forward_seconds[1] = work.backward_seconds[1] = 5;
  CHECK(pipeline_ends(work)[0] == doctest::Approx(1 + 10 * 10 + 1));
}

TEST_CASE("what is handed on takes its way each time, and a full link its share") {
  // One micro-batch: there and back.
  CHECK(pipeline_ends(even(3, 1, 1, 2, {0.5, 0.25}))[0] == doctest::Approx(9 + 4 * 0.75));
  // Two stages have two micro-batches on their way: half of there and back is not hidden.
  const double each = (pipeline_ends(even(2, 100, 1, 2, {0.5, 0}))[0] -
                       pipeline_ends(even(2, 50, 1, 2, {0.5, 0}))[0]) /
                      50;
  CHECK(each == doctest::Approx(3.5));
  // A link that takes longer than a stage.
  CHECK(pipeline_ends(even(2, 200, 1, 2, {0, 50}))[0] > 200 * 50);
}

TEST_CASE("a pipeline takes as long as the engine's order of its passes says") {
  Rng rng(7);
  for (int stages = 1; stages <= 6; ++stages) {
    for (int micro_batches = 1; micro_batches <= 14; ++micro_batches) {
      for (const bool is_tied : {false, true}) {
        if (is_tied && stages == 1) continue;
        PipelineWork work{micro_batches, is_tied, {}, {}, {}};
        for (int stage = 0; stage < stages; ++stage) {
          work.forward_seconds.push_back(rng.unit());
          work.backward_seconds.push_back(2 * rng.unit());
          work.hops.push_back({0.3 * rng.unit(), rng.unit()});
        }
        CAPTURE(stages);
        CAPTURE(micro_batches);
        CAPTURE(is_tied);
        const auto ends = pipeline_ends(work), engines = AsEngine(work).ends();
        for (std::size_t stage = 0; stage < ends.size(); ++stage) {
          CHECK(ends[stage] == doctest::Approx(engines[stage]));
        }
      }
    }
  }
}
