#include "worker/engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"

namespace muster::engine {

namespace cpu = kernels::cpu;

OptimizerState laid_out(const OptimizerState& from, Ranges room) {
  OptimizerState state;
  state.scalars = from.scalars;
  for (const auto& buffer : from.buffers) {
    auto& values = state.buffers.emplace_back().values;
    state.buffers.back().prefix = buffer.prefix;
    values.resize(size_of(room));
    for (const ElementRange old : from.held) {
      for (const ElementRange range : room) {
        const ElementRange both = intersection(old, range);
        if (both.size() == 0) continue;
        std::copy_n(buffer.values.data() + offset_of(from.room, both), both.size(),
                    values.data() + offset_of(room, both));
      }
    }
  }
  state.held = intersection(from.held, room);
  state.room = std::move(room);
  return state;
}

Optimizer::Optimizer(const TrainingConfig& config, std::size_t parameters, Ranges undecayed)
    : Optimizer(config, Ranges{{0, parameters}}, std::move(undecayed)) {}

Optimizer::Optimizer(const TrainingConfig& config, Ranges held, Ranges undecayed)
    : sgd_(config.sgd),
      adamw_(config.adamw),
      undecayed_(std::move(undecayed)),
      learning_rate_(adamw_ ? adamw_->learning_rate : sgd_.learning_rate) {
  // In a checkpoint the velocity has the parameters' own names.
  const std::vector<std::string> prefixes =
      adamw_ ? std::vector<std::string>{"m.", "v."} : std::vector<std::string>{""};
  for (const std::string& prefix : prefixes) {
    state_.buffers.push_back({prefix, std::vector<float>(size_of(held))});
  }
  if (adamw_) state_.scalars = {{"beta1Power"}, {"beta2Power"}};
  state_.held = state_.room = std::move(held);
}

void Optimizer::hold(const Ranges& held) {
  if (state_.held != held || state_.room != held) state_ = laid_out(state_, held);
  state_.held = held;
}

void Optimizer::hold(const Ranges& held, const Ranges& room) {
  MUSTER_CHECK(without(held, room).empty());
  if (state_.room != room) state_ = laid_out(state_, room);
  state_.held = held;
}

void Optimizer::reset() {
  for (auto& buffer : state_.buffers) std::fill(buffer.values.begin(), buffer.values.end(), 0.0f);
  for (auto& scalar : state_.scalars) scalar.value = 1;
}

kernels::AdamwStep Optimizer::next_adamw_step() {
  double& power1 = state_.scalars[0].value;
  double& power2 = state_.scalars[1].value;
  power1 = power1 * static_cast<double>(adamw_->beta1);
  power2 = power2 * static_cast<double>(adamw_->beta2);
  kernels::AdamwStep step;
  step.beta1 = adamw_->beta1;
  step.beta2 = adamw_->beta2;
  step.one_minus_beta1 = 1.0f - adamw_->beta1;
  step.one_minus_beta2 = 1.0f - adamw_->beta2;
  step.step_size = static_cast<float>(static_cast<double>(learning_rate_) / (1.0 - power1));
  step.root_scale = static_cast<float>(1.0 / std::sqrt(1.0 - power2));
  step.epsilon = adamw_->epsilon;
  step.decay = learning_rate_ * adamw_->weight_decay;
  return step;
}

void Optimizer::update(cpu::Context& context, std::span<const float> gradient, float scale,
                       std::span<float> parameters) {
  MUSTER_CHECK(gradient.size() == parameters.size());
  const Gradient whole{{0, gradient.size()}, gradient.data()};
  update(context, std::span(&whole, 1), scale, parameters);
}

void Optimizer::update(cpu::Context& context, std::span<const Gradient> gradients, float scale,
                       std::span<float> parameters) {
  MUSTER_CHECK(update(context, gradients, scale, parameters, nullptr));
}

Status Optimizer::update(cpu::Context& context, std::span<const Gradient> gradients, float scale,
                         std::span<float> parameters, const std::function<Status()>& half_way) {
  std::size_t elements = 0;
  for (const Gradient& gradient : gradients) elements += gradient.range.size();
  MUSTER_CHECK(elements == size_of(state_.held));
  kernels::AdamwStep step;
  if (adamw_) step = next_adamw_step();
  step.gradient_scale = scale;
  // No element's update depends on another's, so that it does not show where they are parted.
  std::size_t before_half = half_way ? elements / 2 : elements;
  for (const Gradient& gradient : gradients) {
    const auto [begin, end] = gradient.range;
    const std::size_t middle = begin + std::min(before_half, gradient.range.size());
    update_part(context, {{begin, middle}, gradient.values}, step, parameters);
    before_half -= middle - begin;
    if (middle == end) continue;
    MUSTER_RETURN_IF_ERROR(half_way());
    update_part(context, {{middle, end}, gradient.values + (middle - begin)}, step, parameters);
    before_half = elements;
  }
  return {};
}

void Optimizer::update_part(cpu::Context& context, const Gradient& gradient,
                            const kernels::AdamwStep& step, std::span<float> parameters) {
  if (gradient.range.size() == 0) return;
  kernels::AdamwStep undecayed = step;
  undecayed.decay = 0;
  const auto update_all = [&](const Ranges& ranges, const kernels::AdamwStep& with) {
    for (const ElementRange range : ranges) {
      const float* const values = gradient.values + (range.begin - gradient.range.begin);
      update_range(context, {range, values}, with, parameters);
    }
  };
  update_all(without({gradient.range}, undecayed_), step);
  update_all(intersection({gradient.range}, undecayed_), undecayed);
}

void Optimizer::update_range(cpu::Context& context, const Gradient& gradient,
                             const kernels::AdamwStep& step, std::span<float> parameters) {
  const std::size_t n = gradient.range.size();
  const std::size_t at = offset_of(state_.room, gradient.range);
  float* const values = parameters.subspan(gradient.range.begin, n).data();
  float* const first = state_.buffers[0].values.data() + at;
  if (adamw_) {
    cpu::adamw(context, n, step, gradient.values, first, state_.buffers[1].values.data() + at,
               values);
  } else {
    cpu::sgd_momentum(context, n, {learning_rate_, sgd_.momentum, step.gradient_scale},
                      gradient.values, first, values);
  }
}

Ranges undecayed_of(const TrainingConfig& config, const ModelShape& shape) {
  if (!config.adamw || config.adamw->decays_all) return {};
  Ranges ranges;
  for (const Tensor& tensor : shape.trained()) {
    if (tensor.shape.size() < 2) ranges.push_back({tensor.offset, tensor.offset + tensor.size});
  }
  return united(std::move(ranges));
}

std::string learning_rate_field(const TrainingConfig& config) {
  return std::string("spec.training.optimizer.") + (config.adamw ? "adamw" : "sgd") +
         ".learningRate";
}

float norm_of(std::span<const float> block_squares) {
  return std::sqrt(cpu::tree_sum(block_squares.data(), block_squares.size()));
}

float clip_scale(float norm, float norm_max) { return norm > norm_max ? norm_max / norm : 1.0f; }

}  // namespace muster::engine
