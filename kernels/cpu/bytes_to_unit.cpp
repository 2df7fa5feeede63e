#include "kernels/ops.h"

namespace muster::kernels::cpu {

void bytes_to_unit(const std::uint8_t* bytes, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(bytes[i]) / 255.0F;
}

}  // namespace muster::kernels::cpu
