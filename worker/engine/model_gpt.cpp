// The layers of a transformer: what a chain of them computes of sequences of tokens.
//
// The stream that runs past the branches is added to by each branch's last projection. On the way
// back its gradient stays in one place: a branch reads it there at its end, and the normalisation
// at the branch's beginning adds what the branch has made of it.
#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "worker/engine/divided_table.h"
#include "worker/engine/model.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

/// What scores are multiplied by, so that they do not grow with the width of a head.
float score_scale(const cpu::AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.D));
}

}  // namespace

/// All rows; where weights are dropped each node's, since rows of different nodes need not follow
/// each other in the batch.
std::vector<Model::Attended> Model::attended(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const cpu::AttentionShape shape{pass.rows, layer.in.pixels(), layer.heads,
                                  layer.out.channels / layer.heads};
  if (!(layer.dropout > 0) || pass.batch == nullptr) return {{shape, {}}};
  std::vector<Attended> all;
  for (const Node& node : pass.batch->nodes) {
    const std::size_t first_row = node.first_rank * pass.batch->rows_per_rank;
    const cpu::WeightDrop drop{dropout_key(pass), layer.first_column,
                               static_cast<std::uint32_t>(first_row), layer.dropout,
                               1.0f / (1.0f - layer.dropout)};
    all.push_back({shape, drop, node.first_row});
    all.back().shape.rows = node.ranks * pass.batch->rows_per_rank;
  }
  return all;
}

void Model::attend(const Pass& pass) {
  for (const Attended& of : attended(pass)) {
    const std::size_t heads = of.first_row * of.shape.heads * of.shape.T;
    on_.attention(context_, of.shape, pass.x + of.first_row * pass.layer.in.size(),
                  score_scale(of.shape), of.drop, pass.y + of.first_row * pass.layer.out.size(),
                  pass.kept.greatest.data() + heads, pass.kept.total.data() + heads);
  }
}

void Model::attend_back(const Pass& pass, const float* dy, float* dx) {
  for (const Attended& of : attended(pass)) {
    const std::size_t heads = of.first_row * of.shape.heads * of.shape.T;
    on_.attention_backward(
        context_, of.shape, pass.x + of.first_row * pass.layer.in.size(), score_scale(of.shape),
        of.drop, pass.kept.greatest.data() + heads, pass.kept.total.data() + heads,
        dy + of.first_row * pass.layer.out.size(), dx + of.first_row * pass.layer.in.size());
  }
}

void Model::run_gpt(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = pass.rows * layer.in.pixels();
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      if (shape_.has_divided_table()) {
        return embed_divided(host(), *pass.team, layer, tokens_.span().first(positions),
                             pass.values, gradients_[0], pass.y);
      }
      on_.embed(context_, positions, layer.in.pixels(), layer.out.channels, tokens_.data(),
                pass.values + layer.weight, pass.values + layer.positions, pass.y);
      return;
    case LayerKind::kLayerNorm:
      on_.layer_norm(context_, positions, layer.in.channels, pass.x, pass.values + layer.weight,
                     pass.values + layer.bias, kEpsilon, pass.kept.mean.data(),
                     pass.kept.inverse.data(), pass.y);
      return;
    case LayerKind::kProjection:
      project(pass);
      return;
    case LayerKind::kGelu:
      on_.gelu(context_, positions * layer.in.channels, pass.x, pass.y);
      return;
    case LayerKind::kAttention:
      attend(pass);
      return;
    default:
      MUSTER_CHECK_MSG(false, "not a layer of a transformer");
  }
}

void Model::project(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  if (!layer.adds) return multiply(pass, kernels::Activation::kNone);
  Pass made = pass;
  // Where the stream is in one place, what is added to it is made beside it.
  if (divides_stream()) made.y = gradients_[1].data();
  multiply(made, kernels::Activation::kNone);
  if (layer.dropout > 0 && pass.batch != nullptr) drop(pass, made.y);
  on_.add(context_, pass.rows * layer.out.size(), borders_[*layer.adds].data(), made.y, pass.y);
}

/// Of what the branch is to read, where it is divided: those of this process.
void Model::keep_rows(std::size_t branch, const Rows& rows) {
  const LayerShape& layer = shape_.layers()[branch];
  const std::span<float> kept = kept_[branch].rows;
  if (kept.empty() || rows.batch == nullptr) return;
  const auto own =
      rows.team->own_rows(borders_[branch].first(rows.count * layer.in.size()), layer.in.channels);
  MUSTER_CHECK(own.size() <= kept.size());
  context_.copy(kept.data(), own.data(), own.size_bytes());
}

/// To where the branch has read them: those that all processes have kept.
void Model::gather_rows(std::size_t branch, const Rows& rows) {
  const LayerShape& layer = shape_.layers()[branch];
  const std::span<float> kept = kept_[branch].rows;
  if (kept.empty()) return;
  const std::span<float> all = borders_[branch].first(rows.count * layer.in.size());
  const auto own = rows.team->own_rows(all, layer.in.channels);
  context_.copy(own.data(), kept.data(), own.size_bytes());
  rows.team->gather_rows(all, layer.in.channels);
}

/// Puts the gradient of the layer's input to dx, or where it belongs instead, and returns its
/// place.
float* Model::back_gpt(const Pass& pass, const float* dy, float* dx) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = pass.rows * layer.in.pixels();
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      embedding_back(pass, dy);
      return nullptr;
    case LayerKind::kLayerNorm:
      layer_norm_weights_back(pass, dy);
      on_.layer_norm_backward_input(context_, positions, layer.in.channels, pass.x,
                                    pass.kept.mean.data(), pass.kept.inverse.data(),
                                    pass.values + layer.weight, dy,
                                    layer.is_branch ? stream_.data() : nullptr, stream_.data());
      return stream_.data();
    case LayerKind::kProjection:
      if (layer.dropout > 0) dy = dropped_gradient(pass, dy);
      projection_weights_back(pass, dy);
      multiply_back(pass, dy, nullptr, dx);
      return dx;
    case LayerKind::kGelu:
      on_.gelu_backward(context_, positions * layer.in.channels, pass.x, dy, dx);
      return dx;
    case LayerKind::kAttention:
      attend_back(pass, dy, dx);
      return dx;
    default:
      MUSTER_CHECK_MSG(false, "not a layer of a transformer");
  }
  return nullptr;
}

/// Of a branch's last projection, which drops a part of what it adds: the stream's gradient goes on
/// past the branch, so that this is a copy of it.
const float* Model::dropped_gradient(const Pass& pass, const float* dy) {
  MUSTER_CHECK(dy == stream_.data());
  float* const own = gradients_[1].data();  // the gradient of its input goes to the other one
  context_.copy(own, dy, pass.rows * pass.layer.out.size() * sizeof(float));
  drop(pass, own);
  return own;
}

void Model::projection_weights_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = layer.in.pixels();
  for (const Node& node : pass.batch->nodes) {
    const std::size_t at = node.first_row * positions;
    on_.linear_backward_weights(context_, node.ranks, pass.batch->rows_per_rank * positions,
                                layer.out.channels, layer.in.channels,
                                pass.x + at * layer.in.channels, dy + at * layer.out.channels,
                                node.gradient + layer.weight, node.gradient + layer.bias);
  }
}

void Model::layer_norm_weights_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t channels = layer.in.channels;
  for (const Node& node : pass.batch->nodes) {
    const std::size_t at = node.first_row * layer.in.pixels();
    on_.layer_norm_backward_weights(
        context_, node.ranks, pass.batch->rows_per_rank * layer.in.pixels(), channels,
        pass.x + at * channels, pass.kept.mean.data() + at, pass.kept.inverse.data() + at,
        dy + at * channels, node.gradient + layer.weight, node.gradient + layer.bias);
  }
}

std::size_t Model::table_size() const {
  const LayerShape& head = shape_.layers().back();
  return head.in.channels * head.out.channels;
}

/// The gradient of the table that one logical rank makes.
float* Model::table_of(const Batch& batch, std::size_t node, std::size_t rank) {
  if (!batch.tables.empty()) {
    std::size_t place = rank;
    for (const Node& before : batch.nodes.first(node)) place += before.ranks;
    return batch.tables.data() + place * table_size();
  }
  if (rank == 0) return batch.nodes[node].gradient + shape_.layers().back().weight;
  std::size_t place = rank - 1;
  for (const Node& before : batch.nodes.first(node)) place += before.ranks - 1;
  return tables_.data() + place * table_size();
}

const float* Model::head_input(std::size_t position) const {
  return borders_[borders_.size() - 2].data() + position * shape_.layers().back().in.channels;
}

/// Logits of some positions: x table^T.
void Model::make_logits(std::size_t first, std::size_t positions) {
  const LayerShape& head = shape_.layers().back();
  on_.linear_backward_input(context_, positions, head.in.channels, head.out.channels,
                            head_input(first), values_ + head.weight, nullptr, head_logits_.data());
}

void Model::losses_at(const LossOf& of, TensorTeam* team) {
  float *const loss = loss_.data() + of.first, *const correct = correct_.data() + of.first;
  if (shape_.has_divided_table()) {
    return losses_of_slices(host(), *team, shape_.layers().back(),
                            {labels_.span().subspan(of.first, of.positions), of.scale,
                             of.with_gradient, head_logits_.data(), loss, correct});
  }
  on_.softmax_cross_entropy(context_, of.positions, shape_.output().channels,
                            labels_.data() + of.first, of.scale, of.with_gradient,
                            head_logits_.data(), loss, correct);
}

/// The gradient of the head's input, of some positions: its chains go over all tokens, through all
/// who have some.
void Model::head_input_back(TensorTeam* team, std::size_t first, std::size_t positions) {
  const LayerShape& head = shape_.layers().back();
  const std::size_t width = head.in.channels, tokens = head.out.channels;
  const float* const table = values_ + head.weight;
  float* const dx = gradients_[0].data() + first * width;
  if (!shape_.has_divided_table()) {
    return on_.linear_forward(context_, positions, width, tokens, head_logits_.data(), table,
                              nullptr, kernels::Activation::kNone, dx);
  }
  team->make({dx, positions, width}, [&](const TensorTeam::Part& part) {
    cpu::linear_forward_part(host(), part.rows, width, tokens, {0, tokens, part.goes_on},
                             head_logits_.data() + part.first_row * tokens, table, nullptr,
                             kernels::Activation::kNone, dx + part.first_row * width);
  });
}

/// The head, the losses and the head's gradients, rank by rank.
void Model::head_losses(const Batch& batch, float scale) {
  std::size_t ranks = 0;
  for (const Node& node : batch.nodes) ranks += node.ranks - 1;
  if (!batch.tables.empty()) ranks = 0;
  if (tables_.size() < ranks * table_size()) {
    tables_ = {};  // not both at once
    tables_ = {context_, ranks * table_size()};
  }
  const std::size_t of_rank = batch.rows_per_rank * positions();
  for (std::size_t n = 0; n < batch.nodes.size(); ++n) {
    const Node& node = batch.nodes[n];
    for (std::size_t rank = 0; rank < node.ranks; ++rank) {
      rank_losses(
          batch, {node.first_row * positions() + rank * of_rank, of_rank, table_of(batch, n, rank)},
          scale);
    }
  }
}

/// The chains of the table's gradient go over all positions of the rank, some at a time.
void Model::rank_losses(const Batch& batch, const RankOfHead& rank, float scale) {
  const LayerShape& head = shape_.layers().back();
  const std::size_t width = head.in.channels, tokens = head.out.channels;
  const std::size_t at_once = head_positions();
  for (std::size_t done = 0; done < rank.positions; done += at_once) {
    const std::size_t at = rank.first + done, some = std::min(at_once, rank.positions - done);
    make_logits(at, some);
    losses_at({at, some, scale, true}, batch.team);
    head_input_back(batch.team, at, some);
    if (done == 0) {
      on_.linear_backward_weights(context_, 1, some, width, tokens, head_logits_.data(),
                                  head_input(at), rank.table, nullptr);
    } else {
      on_.linear_backward_weights_further(context_, some, width, tokens, head_logits_.data(),
                                          head_input(at), rank.table);
    }
    context_.keep_pace();
  }
}

void Model::embedding_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const Batch& batch = *pass.batch;
  std::vector<float*> tables;
  for (std::size_t n = 0; n < batch.nodes.size(); ++n) {
    const Node& node = batch.nodes[n];
    const std::size_t first = node.first_row * positions();
    tables.clear();
    for (std::size_t rank = 0; rank < node.ranks; ++rank) {
      tables.push_back(table_of(batch, n, rank));
    }
    finish_table(context_, layer, batch.rows_per_rank,
                 {node, tables, tokens_.data() + first, dy + first * layer.out.channels});
  }
}

void Model::finish_table(kernels::Context& context, const LayerShape& embedding,
                         std::size_t rows_per_rank, const TableParts& parts) {
  const kernels::Operations& on = context.operations();
  const std::size_t positions = embedding.out.pixels(), width = embedding.out.channels;
  const std::size_t of_rank = rows_per_rank * positions;
  const std::size_t size = embedding.positions - embedding.weight;
  const kernels::cpu::Slice own{embedding.first_column, size / width};
  const std::size_t ranks = parts.node.ranks;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::size_t at = rank * of_rank;
    on.add_token_rows(context, of_rank, width, own, parts.tokens + at, parts.dy + at * width,
                      parts.tables[rank]);
  }
  for (std::size_t half = 1; half < ranks; half *= 2) {
    for (std::size_t rank = 0; rank < ranks; rank += 2 * half) {
      on.add(context, size, parts.tables[rank], parts.tables[rank + half], parts.tables[rank]);
    }
  }
  on.position_gradient(context, ranks, rows_per_rank, positions, width, parts.dy,
                       parts.node.gradient + embedding.positions);
}

}  // namespace muster::engine
