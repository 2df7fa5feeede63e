#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

float sum(const float* values, std::size_t n) {
  const VectorTable& table = vectors();
  TreeSum blocks;
  for (std::size_t first = 0; first < n; first += kBlockElements) {
    float lanes[kLanes];
    table.block_lanes(values + first, least(n - first, kBlockElements), lanes);
    blocks.push(lane_tree(lanes));
  }
  return blocks.finish();
}

}  // namespace muster::kernels::cpu
