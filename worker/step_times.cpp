#include "worker/step_times.h"

#include <algorithm>

namespace muster::worker {

void StepTimes::add(const engine::StepReport& report) {
  newest_[count_++ % kKept] = {report.step_seconds, report.data_seconds, report.compute_seconds,
                               report.communicate_seconds, report.update_seconds};
}

std::size_t StepTimes::steps() const { return std::min(count_, kKept); }

StepTimes::Times StepTimes::medians() const {
  return {median(&Times::step), median(&Times::data), median(&Times::compute),
          median(&Times::communicate), median(&Times::update)};
}

double StepTimes::median(double Times::* part) const {
  std::array<double, kKept> values{};
  std::ranges::transform(newest_, values.begin(), part);
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(steps() / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(steps()));
  return *middle;
}

}  // namespace muster::worker
