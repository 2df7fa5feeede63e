// How the parameters are updated: stochastic gradient descent or AdamW (docs/numerics.md,
// "Update"), and how far the gradient is scaled down before.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kernels/ops.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/ranges.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// What an optimiser remembers from step to step, with the names it has in checkpoints.
struct OptimizerState {
  struct Buffer {
    std::string prefix;         ///< before the names of the parameters' tensors
    std::vector<float> values;  ///< of the parameters in `room`, one range after the other
  };
  struct Scalar {
    std::string name;
    double value = 1;  ///< beta^t after t steps
  };
  std::vector<Buffer> buffers;
  std::vector<Scalar> scalars;
  Ranges held;  ///< parameters whose state this is: all, or where it is sharded some
  Ranges room;  ///< `held` lies in it; what else does is to come, or of no use any more
};

/// The same state with another room: it holds of that what `from` does.
OptimizerState laid_out(const OptimizerState& from, Ranges room);

/// The gradient of some parameters.
struct Gradient {
  ElementRange range;
  const float* values = nullptr;  ///< of the range alone
};

/// Threads: one.
class Optimizer {
 public:
  /// Keeps the state of all parameters, or of those in `held` alone. AdamW leaves out the decay of
  /// what lies in `undecayed`.
  Optimizer(const TrainingConfig& config, std::size_t parameters, Ranges undecayed = {});
  Optimizer(const TrainingConfig& config, Ranges held, Ranges undecayed = {});

  const OptimizerState& state() const { return state_; }
  /// To be filled with the state of another process or of a checkpoint; its layout stays.
  OptimizerState& state() { return state_; }
  /// The state before the first step.
  void reset();
  /// From now on the state of `held` alone, zeroes where it held nothing before.
  void hold(const Ranges& held);
  /// The same with more room, and whatever is in it where nothing was held.
  void hold(const Ranges& held, const Ranges& room);

  /// That of all steps from now on; before the first call that of the configuration.
  void set_learning_rate(float rate) { learning_rate_ = rate; }

  /// One step with `gradient` x `scale`.  Shape: both as many as parameters. Blocks: until done.
  void update(kernels::cpu::Context& context, std::span<const float> gradient, float scale,
              std::span<float> parameters);
  /// The same for what it holds; `gradients` are of that, each parameter once. All others of
  /// `parameters` stay as they are.
  void update(kernels::cpu::Context& context, std::span<const Gradient> gradients, float scale,
              std::span<float> parameters);
  /// The same; `half_way`, where there is one, is called when one half of the elements is updated,
  /// and its error is where the update ends.
  Status update(kernels::cpu::Context& context, std::span<const Gradient> gradients, float scale,
                std::span<float> parameters, const std::function<Status()>& half_way);

 private:
  kernels::AdamwStep next_adamw_step();
  void update_part(kernels::cpu::Context& context, const Gradient& gradient,
                   const kernels::AdamwStep& step, std::span<float> parameters);
  void update_range(kernels::cpu::Context& context, const Gradient& gradient,
                    const kernels::AdamwStep& step, std::span<float> parameters);

  SgdConfig sgd_;
  std::optional<AdamwConfig> adamw_;
  Ranges undecayed_;
  float learning_rate_;
  OptimizerState state_;
};

/// What of the parameters `config` keeps from decaying: biases, and scales of normalisations, where
/// matrices alone decay.
Ranges undecayed_of(const TrainingConfig& config, const ModelShape& shape);

/// The field that a user lowers when the training diverges.
std::string learning_rate_field(const TrainingConfig& config);

/// The L2 norm of a gradient, from the sums of squares of its blocks of 4,096 elements.
float norm_of(std::span<const float> block_squares);

/// What a gradient of `norm` is multiplied by, so that it is no longer than `norm_max`; both above
/// 0 and finite, `norm` may be 0.
float clip_scale(float norm, float norm_max);

}  // namespace muster::engine
