// What a verdict on slow processes costs a sentinel (sentinel/pace), whose only thread hears nobody
// meanwhile. Prints the median time of one, for gangs up to the largest that there may be.
//
//   pace_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/clock.h"
#include "worker/sentinel/pace.h"

namespace {

using namespace muster;

constexpr int kRounds = 21;

struct Shape {
  int hosts, processes;  ///< of each host
};
constexpr Shape kShapes[] = {{8, 8}, {64, 8}, {128, 8}, {273, 8}, {567, 1}};

/// Each tells waits for some, as those do who own a part of the sum.
std::vector<sentinel::Pace> paces_of(int ranks) {
  std::vector<sentinel::Pace> paces;
  for (int rank = 0; rank < ranks; ++rank) {
    sentinel::Pace pace;
    pace.epoch = 1;
    pace.rank = rank;
    pace.whole = std::chrono::milliseconds(200);
    pace.waits_for_all = true;
    pace.usual_wait = std::chrono::milliseconds(2);
    for (int i = 1; i <= static_cast<int>(sentinel::kMostWaits) && i < ranks; ++i) {
      pace.waits.push_back({(rank + i * 7) % ranks, std::chrono::milliseconds(2 + i)});
    }
    std::sort(pace.waits.begin(), pace.waits.end(),
              [](const auto& a, const auto& b) { return a.rank < b.rank; });
    paces.push_back(std::move(pace));
  }
  return paces;
}

double median_ms(const Shape& shape) {
  const std::vector<sentinel::Pace> paces = paces_of(shape.hosts * shape.processes);
  std::vector<int> host_of;
  for (const sentinel::Pace& pace : paces) host_of.push_back(pace.rank / shape.processes);
  const SystemClock clock;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const MonoTime start = clock.mono_now();
    if (sentinel::judge_paces(paces, host_of).size() != paces.size()) std::abort();
    times.push_back(std::chrono::duration<double, std::milli>(clock.mono_now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main() {
  std::printf("| workers | processes of each | a verdict, ms |\n|---|---|---|\n");
  for (const Shape& shape : kShapes) {
    std::printf("| %d | %d | %.2f |\n", shape.hosts, shape.processes, median_ms(shape));
  }
}
