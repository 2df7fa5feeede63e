#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/cpu/context_impl.h"

namespace muster::kernels::cpu {
namespace {

// About five microseconds: longer than the gap between two operations of a layer, short enough
// that an idle trainer burns nothing.
constexpr int kSpins = 2000;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void fail(const char* what) {
  std::fprintf(stderr, "kernels: %s\n", what);
  std::abort();
}

std::size_t second_cache_floats() {
  static const std::size_t floats = [] {
    constexpr long kLeast = 256 << 10, kUnknown = 1 << 20, kMost = 2 << 20;
    const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const long used = bytes <= 0 ? kUnknown : std::clamp(bytes, kLeast, kMost);
    return static_cast<std::size_t>(used) / sizeof(float);
  }();
  return floats;
}

float* Scratch::reserve(std::size_t count) {
  if (count > count_) {
    memory_.reset();
    count_ = 0;
    memory_.reset(
        static_cast<float*>(::operator new[](count * sizeof(float), std::align_val_t{64})));
    count_ = count;
  }
  return memory_.get();
}

// `mutex` guards round, stop and sleeping decisions; `next`, `open` and the published round are
// atomics so that a worker can spin without the lock. A round's fields are written before `round`
// is published and read only between that and the decrement of `open`.
struct Context::Impl {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable done;
  std::atomic<unsigned> round{0};
  std::atomic<std::size_t> next{0};
  std::atomic<int> open{0};
  std::atomic<bool> stop{false};
  std::size_t tasks = 0;
  Task task = nullptr;
  void* state = nullptr;
  Scratch shared;
  std::vector<Scratch> of_thread;
  std::vector<std::thread> threads;

  /// Whether a task was left to be run.
  bool run_one(std::size_t thread) {
    const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
    if (index >= tasks) return false;
    task(state, index, thread);
    return true;
  }

  unsigned wait_for_round(unsigned seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (round.load(std::memory_order_acquire) != seen) return round.load();
      relax();
    }
    std::unique_lock lock(mutex);
    work.wait(lock, [&] { return round.load(std::memory_order_acquire) != seen; });
    return round.load();
  }

  void worker(std::size_t thread) {
    unsigned seen = 0;
    for (;;) {
      seen = wait_for_round(seen);
      if (stop.load(std::memory_order_acquire)) return;
      while (run_one(thread)) {
      }
      if (open.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        // The lock orders this against the caller that is about to sleep.
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void publish() {
    {
      const std::lock_guard lock(mutex);
      round.fetch_add(1, std::memory_order_release);
    }
    work.notify_all();
  }

  void wait_until_done() {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (open.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return open.load(std::memory_order_acquire) == 0; });
  }
};

Context::Context(int threads, Products products)
    : kernels::Context(products), impl_(std::make_unique<Impl>()) {
  if (threads < 1) fail("a Context needs at least one thread");
  impl_->of_thread.resize(static_cast<std::size_t>(threads));
  try {
    for (int thread = 1; thread < threads; ++thread) {
      impl_->threads.emplace_back(&Impl::worker, impl_.get(), static_cast<std::size_t>(thread));
    }
  } catch (const std::exception&) {
    // The system gives no more of them: those that there are do all of the work.
    impl_->of_thread.resize(impl_->threads.size() + 1);
  }
}

Context::~Context() {
  impl_->stop.store(true, std::memory_order_release);
  impl_->publish();
  for (auto& thread : impl_->threads) thread.join();
}

void* Context::allocate(std::size_t bytes) { return ::operator new(bytes, std::align_val_t{64}); }

void Context::release(void* memory) { ::operator delete(memory, std::align_val_t{64}); }

void Context::zero(void* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

void Context::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memmove(to, from, bytes);
}

bool Context::fetch(std::uint64_t, void* to, const void* from, std::size_t bytes) {
  copy(to, from, bytes);
  return true;
}

int Context::threads() const { return static_cast<int>(impl_->of_thread.size()); }

void run_tasks(Context& context, std::size_t tasks, Task task, void* state) {
  Context::Impl& pool = context.impl();
  if (pool.threads.empty() || tasks <= 1) {
    for (std::size_t index = 0; index < tasks; ++index) {
      task(state, index, 0);
      context.tell_alive();
    }
    return;
  }
  pool.tasks = tasks;
  pool.task = task;
  pool.state = state;
  pool.next.store(0, std::memory_order_relaxed);
  pool.open.store(static_cast<int>(pool.threads.size()), std::memory_order_relaxed);
  pool.publish();
  while (pool.run_one(0)) context.tell_alive();
  pool.wait_until_done();
}

Scratch& shared_scratch(Context& context) { return context.impl().shared; }

Scratch& thread_scratch(Context& context, std::size_t thread) {
  return context.impl().of_thread[thread];
}

}  // namespace muster::kernels::cpu
