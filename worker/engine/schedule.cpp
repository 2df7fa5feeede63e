#include "worker/engine/schedule.h"

#include <numbers>

#include "kernels/ops.h"

namespace muster::engine {

float learning_rate_at(const TrainingConfig& config, std::int64_t step, std::int64_t total_steps) {
  const float most = config.adamw ? config.adamw->learning_rate : config.sgd.learning_rate;
  if (!config.cosine) return most;
  const std::int64_t warmup = config.cosine->warmup_steps;
  const auto rate = static_cast<double>(most);
  if (step < warmup) {
    return static_cast<float>(rate * (static_cast<double>(step + 1) / static_cast<double>(warmup)));
  }
  const double done =
      static_cast<double>(step - warmup) / static_cast<double>(total_steps - warmup);
  const double above = 0.5 * (1.0 + kernels::cpu::cos_f64(std::numbers::pi * done));
  const auto last = static_cast<double>(config.cosine->final_share);
  return static_cast<float>(rate * (last + (1.0 - last) * above));
}

}  // namespace muster::engine
