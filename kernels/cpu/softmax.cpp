#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in logits: enough to be worth waking a thread.
constexpr std::size_t kTaskElements = 8192;

/// Whether the label's logit `of_label` is the greatest of it and these, the first of which is
/// class `first`, and the first such; never with a NaN among them.
bool is_greatest(const float* logits, std::size_t first, std::size_t n, std::size_t label,
                 float of_label) {
  const std::size_t before = label < first ? 0 : least(n, label - first);
  bool greatest = of_label == of_label;
  for (std::size_t i = 0; i < before; ++i) greatest = greatest && logits[i] < of_label;
  for (std::size_t i = before; i < n; ++i) greatest = greatest && logits[i] <= of_label;
  return greatest;
}

float loss_of(float total, float max, float of_label) { return (log_f32(total) + max) - of_label; }

/// In place of exp(logits - max), whose sum over the whole row is `total`.
void make_gradient(const Slice& own, std::size_t label, float total, float scale, float* row) {
  const float of_label = own.has(label) ? row[label - own.first] / total : 0.0F;
  vectors().divide_and_scale(row, own.count, total, scale);
  if (own.has(label)) row[label - own.first] = (of_label - 1.0F) * scale;
}

std::size_t class_of(std::int32_t label) {
  if (label < 0) fail("softmax: a label is below 0");
  return static_cast<std::size_t>(label);
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
    correct[m] = is_greatest(row, 0, N, label, own) ? 1.0F : 0.0F;
    const float total = table.exp_sum(row, N, max, gradient ? row : nullptr);
    loss[m] = loss_of(total, max, own);
    if (gradient) make_gradient({0, N}, label, total, scale, row);
  });
}

void softmax_slice_max(Context& context, std::size_t M, const Slice& own,
                       const std::int32_t* labels, const float* logits, float* told) {
  parallel_rows(context, M, own.count, kTaskElements, [&](std::size_t m) {
    const float* row = logits + m * own.count;
    const std::size_t label = class_of(labels[m]);
    told[2 * m] = vectors().row_max(row, own.count);
    told[2 * m + 1] = own.has(label) ? row[label - own.first] : 0.0F;
  });
}

void softmax_slice_sums(Context& context, std::size_t M, const Slice& own,
                        const std::int32_t* labels, const RowLogits& of, bool gradient,
                        float* logits, float* told) {
  const VectorTable& table = vectors();
  const std::size_t blocks = (own.count + kBlockElements - 1) / kBlockElements;
  parallel_rows(context, M, own.count, kTaskElements, [&](std::size_t m) {
    float* row = logits + m * own.count;
    float* sums = told + m * (1 + blocks);
    const bool greatest = is_greatest(row, own.first, own.count, class_of(labels[m]), of.label[m]);
    *sums++ = greatest ? 1.0F : 0.0F;
    for (std::size_t first = 0; first < own.count; first += kBlockElements) {
      *sums++ = table.exp_sum(row + first, least(own.count - first, kBlockElements), of.max[m],
                              gradient ? row + first : nullptr);
    }
  });
}

void softmax_slices_loss(std::size_t M, std::span<const std::size_t> blocks, const float* told,
                         const RowLogits& of, float* loss, float* correct, float* total) {
  for (std::size_t m = 0; m < M; ++m) {
    const float* of_slice = told;
    bool greatest = true;
    TreeSum sums;
    for (const std::size_t count : blocks) {
      const float* row = of_slice + m * (1 + count);
      greatest = greatest && row[0] > 0.0F;
      for (std::size_t block = 0; block < count; ++block) sums.push(row[1 + block]);
      of_slice += M * (1 + count);
    }
    total[m] = sums.finish();
    correct[m] = greatest ? 1.0F : 0.0F;
    loss[m] = loss_of(total[m], of.max[m], of.label[m]);
  }
}

void softmax_slice_gradient(Context& context, std::size_t M, const Slice& own,
                            const std::int32_t* labels, const float* total, float scale,
                            float* logits) {
  parallel_rows(context, M, own.count, kTaskElements, [&](std::size_t m) {
    make_gradient(own, class_of(labels[m]), total[m], scale, logits + m * own.count);
  });
}

}  // namespace muster::kernels::cpu
