#include "worker/data/start_threads.h"

#include <atomic>

#include "common/caught.h"
#include "common/log.h"

namespace muster::data {

std::vector<std::jthread> start_threads(int most, const std::function<void()>& work) {
  std::vector<std::jthread> threads;
  try {
    while (std::ssize(threads) < most) threads.emplace_back(work);
  } catch (...) {
    static std::atomic<bool> is_told = false;  // pictures are decoded in many pieces
    if (!is_told.exchange(true)) {
      log_warning(
          "fewer threads than wanted read data",
          {{"threads", threads.size()}, {"wanted", most}, {"error", caught_error().message()}});
    }
  }
  return threads;
}

}  // namespace muster::data
