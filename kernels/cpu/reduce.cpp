#include <algorithm>

#include "kernels/cpu/pieces.h"
#include "kernels/cpu/row_sum.h"
#include "kernels/cpu/table.h"
#include "kernels/running_sum.h"

namespace muster::kernels::cpu {

float sum(const float* values, std::size_t n) {
  const VectorTable& table = vectors();
  return row_sum(n, [&](std::size_t first, std::size_t size, float* lanes) {
    table.block_lanes(values + first, size, lanes);
  });
}

void RunningSum::add(std::span<const float> values) {
  while (!values.empty()) {
    const std::size_t taken = least(values.size(), kBlockElements - held_);
    std::copy_n(values.data(), taken, block_.data() + held_);
    values = values.subspan(taken);
    held_ += taken;
    if (held_ < kBlockElements) return;
    blocks_.push(sum(block_.data(), held_));
    held_ = 0;
  }
}

float RunningSum::value() const {
  TreeSum all = blocks_;
  if (held_ > 0) all.push(sum(block_.data(), held_));
  return all.finish();
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
