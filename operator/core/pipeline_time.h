// How long the stages of a pipeline take for a step's micro-batches, where what one computes and
// what is handed on take known times. As the engine orders them: one forward, one backward
// (worker/engine/pipeline_schedule). Pure.
#pragma once

#include <vector>

namespace muster::core {

/// Handing one micro-batch on, or its gradient back.
struct Hop {
  double latency_seconds = 0;
  double load_seconds = 0;  ///< in which the next one to go the same way has to wait
};

struct PipelineWork {
  int micro_batches = 1;
  /// The last stage embeds for the first one, and is given the gradient of that.
  bool is_tied = false;
  /// By stage, of one micro-batch.
  std::vector<double> forward_seconds, backward_seconds;
  /// By stage, to the next one; of a tied pipeline the last one's is to the first.
  std::vector<Hop> hops;
};

/// By stage, when all its micro-batches have gone forward and back.
std::vector<double> pipeline_ends(const PipelineWork& work);

}  // namespace muster::core
