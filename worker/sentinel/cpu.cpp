#include "worker/sentinel/cpu.h"

#include <cmath>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace muster::sentinel {

CpuBits read_cpu_bits() {
#if defined(__x86_64__)
  CpuBits bits;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) bits.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) bits.leaf7_ebx = ebx;
  if (__get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0) bits.extended1_ecx = ecx;
  if ((bits.leaf1_ecx & (1U << 27)) != 0) {  // OSXSAVE: only then xgetbv exists
    std::uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    bits.xcr0 = (std::uint64_t{high} << 32) | low;
  }
  return bits;
#else
  return CpuBits{~0U, ~0U, ~0U, ~std::uint64_t{0}};
#endif
}

std::vector<std::string> missing_cpu_features(const CpuBits& bits) {
  std::vector<std::string> missing;
  const auto need = [&missing](std::uint32_t word, int bit, const char* name) {
    if ((word >> bit & 1U) == 0) missing.emplace_back(name);
  };
  need(bits.leaf1_ecx, 28, "AVX");
  need(bits.leaf7_ebx, 5, "AVX2");
  need(bits.leaf7_ebx, 3, "BMI1");
  need(bits.leaf7_ebx, 8, "BMI2");
  need(bits.leaf1_ecx, 29, "F16C");
  need(bits.leaf1_ecx, 12, "FMA");
  need(bits.extended1_ecx, 5, "LZCNT");
  need(bits.leaf1_ecx, 22, "MOVBE");
  if ((bits.xcr0 & 6) != 6) missing.emplace_back("AVX registers saved by the system (OSXSAVE)");
  return missing;
}

std::string describe_missing_cpu_features(const std::vector<std::string>& missing) {
  if (missing.empty()) return {};
  std::string names;
  for (const auto& name : missing) names += (names.empty() ? "" : ", ") + name;
  return "this machine's processor lacks " + names +
         "; muster-worker needs x86-64-v3 (Intel since Haswell, AMD since Excavator) or AArch64";
}

std::string describe_few_processors(double limit, int threads) {
  if (limit <= 0 || std::ceil(limit) >= threads) return {};
  return "the worker's processes have " + std::to_string(threads) +
         " threads, but may use no more than " +
         std::to_string(static_cast<std::int64_t>(limit * 1000)) +
         "m of a processor together (cpu.max), so that those of a step wait for each other; lower "
         "spec.worker.threads, which each process has, or raise what limits the worker";
}

}  // namespace muster::sentinel
