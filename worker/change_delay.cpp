#include "worker/change_delay.h"

#include <algorithm>
#include <utility>

namespace muster::worker {

std::optional<double> ChangeDelay::add(const Step& step) {
  const std::optional<Step> last = std::exchange(last_, step);
  if (!last || step.step <= last->step) return std::nullopt;
  const double seconds =
      std::chrono::duration<double>(step.end - last->end).count() - step.between_seconds;
  if (step.epoch == last->epoch) {
    if (step.step == last->step + 1) usual_[count_++ % kKept] = seconds;
    return std::nullopt;
  }
  if (count_ < kLeast) return std::nullopt;
  // Steps that the others made without this process are no delay.
  return std::max(0.0, seconds - median() * static_cast<double>(step.step - last->step));
}

double ChangeDelay::median() const {
  std::array<double, kKept> sorted = usual_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, kKept));
  const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

}  // namespace muster::worker
