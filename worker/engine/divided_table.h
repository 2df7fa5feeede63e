// The table that a transformer's embedding shares with its head, where its rows are divided between
// the processes of a team: who has a token's row embeds it for all, and each makes the logits of
// its own rows, of which all together make the losses. The bits are those of one process.
// Source: Shoeybi et al., arXiv:1909.08053, section 3.
#pragma once

#include <cstdint>
#include <span>

#include "worker/engine/model_shape.h"
#include "worker/engine/tensor_team.h"

namespace muster::engine {

/// Whether the table is divided, in blocks of sums (kernels::kBlockElements): smaller ones each
/// process has whole.
bool divides_table(std::size_t tokens, std::size_t slices);
/// The rows of one of `slices` processes.
kernels::cpu::Slice table_slice(std::size_t tokens, std::size_t slices, std::size_t index);

/// As kernels::cpu::embed, where each process of the team has its slice of the table.
/// Blocks: on the others.  Errors: in team.status(); then y is undefined.
/// Shape: tokens (M), values (the part's), packed (M, width; lost), y (M, width).
void embed_divided(kernels::cpu::Context& context, TensorTeam& team, const LayerShape& embedding,
                   std::span<const std::int32_t> tokens, const float* values,
                   std::span<float> packed, float* y);

/// As kernels::cpu::softmax_cross_entropy, where `logits` are those of the head's slice.
/// Blocks: on the others.  Errors: in team.status(); then what is put out is undefined.
/// Shape: labels (M), logits (M, the slice), loss, correct (M).
struct DividedLosses {
  std::span<const std::int32_t> labels;
  float scale = 1;
  bool with_gradient = false;
  float *logits = nullptr, *loss = nullptr, *correct = nullptr;
};
void losses_of_slices(kernels::cpu::Context& context, TensorTeam& team, const LayerShape& head,
                      const DividedLosses& losses);

}  // namespace muster::engine
