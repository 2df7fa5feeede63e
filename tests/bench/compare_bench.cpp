// What it costs to look whether all processes still have the same state (engine/compare.cpp): each
// reads its parameters and one buffer of the optimiser, and all tell each other the sum.
//
//   compare_bench [--steps 64]     steps between two comparisons
//
// Prints the median of a comparison among 2 and 4 threads that are connected by TCP over loopback.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include "tests/unit/engine/ranks.h"
#include "worker/engine/agreement.h"
#include "worker/engine/copies.h"

namespace {

using namespace muster;

constexpr int kRounds = 400;

struct Shape {
  const char* name;
  std::size_t parameters;
};
constexpr Shape kShapes[] = {{"64-128-10", 9'610},
                             {"784-256-10", 203'530},
                             {"784-500-500-10", 648'010},
                             {"784-1000-1000-10", 1'796'010},
                             {"784-4x2000-10", 13'596'010}};

double median_us(std::size_t parameters, int processes, bool is_exchanged) {
  std::vector<double> times;
  test::on_all_ranks_by_tcp(processes, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const std::vector<float> values(parameters, 0.5f), momentum(parameters, 0.25f);
    for (int round = 0; round < kRounds; ++round) {
      const MonoTime start = clock.mono_now();
      engine::BitSum sum;
      sum.add(values);
      sum.add(momentum);
      const std::vector<std::uint64_t> own{sum.value()};
      if (is_exchanged) {
        const auto all = engine::gather_sums(communicator, own, static_cast<std::uint64_t>(round),
                                             clock.mono_now() + seconds(30));
        if (!all) std::abort();
      } else if (own[0] == 0) {
        std::abort();  // so that it is made
      }
      if (communicator.rank() != 0) continue;
      times.push_back(std::chrono::duration<double, std::micro>(clock.mono_now() - start).count());
    }
  });
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc == 3 && std::string_view(argv[1]) == "--steps" ? std::atoi(argv[2]) : 64;
  if (steps <= 0 || (argc != 1 && argc != 3)) {
    std::fprintf(stderr, "usage: compare_bench [--steps N]\n");
    return 2;
  }
  std::printf(
      "| model | sum alone, us | 2 processes, us | 4 processes, us | a step it adds, us |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const Shape& shape : kShapes) {
    const double alone = median_us(shape.parameters, 1, false);
    const double two = median_us(shape.parameters, 2, true);
    const double four = median_us(shape.parameters, 4, true);
    std::printf("| %s | %.0f | %.0f | %.0f | %.1f |\n", shape.name, alone, two, four, two / steps);
  }
}
