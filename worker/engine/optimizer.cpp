#include "worker/engine/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "worker/engine/block_hash.h"

namespace muster::engine {

namespace cpu = kernels::cpu;

std::string state_hash(const OptimizerState& state) {
  std::vector<Sha256Digest> digests;
  for (const auto& buffer : state.buffers) {
    const auto blocks = block_digests(buffer.values);
    digests.insert(digests.end(), blocks.begin(), blocks.end());
  }
  std::vector<double> scalars;
  for (const auto& scalar : state.scalars) scalars.push_back(scalar.value);
  if (!scalars.empty()) digests.push_back(sha256(std::as_bytes(std::span(scalars))));
  return to_hex(combine(digests));
}

Optimizer::Optimizer(const TrainingConfig& config, std::size_t parameters)
    : sgd_(config.sgd), adamw_(config.adamw) {
  // In a checkpoint the velocity has the parameters' own names.
  const std::vector<std::string> prefixes =
      adamw_ ? std::vector<std::string>{"m.", "v."} : std::vector<std::string>{""};
  for (const std::string& prefix : prefixes) {
    state_.buffers.push_back({prefix, std::vector<float>(parameters)});
  }
  if (adamw_) state_.scalars = {{"beta1Power"}, {"beta2Power"}};
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
  step.step_size = static_cast<float>(static_cast<double>(adamw_->learning_rate) / (1.0 - power1));
  step.root_scale = static_cast<float>(1.0 / std::sqrt(1.0 - power2));
  step.epsilon = adamw_->epsilon;
  step.decay = adamw_->learning_rate * adamw_->weight_decay;
  return step;
}

void Optimizer::update(cpu::Context& context, std::span<const float> gradient, float scale,
                       std::span<float> parameters) {
  const std::size_t n = parameters.size();
  MUSTER_CHECK(gradient.size() == n && state_.buffers[0].values.size() == n);
  if (!adamw_) {
    cpu::sgd_momentum(context, n, {sgd_.learning_rate, sgd_.momentum, scale}, gradient.data(),
                      state_.buffers[0].values.data(), parameters.data());
    return;
  }
  kernels::AdamwStep step = next_adamw_step();
  step.gradient_scale = scale;
  cpu::adamw(context, n, step, gradient.data(), state_.buffers[0].values.data(),
             state_.buffers[1].values.data(), parameters.data());
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
