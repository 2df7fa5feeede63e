// The GPUs that are known by name. Pure.
#pragma once

#include <array>
#include <string_view>

namespace muster::kernels::cuda {

struct KnownDevice {
  std::string_view part;  ///< of the name that CUDA gives
  double
      teraflops;  ///< multiplications and additions of bfloat16 on tensor cores, without sparsity
};

/// The first that fits counts. Source: NVIDIA's data sheets.
inline constexpr std::array kKnownDevices{
    KnownDevice{"H100 PCIe", 756}, KnownDevice{"H100 NVL", 835}, KnownDevice{"H200 NVL", 835},
    KnownDevice{"H100", 989}, KnownDevice{"H200", 989}};

/// A second; 0: of a device that is not known, or of which this is a part (MIG).
constexpr double peak_flops(std::string_view name) {
  if (name.find(" MIG ") != std::string_view::npos) return 0;
  for (const KnownDevice& known : kKnownDevices) {
    if (name.find(known.part) != std::string_view::npos) return 1e12 * known.teraflops;
  }
  return 0;
}

}  // namespace muster::kernels::cuda
