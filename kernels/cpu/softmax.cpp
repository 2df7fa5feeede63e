#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in logits: enough to be worth waking a thread.
constexpr std::size_t kTaskElements = 8192;

/// Whether the label's logit is the greatest and the first such; never with a NaN in the row.
bool is_greatest(const float* logits, std::size_t n, std::size_t label) {
  const float own = logits[label];
  bool greatest = own == own;
  for (std::size_t i = 0; i < label; ++i) greatest = greatest && logits[i] < own;
  for (std::size_t i = label + 1; i < n; ++i) greatest = greatest && logits[i] <= own;
  return greatest;
}

}  // namespace

void softmax_cross_entropy(Context& context, std::size_t M, std::size_t N,
                           const std::int32_t* labels, float scale, bool gradient, float* logits,
                           float* loss, float* correct) {
  if (M == 0 || N == 0) return;
  const VectorTable& table = vectors();
  parallel_rows(context, M, N, kTaskElements, [&](std::size_t m) {
    float* row = logits + m * N;
    const auto label = static_cast<std::size_t>(labels[m]);
    if (label >= N) fail("softmax_cross_entropy: a label is not below the number of classes");
    const float max = table.row_max(row, N);
    const float own = row[label];
    correct[m] = is_greatest(row, N, label) ? 1.0F : 0.0F;
    const float total = table.exp_sum(row, N, max, gradient ? row : nullptr);
    loss[m] = (log_f32(total) + max) - own;
    if (!gradient) return;
    const float own_part = row[label] / total;
    table.divide_and_scale(row, N, total, scale);
    row[label] = (own_part - 1.0F) * scale;
  });
}

}  // namespace muster::kernels::cpu
