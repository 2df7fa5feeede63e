#include "kernels/cpu/context_impl.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <string_view>

#include "doctest/doctest.h"
#include "tests/few_threads.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

TEST_CASE("every task runs exactly once, whatever the number of threads") {
  for (const int threads : {1, 2, 3, 5}) {
    cpu::Context context(threads);
    CHECK(context.threads() == threads);
    for (int round = 0; round < 300; ++round) {
      const auto tasks = static_cast<std::size_t>(round % 17);
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<bool> in_range{true};
      cpu::parallel_for(context, tasks, [&](std::size_t index, std::size_t thread) {
        runs[index].fetch_add(1);
        if (thread >= static_cast<std::size_t>(threads)) in_range = false;
      });
      for (const auto& count : runs) CHECK(count.load() == 1);
      CHECK(in_range.load());
    }
  }
}

TEST_CASE("the caller of a long operation is seen to live while it is computed") {
  int signs = 0;
  cpu::Context alone(1);
  alone.set_on_alive([&] { ++signs; });
  const std::size_t M = 64, N = 512, K = 512;
  const std::vector<float> x(M * K, 1.0F), w(K * N, 1.0F);
  std::vector<float> y(M * N);
  cpu::linear_forward(alone, M, N, K, x.data(), w.data(), nullptr, kernels::Activation::kNone,
                      y.data());
  CHECK(signs > 1);

  signs = 0;
  cpu::Context several(3);
  several.set_on_alive([&] { ++signs; });  // by the calling thread alone
  std::atomic<int> by_caller{0};
  cpu::parallel_for(several, 100, [&](std::size_t, std::size_t thread) {
    if (thread == 0) ++by_caller;
    while (by_caller < 50) {
      if (thread == 0) break;
    }
  });
  CHECK(signs == by_caller);
}

TEST_CASE("a context that never worked ends at once") {
  for (int i = 0; i < 50; ++i) const cpu::Context context(4);
}

TEST_CASE("every task runs once with as many threads as the system gives") {
  for (const rlim_t given : {0, 1}) {
    CAPTURE(given);
    CHECK(with_few_threads(given, [&] {
      cpu::Context context(4);
      std::array<std::atomic<int>, 50> runs{};
      std::atomic<bool> in_range{true};
      cpu::parallel_for(context, runs.size(), [&](std::size_t index, std::size_t thread) {
        runs[index].fetch_add(1);
        if (thread >= static_cast<std::size_t>(context.threads())) in_range = false;
      });
      for (const auto& count : runs) in_range = in_range && count == 1;
      return in_range && context.threads() <= static_cast<int>(given) + 1;
    }));
  }
}

TEST_CASE("the scalar path is always there and targets have names") {
  CHECK(cpu::has_target(cpu::Target::kScalar));
  CHECK(std::string_view(cpu::name_of(cpu::Target::kScalar)) == "scalar");
  for (const cpu::Target target : targets()) {
    std::printf("tested target: %s\n", cpu::name_of(target));
    const Forced forced(target);
    CHECK(cpu::best_target() == target);
  }
}

}  // namespace
}  // namespace muster::test
