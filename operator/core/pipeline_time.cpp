#include "operator/core/pipeline_time.h"

#include <algorithm>

#include "common/check.h"
#include "operator/core/topology.h"

namespace muster::core {
namespace {

/// Of more micro-batches each further one takes as long as these do on the average of the later
/// half, when the pipeline has long been full.
constexpr int kMostFollowed = 512;

/// What is computed in a tick: the schedule's closed forms, the other way round.
class Ticks {
 public:
  explicit Ticks(const PipelineWork& work)
      : stages_(static_cast<int>(work.forward_seconds.size())),
        micro_batches_(work.micro_batches),
        first_(work.is_tied ? 1 : 0) {}

  /// The micro-batch that `stage` takes forward in a tick; -1: none.
  int forward(int stage, int tick) const {
    const int at = tick - first_ - stage, fills = stages_ - stage;
    if (at < 0) return -1;
    if (at < fills) return at < micro_batches_ ? at : -1;
    const bool is_one = at % 2 == 0 && at / 2 >= fills && at / 2 < micro_batches_;
    return is_one ? at / 2 : -1;
  }
  int backward(int stage, int tick) const {
    const int at = tick - first_ - (2 * stages_ - 1 - stage);
    return at >= 0 && at % 2 == 0 && at / 2 < micro_batches_ ? at / 2 : -1;
  }
  int count() const { return 2 * (stages_ + micro_batches_ - 1) + 2 * first_; }

 private:
  int stages_, micro_batches_, first_;
};

/// What goes over one hop in one direction, in order.
class Way {
 public:
  explicit Way(const Hop& hop) : hop_(hop) {}
  void send(double now) {
    free_at_ = std::max(now, free_at_) + hop_.load_seconds;
    arrives_at_ = free_at_ + hop_.latency_seconds;
  }
  double arrives_at() const { return arrives_at_; }  ///< of what was sent last

 private:
  Hop hop_;
  double free_at_ = 0, arrives_at_ = 0;
};

std::vector<double> followed(const PipelineWork& work) {
  const Ticks ticks(work);
  const int stages = static_cast<int>(work.forward_seconds.size()), last = stages - 1;
  std::vector<Way> onwards, back;
  for (const Hop& hop : work.hops) {
    onwards.emplace_back(hop);
    back.emplace_back(hop);
  }
  std::vector<double> ends(as_index(stages), 0);
  std::vector<double> in_front(as_index(stages)), behind(as_index(stages));
  for (int tick = 0; tick < ticks.count(); ++tick) {
    // What comes in a tick was sent in one before.
    for (int stage = 0; stage < stages; ++stage) {
      const std::size_t to_next = as_index(stage), from_before = as_index((stage + last) % stages);
      in_front[as_index(stage)] = onwards[from_before].arrives_at();
      behind[as_index(stage)] = back[to_next].arrives_at();
    }
    for (int stage = 0; stage < stages; ++stage) {
      double& now = ends[as_index(stage)];
      const bool is_last = stage == last;
      if (ticks.forward(stage, tick) >= 0) {
        if (stage > 0 || work.is_tied) now = std::max(now, in_front[as_index(stage)]);
        now += work.forward_seconds[as_index(stage)];
      }
      if (ticks.backward(stage, tick) >= 0) {
        if (!is_last) now = std::max(now, behind[as_index(stage)]);
        now += work.backward_seconds[as_index(stage)];
      }
      if (stage == last && work.is_tied && ticks.backward(0, tick - 1) >= 0) {
        now = std::max(now, behind[as_index(stage)]);
      }
      // Given to the next one in the tick before it computes with it.
      const bool is_wanted = !is_last ? ticks.forward(stage + 1, tick + 1) >= 0
                                      : work.is_tied && ticks.forward(0, tick + 1) >= 0;
      if (is_wanted) onwards[as_index(stage)].send(now);
      if (ticks.backward(stage, tick) >= 0 && (stage > 0 || work.is_tied)) {
        back[as_index((stage + last) % stages)].send(now);
      }
    }
  }
  return ends;
}

}  // namespace

std::vector<double> pipeline_ends(const PipelineWork& work) {
  const std::size_t stages = work.forward_seconds.size();
  MUSTER_CHECK(stages >= 1 && work.micro_batches >= 1);
  MUSTER_CHECK(work.backward_seconds.size() == stages && work.hops.size() == stages);
  MUSTER_CHECK_MSG(!work.is_tied || stages > 1, "one stage has its embedding in its chain");
  if (work.micro_batches <= kMostFollowed) return followed(work);
  PipelineWork shorter = work;
  shorter.micro_batches = kMostFollowed / 2;
  const std::vector<double> half = followed(shorter);
  shorter.micro_batches = kMostFollowed;
  std::vector<double> ends = followed(shorter);
  const double further = (work.micro_batches - kMostFollowed) / (kMostFollowed / 2.0);
  for (std::size_t stage = 0; stage < stages; ++stage) {
    ends[stage] += (ends[stage] - half[stage]) * further;
  }
  return ends;
}

}  // namespace muster::core
