#include "kernels/cpu/context_impl.h"

#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "doctest/doctest.h"
#include "tests/few_threads.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

constexpr int kHeldMost = 1'000;  // milliseconds
std::atomic<bool> is_held{false}, is_let_go{false};

/// A signal's handler that keeps its thread where it is, until it is let go.
void hold(int) {
  const int error = errno;
  is_held = true;
  for (int i = 0; i < kHeldMost && !is_let_go; ++i) poll(nullptr, 0, 1);
  is_held = false;
  errno = error;
}

/// Of a context with two threads the one of the pool.
pthread_t thread_of_pool(cpu::Context& context) {
  pthread_t thread{};
  std::atomic<int> begun{0};
  cpu::parallel_for(context, 2, [&](std::size_t, std::size_t by) {
    if (by == 1) thread = pthread_self();
    ++begun;
    while (begun < 2) std::this_thread::yield();  // so that each has one
  });
  return thread;
}

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

TEST_CASE("an operation waits for no thread that comes when all tasks are done") {
  cpu::Context context(2);
  if (context.threads() < 2) return;
  const pthread_t thread = thread_of_pool(context);
  const auto before = std::signal(SIGUSR1, hold);
  // Wherever it is held: it sleeps, or is about to, or has just been woken.
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it sleeps by then
    is_let_go = false;
    REQUIRE(pthread_kill(thread, SIGUSR1) == 0);
    for (int i = 0; i < kHeldMost && !is_held; ++i) poll(nullptr, 0, 1);
    std::atomic<int> runs{0};
    cpu::parallel_for(context, 2, [&](std::size_t, std::size_t) { ++runs; });
    CHECK(runs == 2);
    CHECK(is_held);
    is_let_go = true;
    while (is_held) std::this_thread::yield();
  }
  static_cast<void>(thread_of_pool(context));  // and then it takes part again
  std::signal(SIGUSR1, before);
}

TEST_CASE("tasks are those of the operation under way, whenever a thread comes, and all are done") {
  for (const int threads : {2, 3, 5}) {
    cpu::Context context(threads);
    bool is_right = true;
    for (int round = 0; round < 3000; ++round) {
      // No atomics: who comes late, or ends late, is seen by the thread sanitizer.
      std::vector<int> made(2 + static_cast<std::size_t>(round) % 5, -1);
      cpu::parallel_for(context, made.size(),
                        [&made, round](std::size_t index, std::size_t) { made[index] = round; });
      is_right = is_right && std::count(made.begin(), made.end(), round) ==
                                 static_cast<std::ptrdiff_t>(made.size());
    }
    CHECK(is_right);
  }
}

TEST_CASE("what a task has thrown comes out of its operation, and the context works on") {
  constexpr int kTasks = 5'000;  // some seconds of them
  for (const int threads : {1, 2, 4}) {
    cpu::Context context(threads);
    for (const bool by_caller : {true, false}) {
      if (!by_caller && context.threads() < 2) continue;
      CAPTURE(threads);
      CAPTURE(by_caller);
      std::atomic<int> begun{0}, ended{0};
      std::atomic<bool> has_thrown{false};
      const int others = context.threads() - 1;
      const auto operation = [&] {
        cpu::parallel_for(context, kTasks, [&](std::size_t, std::size_t thread) {
          ++begun;
          if ((thread == 0) == by_caller) {
            // By the caller when all others are at work, by one of those while the caller is.
            while (begun < (by_caller ? 1 + others : 2)) std::this_thread::yield();
            has_thrown = true;
            throw std::runtime_error("no memory for a task");
          }
          while (!has_thrown) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          ++ended;
        });
      };
      CHECK_THROWS_WITH_AS(operation(), "no memory for a task", std::runtime_error);
      CHECK(begun < kTasks);
      if (by_caller) CHECK(ended == begun - 1);

      std::array<std::atomic<int>, 50> runs{};
      cpu::parallel_for(context, runs.size(),
                        [&](std::size_t index, std::size_t) { runs[index].fetch_add(1); });
      for (const auto& count : runs) CHECK(count == 1);
    }
  }
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
