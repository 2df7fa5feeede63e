#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/row_sum.h"

namespace muster::kernels::cpu {
namespace {

/// Where a thread's memory has what a head needs.
struct Plan {
  explicit Plan(const AttentionShape& shape) : stride(score_stride(shape)) {
    for (std::size_t* at : {&query_rows, &key_rows, &gradient_rows}) {
      *at = layout.take(packed_rows_size(shape));
    }
    for (std::size_t* at : {&key_columns, &value_columns}) {
      *at = layout.take(packed_columns_size(shape));
    }
    for (std::size_t* at : {&key_slots, &value_slots}) *at = layout.take(column_slots_size(shape));
    for (std::size_t* at : {&weights, &gradients}) *at = layout.take(kScoreRows * stride);
    factors = layout.take(factors_size(shape));
  }
  Layout layout;
  std::size_t stride;
  std::size_t query_rows, key_rows, gradient_rows, key_columns, value_columns, key_slots,
      value_slots, weights, gradients, factors;
};

/// Whole tiles read what lies behind the last position; results made of it are dropped.
void clear_behind(const ScoreBlock& block, std::size_t T) {
  for (std::size_t i = 0; i < kScoreRows; ++i) {
    for (std::size_t j = T; j < block.stride; ++j) block.at[i * block.stride + j] = 0.0F;
  }
}

/// Row i: scores become w, dp becomes ds. `factors` are those of a dropout, or nullptr.
void row_gradient(std::size_t i, const SoftmaxRow& row, const float* factors, float* p, float* dp) {
  const LayerTable& table = layers();
  table.probabilities(p, i + 1, row);
  if (factors != nullptr) table.keep(factors, i + 1, dp);
  const float mean = row_sum(i + 1, [&](std::size_t first, std::size_t size, float* lanes) {
    table.product_lanes(p + first, dp + first, size, lanes);
  });
  table.score_gradient(p, i + 1, mean, row.scale, dp);
  if (factors != nullptr) table.keep(factors, i + 1, p);
}

}  // namespace

std::size_t attention_scratch_bytes(const AttentionShape& shape) {
  return Plan(shape).layout.size * sizeof(float);
}

void attention_backward(Context& context, const AttentionShape& shape, const float* qkv,
                        float scale, const WeightDrop& drop, const float* greatest,
                        const float* total, const float* dy, float* dqkv) {
  if (shape.T == 0 || shape.D == 0) return;
  const Plan plan(shape);
  parallel_for(context, shape.rows * shape.heads, [&](std::size_t index, std::size_t thread) {
    float* memory = thread_scratch(context, thread).reserve(plan.layout.size);
    const Head<const float> head(shape, index, qkv);
    const Head<float> gradient(shape, index, dqkv);
    const Rows<const float> out = output_of(shape, index, dy);
    const Packed queries = pack_rows(shape, head.query, memory + plan.query_rows);
    const Packed keys = pack_rows(shape, head.key, memory + plan.key_rows);
    const Packed gradients = pack_rows(shape, out, memory + plan.gradient_rows);
    const Packed key_columns = pack_columns(shape, head.key, memory + plan.key_columns);
    const Packed value_columns = pack_columns(shape, head.value, memory + plan.value_columns);
    float* const factors = drop.share > 0.0F ? memory + plan.factors : nullptr;
    const ColumnSums dkey{queries, gradient.key, memory + plan.key_slots};
    const ColumnSums dvalue{gradients, gradient.value, memory + plan.value_slots};
    for (std::size_t begin = 0; begin < shape.T; begin += kScoreRows) {
      const std::size_t end = least(shape.T, begin + kScoreRows);
      const ScoreBlock p{begin, end, plan.stride, memory + plan.weights};
      const ScoreBlock ds{begin, end, plan.stride, memory + plan.gradients};
      if (begin == 0) {
        clear_behind(p, shape.T);
        clear_behind(ds, shape.T);
      }
      multiply_scores(head.query, key_columns, p);
      multiply_scores(out, value_columns, ds);
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t at = index * shape.T + i;
        if (factors != nullptr) draw_factors(shape, drop, index, i, factors);
        row_gradient(i, {scale, greatest[at], total[at]}, factors, p[i], ds[i]);
      }
      weigh_rows(ds, keys, gradient.query);
      weigh_columns(ds, dkey);
      weigh_columns(p, dvalue);
    }
  });
}

}  // namespace muster::kernels::cpu
