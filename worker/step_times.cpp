#include "worker/step_times.h"

#include <algorithm>
#include <utility>

namespace muster::worker {

void StepTimes::add(const engine::StepReport& report) {
  const std::uint64_t before = std::exchange(ranks_, report.logical_rank_computations);
  newest_[count_++ % kKept] = {report.step_seconds,    report.data_seconds,
                               report.compute_seconds, report.communicate_seconds,
                               report.update_seconds,  static_cast<double>(ranks_ - before)};
}

std::size_t StepTimes::steps() const { return std::min(count_, kKept); }

StepTimes::Times StepTimes::medians() const {
  return {median(&Times::step),        median(&Times::data),   median(&Times::compute),
          median(&Times::communicate), median(&Times::update), median(&Times::ranks)};
}

double StepTimes::median(double Times::* part) const {
  std::array<double, kKept> values{};
  std::ranges::transform(newest_, values.begin(), part);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(steps() / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(steps()));
  return *middle;
}

double flops_of_sample(const engine::TrainingConfig& config, std::int64_t parameters) {
  if (config.cnn) return 0;
  const double of_parameters = 6.0 * static_cast<double>(parameters);
  if (!config.gpt) return of_parameters;
  const double context = config.gpt->context_length;
  return context * (of_parameters + 6.0 * config.gpt->layers * config.gpt->width * context);
}

}  // namespace muster::worker
