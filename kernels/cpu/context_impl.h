// The fork-join pool behind Context, and the scratch memory that operations share.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

#include "kernels/ops.h"

namespace muster::kernels::cpu {

/// Memory aligned to a cache line that grows and never shrinks; contents are lost when it grows.
class Scratch {
 public:
  /// At least `count` floats, uninitialised.
  float* reserve(std::size_t count);

 private:
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::unique_ptr<float[], Free> memory_;
  std::size_t count_ = 0;
};

/// Runs task(state, index, thread) for every index below `tasks`, on the caller and the pool.
/// Which thread runs which index is unspecified, so tasks must write disjoint results.
/// thread is below context.threads(). Tells that the caller is alive after each task that it has
/// run: of an operation that takes long the tasks are short. Tasks run no operation of `context`.
/// What one throws is thrown here, and no other is begun then. Blocks: until all that were begun
/// have ended; not for threads of the pool that come after that.
using Task = void (*)(void* state, std::size_t index, std::size_t thread);
void run_tasks(Context& context, std::size_t tasks, Task task, void* state);

template <typename Function>
void parallel_for(Context& context, std::size_t tasks, Function&& function) {
  run_tasks(
      context, tasks,
      [](void* state, std::size_t index, std::size_t thread) {
        (*static_cast<std::remove_reference_t<Function>*>(state))(index, thread);
      },
      &function);
}

/// Packed panels that all threads read; owned by the operation that runs.
Scratch& shared_scratch(Context& context);
/// Memory of one thread of the pool.
Scratch& thread_scratch(Context& context, std::size_t thread);

/// What the second cache of a processor of this machine holds: from 256 KiB to 2 MiB, 1 MiB where
/// the machine does not tell. Any thread. It decides in which order outputs are computed, never the
/// order of the sums in one.
std::size_t second_cache_floats();

/// Ends the process with a sentence: an invariant of the caller is broken.
[[noreturn]] void fail(const char* what);

}  // namespace muster::kernels::cpu
