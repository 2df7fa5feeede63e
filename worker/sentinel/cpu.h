// Whether this machine can run the kernels, and as many threads at once. Built for plain x86-64, so
// that a machine that cannot gets a sentence and not an illegal instruction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster::sentinel {

/// The registers that tell x86-64-v3 (CPUID leaves 1, 7, 0x80000001; XCR0).
struct CpuBits {
  std::uint32_t leaf1_ecx = 0, leaf7_ebx = 0, extended1_ecx = 0;
  std::uint64_t xcr0 = 0;
};

/// Of this machine; all bits set on architectures where the floor is part of the base (AArch64).
CpuBits read_cpu_bits();

/// Names of the features of x86-64-v3 that are missing; empty = the machine will do.
/// Source: x86-64 psABI, micro-architecture levels.
std::vector<std::string> missing_cpu_features(const CpuBits& bits);

/// The sentence for the user; empty when nothing is missing.
std::string describe_missing_cpu_features(const std::vector<std::string>& missing);

/// Why so many threads of a worker would hinder each other where processor_limit() is `limit`, as
/// where a LimitRange or a node has lowered what the job asks for; empty where they do not.
std::string describe_few_processors(double limit, int threads);

}  // namespace muster::sentinel
