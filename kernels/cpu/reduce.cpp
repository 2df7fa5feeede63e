#include "kernels/cpu/pieces.h"
#include "kernels/cpu/row_sum.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

float sum(const float* values, std::size_t n) {
  const VectorTable& table = vectors();
  return row_sum(n, [&](std::size_t first, std::size_t size, float* lanes) {
    table.block_lanes(values + first, size, lanes);
  });
}

void block_squares(Context& context, std::size_t n, const float* values, float* out) {
  constexpr std::size_t kTaskBlocks = 16;
  const VectorTable& table = vectors();
  const std::size_t blocks = (n + kBlockElements - 1) / kBlockElements;
  parallel_rows(context, blocks, kBlockElements, kTaskBlocks * kBlockElements,
                [&](std::size_t block) {
                  const std::size_t first = block * kBlockElements;
                  float lanes[kLanes];
                  table.square_lanes(values + first, least(n - first, kBlockElements), lanes);
                  out[block] = lane_tree(lanes);
                });
}

float tree_sum(const float* values, std::size_t n) {
  TreeSum tree;
  for (std::size_t i = 0; i < n; ++i) tree.push(values[i]);
  return tree.finish();
}

}  // namespace muster::kernels::cpu
