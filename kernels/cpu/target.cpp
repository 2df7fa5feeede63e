#include <atomic>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

bool machine_has(Target target) {
  switch (target) {
    case Target::kScalar:
      return true;
#if defined(__x86_64__)
    case Target::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    case Target::kAvx512:
      return machine_has(Target::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw");
    case Target::kNeon:
      return false;
#else
    case Target::kAvx2:
    case Target::kAvx512:
      return false;
    case Target::kNeon:
      return true;
#endif
  }
  return false;
}

Target detect() {
  for (const Target target : {Target::kAvx512, Target::kAvx2, Target::kNeon}) {
    if (has_target(target)) return target;
  }
  return Target::kScalar;
}

std::atomic<Target>& current() {
  static std::atomic<Target> target{detect()};
  return target;
}

}  // namespace

bool has_target(Target target) { return tiles_of(target) != nullptr && machine_has(target); }

Target best_target() { return current().load(std::memory_order_relaxed); }

void force_target(Target target) {
  if (!has_target(target)) fail("this machine cannot run the forced target");
  current().store(target, std::memory_order_relaxed);
}

const char* name_of(Target target) {
  switch (target) {
    case Target::kScalar:
      return "scalar";
    case Target::kAvx2:
      return "avx2";
    case Target::kAvx512:
      return "avx512";
    case Target::kNeon:
      return "neon";
  }
  return "unknown";
}

const TileTable& tiles() { return *tiles_of(best_target()); }
const VectorTable& vectors() { return *vectors_of(best_target()); }
const LayerTable& layers() { return *layers_of(best_target()); }

}  // namespace muster::kernels::cpu
