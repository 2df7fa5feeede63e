// The sum of a row whose terms are made on the way, by the reduction rule of ops.h.
#pragma once

#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

/// block_lanes(first, size, lanes) makes the lanes of the block at `first`.
template <typename BlockLanes>
float row_sum(std::size_t n, BlockLanes block_lanes) {
  TreeSum blocks;
  for (std::size_t first = 0; first < n; first += kBlockElements) {
    float lanes[kLanes];
    block_lanes(first, least(n - first, kBlockElements), lanes);
    blocks.push(lane_tree(lanes));
  }
  return blocks.finish();
}

}  // namespace muster::kernels::cpu
