// Four floats that are read and written at once.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::kernels::cuda {

struct alignas(16) Four {
  float at[4];
};

/// Whether rows that lie `stride` floats apart, the first at `data`, can be read as fours.
inline bool holds_fours(const float* data, std::size_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(Four) == 0 && stride % 4 == 0;
}

}  // namespace muster::kernels::cuda
