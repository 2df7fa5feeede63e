#include "worker/engine/divided_table.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/check.h"
#include "worker/engine/ranges.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;
using kernels::cpu::Slice;

std::vector<Slice> slices_of(const LayerShape& layer, const TensorTeam& team) {
  std::vector<Slice> slices;
  for (std::size_t i = 0; i < team.size(); ++i) {
    slices.push_back(table_slice(layer.tokens, team.size(), i));
  }
  MUSTER_CHECK(slices[team.rank()].first == layer.first_column);
  return slices;
}

std::size_t owner_of(const std::vector<Slice>& slices, std::int32_t token) {
  const auto row = static_cast<std::size_t>(token);
  const auto found = std::ranges::find_if(slices, [&](const Slice& one) { return one.has(row); });
  MUSTER_CHECK(found != slices.end());
  return static_cast<std::size_t>(found - slices.begin());
}

}  // namespace

bool divides_table(std::size_t tokens, std::size_t slices) {
  return slices > 1 && blocks_of(tokens) >= slices;
}

Slice table_slice(std::size_t tokens, std::size_t slices, std::size_t index) {
  const std::size_t blocks = blocks_of(tokens);
  const auto begin = [&](std::size_t i) {
    return std::min(tokens, blocks * i / slices * kernels::kBlockElements);
  };
  return {begin(index), begin(index + 1) - begin(index)};
}

void embed_divided(cpu::Context& context, TensorTeam& team, const LayerShape& embedding,
                   std::span<const std::int32_t> tokens, const float* values,
                   std::span<float> packed, float* y) {
  const auto slices = slices_of(embedding, team);
  const std::size_t width = embedding.out.channels;
  MUSTER_CHECK(packed.size() >= tokens.size() * width);
  std::vector<std::size_t> owners(tokens.size()), offsets(slices.size() + 1);
  std::vector<std::int32_t> own(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    owners[i] = owner_of(slices, tokens[i]);
    offsets[owners[i] + 1] += width;
    const bool is_own = owners[i] == team.rank();
    own[i] = is_own ? tokens[i] - static_cast<std::int32_t>(embedding.first_column) : 0;
  }
  for (std::size_t p = 0; p < slices.size(); ++p) offsets[p + 1] += offsets[p];
  // Of the tokens of others it makes what is overwritten below: one pass for all is simpler.
  cpu::embed(context, tokens.size(), embedding.in.pixels(), width, own.data(),
             values + embedding.weight, values + embedding.positions, y);
  std::vector<std::size_t> next(offsets.begin(), offsets.end() - 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (owners[i] != team.rank()) continue;
    std::copy_n(y + i * width, width, packed.data() + next[team.rank()]);
    next[team.rank()] += width;
  }
  team.gather(packed.first(offsets.back()), offsets);
  next.assign(offsets.begin(), offsets.end() - 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::copy_n(packed.data() + next[owners[i]], width, y + i * width);
    next[owners[i]] += width;
  }
}

void losses_of_slices(cpu::Context& context, TensorTeam& team, const LayerShape& head,
                      const DividedLosses& losses) {
  const auto slices = slices_of(head, team);
  const Slice& own = slices[team.rank()];
  const std::size_t M = losses.labels.size();
  const std::int32_t* const labels = losses.labels.data();
  std::vector<std::size_t> blocks, maxima{0}, sums{0};
  for (const Slice& one : slices) {
    blocks.push_back(blocks_of(one.count));
    maxima.push_back(maxima.back() + 2 * M);
    sums.push_back(sums.back() + (1 + blocks.back()) * M);
  }
  std::vector<float> told(maxima.back()), max(M, -HUGE_VALF), of_label(M), total(M);
  cpu::softmax_slice_max(context, M, own, labels, losses.logits, told.data() + maxima[team.rank()]);
  team.gather(told, maxima);
  for (std::size_t p = 0; p < slices.size(); ++p) {
    for (std::size_t m = 0; m < M; ++m) {
      const float* const of_row = told.data() + maxima[p] + 2 * m;
      if (of_row[0] > max[m]) max[m] = of_row[0];
    }
  }
  for (std::size_t m = 0; m < M; ++m) {
    of_label[m] = told[maxima[owner_of(slices, labels[m])] + 2 * m + 1];
  }
  const cpu::RowLogits of{max.data(), of_label.data()};
  told.resize(sums.back());
  cpu::softmax_slice_sums(context, M, own, labels, of, losses.with_gradient, losses.logits,
                          told.data() + sums[team.rank()]);
  team.gather(told, sums);
  cpu::softmax_slices_loss(M, blocks, told.data(), of, losses.loss, losses.correct, total.data());
  if (!losses.with_gradient) return;
  cpu::softmax_slice_gradient(context, M, own, labels, total.data(), losses.scale, losses.logits);
}

}  // namespace muster::engine
