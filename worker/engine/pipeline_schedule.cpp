#include "worker/engine/pipeline_schedule.h"

#include <algorithm>
#include <tuple>

#include "common/check.h"

namespace muster::engine {
namespace {

/// Closed forms. One tick more at the beginning of a tied pipeline is for the first embedding.
class Ticks {
 public:
  explicit Ticks(const PipelineShape& shape) : shape_(shape), first_(shape.is_tied ? 1 : 0) {
    MUSTER_CHECK(shape.stages >= 1 && shape.micro_batches >= 1);
    MUSTER_CHECK_MSG(!shape.is_tied || shape.stages >= 2,
                     "one stage has its embedding in its chain");
  }

  int forward(int stage, int micro_batch) const {
    const int fills = shape_.stages - stage;  // as many go through before the first comes back
    const bool is_filling = shape_.pipelining == Pipelining::kGpipe || micro_batch < fills;
    return first_ + stage + (is_filling ? micro_batch : 2 * micro_batch);
  }

  int backward(int stage, int micro_batch) const {
    const int turn = 2 * shape_.stages - 1 - stage;  // of micro-batch 0, where it turns at once
    if (shape_.pipelining == Pipelining::kGpipe) {
      return first_ + turn + shape_.micro_batches - 1 + micro_batch;
    }
    return first_ + turn + 2 * micro_batch;
  }

  int end() const { return backward(0, shape_.micro_batches - 1) + 1 + first_; }

 private:
  PipelineShape shape_;
  int first_;
};

}  // namespace

std::vector<PipelineOperation> pipeline_operations(const PipelineShape& shape, int stage) {
  MUSTER_CHECK(stage >= 0 && stage < shape.stages);
  const Ticks ticks(shape);
  const int last = shape.stages - 1;
  std::vector<PipelineOperation> list;
  using enum PipelineAction;
  for (int m = 0; m < shape.micro_batches; ++m) {
    list.push_back({ticks.forward(stage, m), kForward, m});
    list.push_back({ticks.backward(stage, m), kBackward, m});
    if (stage > 0) {
      list.push_back({ticks.forward(stage, m) - 1, kReceiveActivations, m, stage - 1});
      list.push_back({ticks.backward(stage, m), kSendGradient, m, stage - 1});
    }
    if (stage < last) {
      list.push_back({ticks.forward(stage + 1, m) - 1, kSendActivations, m, stage + 1});
      list.push_back({ticks.backward(stage, m) - 1, kReceiveGradient, m, stage + 1});
    }
    if (!shape.is_tied) continue;
    const int embedding = ticks.forward(0, m) - 1, finish = ticks.backward(0, m);
    if (stage == 0) {
      list.push_back({embedding, kReceiveActivations, m, last});
      list.push_back({finish, kSendGradient, m, last});
    }
    if (stage == last) {
      list.push_back({embedding, kEmbed, m});
      list.push_back({embedding, kSendActivations, m, 0});
      list.push_back({finish, kReceiveGradient, m, 0});
      list.push_back({finish + 1, kFinishTable, m});
    }
  }
  std::sort(list.begin(), list.end(), [](const PipelineOperation& a, const PipelineOperation& b) {
    return std::tie(a.tick, a.action, a.micro_batch) < std::tie(b.tick, b.action, b.micro_batch);
  });
  return list;
}

int pipeline_ticks(const PipelineShape& shape) { return Ticks(shape).end(); }

int alive_most(const PipelineShape& shape, int stage) {
  const int most =
      shape.pipelining == Pipelining::kGpipe ? shape.micro_batches : shape.stages - stage;
  return std::min(most, shape.micro_batches);
}

int embedded_most(const PipelineShape& shape) {
  const int most = shape.pipelining == Pipelining::kGpipe ? shape.micro_batches : shape.stages + 1;
  return std::min(most, shape.micro_batches);
}

int tables_most(const PipelineShape& shape) {
  // The gradient of the embedding comes as many ticks later as there are stages, and is added when
  // that tick's own backward pass is made; with one forward, one backward only every second tick
  // has one.
  const int most = shape.pipelining == Pipelining::kGpipe ? shape.stages + 1 : shape.stages / 2 + 1;
  return std::min(most, shape.micro_batches);
}

double idle_share(const PipelineShape& shape) {
  const int idle = shape.stages - 1;
  return static_cast<double>(idle) / static_cast<double>(shape.micro_batches + idle);
}

}  // namespace muster::engine
