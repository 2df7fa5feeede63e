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

void block_squares(Context& context, std::size_t n, const float* values, float* out) {
  constexpr std::size_t kTaskBlocks = 16;
  const VectorTable& table = vectors();
  const std::size_t blocks = (n + kBlockElements - 1) / kBlockElements;
  parallel_for(context, (blocks + kTaskBlocks - 1) / kTaskBlocks,
               [&](std::size_t index, std::size_t) {
                 const std::size_t end = least(blocks, (index + 1) * kTaskBlocks);
                 for (std::size_t block = index * kTaskBlocks; block < end; ++block) {
                   const std::size_t first = block * kBlockElements;
                   float lanes[kLanes];
                   table.square_lanes(values + first, least(n - first, kBlockElements), lanes);
                   out[block] = lane_tree(lanes);
                 }
               });
}

float tree_sum(const float* values, std::size_t n) {
  TreeSum tree;
  for (std::size_t i = 0; i < n; ++i) tree.push(values[i]);
  return tree.finish();
}

}  // namespace muster::kernels::cpu
