#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/context_impl.h"

namespace muster::kernels::cpu {

void attention(Context& context, const AttentionShape& shape, const float* qkv, float scale,
               const WeightDrop& drop, float* y, float* greatest, float* total) {
  if (shape.T == 0 || shape.D == 0) return;
  const VectorTable& loops = vectors();
  const LayerTable& table = layers();
  Layout layout;
  const std::size_t keys_at = layout.take(packed_columns_size(shape));
  const std::size_t values_at = layout.take(packed_rows_size(shape));
  const std::size_t stride = score_stride(shape);
  const std::size_t scores_at = layout.take(kScoreRows * stride);
  const std::size_t factors_at = layout.take(factors_size(shape));
  parallel_for(context, shape.rows * shape.heads, [&](std::size_t index, std::size_t thread) {
    float* memory = thread_scratch(context, thread).reserve(layout.size);
    const Head<const float> head(shape, index, qkv);
    const Packed keys = pack_columns(shape, head.key, memory + keys_at);
    const Packed values = pack_rows(shape, head.value, memory + values_at);
    for (std::size_t begin = 0; begin < shape.T; begin += kScoreRows) {
      const ScoreBlock block{begin, least(shape.T, begin + kScoreRows), stride, memory + scores_at};
      multiply_scores(head.query, keys, block);
      for (std::size_t i = begin; i < block.end; ++i) {
        const std::size_t at = index * shape.T + i;
        greatest[at] = table.scale_and_max(block[i], i + 1, scale);
        total[at] = loops.exp_sum(block[i], i + 1, greatest[at], block[i]);
        // Times 1 changes no bit.
        loops.divide_and_scale(block[i], i + 1, total[at], 1.0F);
        if (drop.share > 0.0F) {
          draw_factors(shape, drop, index, i, memory + factors_at);
          table.keep(memory + factors_at, i + 1, block[i]);
        }
      }
      weigh_rows(block, values, output_of(shape, index, y));
    }
  });
}

}  // namespace muster::kernels::cpu
