#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/context_impl.h"

namespace muster::kernels::cpu {
namespace {

// Some 50 to 100 microseconds, as long as the processor's pause takes: longer than the gap between
// two operations of a layer, short enough that an idle trainer burns next to nothing.
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

// The tasks of one operation are a round. The caller opens it, closes it once no task is left to be
// begun, and waits for the threads of the pool that are inside by then; who wakes up later finds
// the gate closed, or open for a later round, and takes part in that one.
//
// Invariant: tasks, task, state and error change only while nobody of the pool is inside, but for
// an error under `mutex`; and a thread of the pool touches them, and `next`, only while it is
// inside. Why it holds:
// - The caller alone opens, and its close() ends when `inside` is kClosed again. enter() adds one
//   only to what is not negative and leave() takes away that one, so that of a closed round the
//   number only falls, to kClosed when the last one has left.
// - Who enters sees the fields of the round that is open then, whichever it was woken for: enter()
//   acquires what open() has released, for between them `inside` has met only read-modify-writes.
// - The caller sees all that tasks have done: every leave() is a release, followed by nothing but
//   read-modify-writes up to the value kClosed, which close() acquires.
// - No task is left out: the caller closes after `next` has reached `tasks`, and whoever took an
//   index leaves after its task.
// - Nobody sleeps through the end: a round is published after it was opened and `stop` after it was
//   set, each with a new number of `round`, which is what a thread waits for.
//
// Threads sleep on the two atomics themselves: no operation waits for a lock that a thread holds
// which has just been woken and has no processor. What is notified of is changed before, and both
// are sequentially consistent, so that who finds nobody asleep was seen by who falls asleep next.
// Only the caller sleeps on `inside`, and only the thread that brings kClosed wakes it.
struct Context::Impl {
  /// Of `inside` while no round is open, plus those that still are inside of the last one: below
  /// the negative of any number of threads.
  static constexpr int kClosed = -(1 << 20);

  std::mutex mutex;  // of `error`
  std::atomic<unsigned> round{0};
  std::atomic<std::size_t> next{0};
  std::atomic<int> inside{kClosed};
  std::atomic<bool> stop{false};
  std::size_t tasks = 0;
  Task task = nullptr;
  void* state = nullptr;
  std::exception_ptr error;  // the first one that a task has thrown
  Scratch shared;
  std::vector<Scratch> of_thread;
  std::vector<std::thread> threads;

  /// Runs tasks until none is left to be begun, and after_each() after each. Once one has thrown,
  /// no other is begun.
  template <typename Function>
  void run_some(std::size_t thread, Function after_each) {
    try {
      for (;;) {
        const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
        if (index >= tasks) return;
        task(state, index, thread);
        after_each();
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next.store(tasks, std::memory_order_relaxed);
    }
  }

  unsigned wait_for_round(unsigned seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (round.load(std::memory_order_acquire) != seen) return round.load();
      relax();
    }
    round.wait(seen);
    return round.load();
  }

  /// Whether a round is open.
  bool enter() {
    int now = inside.load(std::memory_order_relaxed);
    while (now >= 0) {
      if (inside.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                       std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }

  void leave() {
    if (inside.fetch_sub(1) == kClosed + 1) inside.notify_one();
  }

  void worker(std::size_t thread) {
    unsigned seen = 0;
    for (;;) {
      seen = wait_for_round(seen);
      if (stop.load(std::memory_order_acquire)) return;
      if (!enter()) continue;
      run_some(thread, [] {});
      leave();
    }
  }

  void publish() {
    round.fetch_add(1);
    round.notify_all();
  }

  void open(std::size_t count, Task function, void* of_function) {
    if (inside.load(std::memory_order_relaxed) != kClosed) {
      fail("a context's operation was begun before its last one had ended");
    }
    tasks = count;
    task = function;
    state = of_function;
    next.store(0, std::memory_order_relaxed);
    inside.store(0, std::memory_order_release);
    publish();
  }

  void close() {
    if (inside.fetch_add(kClosed, std::memory_order_acq_rel) == 0) return;
    for (int spin = 0; spin < kSpins; ++spin) {
      if (inside.load(std::memory_order_acquire) == kClosed) return;
      relax();
    }
    for (int now = inside.load(); now != kClosed; now = inside.load()) inside.wait(now);
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
  pool.open(tasks, task, state);
  pool.run_some(0, [&] { context.tell_alive(); });
  pool.close();
  if (pool.error) std::rethrow_exception(std::exchange(pool.error, nullptr));
}

void for_each_piece(Context& context, std::size_t n,
                    const std::function<void(std::size_t)>& piece) {
  parallel_for(context, n, [&](std::size_t index, std::size_t) { piece(index); });
}

Scratch& shared_scratch(Context& context) { return context.impl().shared; }

Scratch& thread_scratch(Context& context, std::size_t thread) {
  return context.impl().of_thread[thread];
}

}  // namespace muster::kernels::cpu
