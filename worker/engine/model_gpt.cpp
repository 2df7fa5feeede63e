// The layers of a transformer: what a chain of them computes of sequences of tokens.
//
// The stream that runs past the branches is added to by each branch's last projection. On the way
// back its gradient stays in one place: a branch reads it there at its end, and the normalisation
// at the branch's beginning adds what the branch has made of it.
#include <bit>
#include <cmath>

#include "common/check.h"
#include "worker/engine/model.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

/// What scores are multiplied by, so that they do not grow with the width of a head.
float score_scale(const cpu::AttentionShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.D));
}

}  // namespace

cpu::AttentionShape Model::attention_shape(const Pass& pass) const {
  const LayerShape& layer = pass.layer;
  return {pass.rows, layer.in.pixels(), layer.heads, layer.out.channels / layer.heads};
}

void Model::run_gpt(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = pass.rows * layer.in.pixels();
  switch (layer.kind) {
    case LayerKind::kEmbedding:
      cpu::embed(context_, positions, layer.in.pixels(), layer.out.channels, tokens_.data(),
                 pass.values + layer.weight, pass.values + layer.positions, pass.y);
      return;
    case LayerKind::kLayerNorm:
      cpu::layer_norm(context_, positions, layer.in.channels, pass.x, pass.values + layer.weight,
                      pass.values + layer.bias, kEpsilon, pass.kept.mean.data(),
                      pass.kept.inverse.data(), pass.y);
      return;
    case LayerKind::kProjection:
      project(pass);
      return;
    case LayerKind::kGelu:
      cpu::gelu(context_, positions * layer.in.channels, pass.x, pass.y);
      return;
    case LayerKind::kAttention: {
      const cpu::AttentionShape shape = attention_shape(pass);
      cpu::attention(context_, shape, pass.x, score_scale(shape), pass.y, pass.kept.greatest.data(),
                     pass.kept.total.data());
      return;
    }
    case LayerKind::kHead:
      // y = x table^T.
      cpu::linear_backward_input(context_, positions, layer.in.channels, layer.out.channels, pass.x,
                                 pass.values + shape_.layers().front().weight, nullptr, pass.y);
      return;
    default:
      MUSTER_CHECK_MSG(false, "not a layer of a transformer");
  }
}

void Model::project(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = pass.rows * layer.in.pixels();
  cpu::linear_forward(context_, positions, layer.out.channels, layer.in.channels, pass.x,
                      pass.values + layer.weight, pass.values + layer.bias,
                      kernels::Activation::kNone, pass.y);
  if (layer.adds == 0) return;
  cpu::add(context_, positions * layer.out.channels, borders_[layer.adds].data(), pass.y, pass.y);
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
      cpu::layer_norm_backward_input(context_, positions, layer.in.channels, pass.x,
                                     pass.kept.mean.data(), pass.kept.inverse.data(),
                                     pass.values + layer.weight, dy,
                                     layer.is_branch ? stream_.data() : nullptr, stream_.data());
      return stream_.data();
    case LayerKind::kProjection:
      projection_weights_back(pass, dy);
      cpu::linear_backward_input(context_, positions, layer.out.channels, layer.in.channels, dy,
                                 pass.values + layer.weight, nullptr, dx);
      return dx;
    case LayerKind::kGelu:
      cpu::gelu_backward(context_, positions * layer.in.channels, pass.x, dy, dx);
      return dx;
    case LayerKind::kAttention: {
      const cpu::AttentionShape shape = attention_shape(pass);
      cpu::attention_backward(context_, shape, pass.x, score_scale(shape),
                              pass.kept.greatest.data(), pass.kept.total.data(), dy, dx);
      return dx;
    }
    case LayerKind::kHead:
      // dx = dy table. The table's own gradient waits for the embedding's.
      cpu::linear_forward(context_, positions, layer.in.channels, layer.out.channels, dy,
                          pass.values + shape_.layers().front().weight, nullptr,
                          kernels::Activation::kNone, dx);
      return dx;
    default:
      MUSTER_CHECK_MSG(false, "not a layer of a transformer");
  }
  return nullptr;
}

void Model::projection_weights_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t positions = layer.in.pixels();
  for (const Node& node : pass.batch->nodes) {
    const std::size_t at = node.first_row * positions;
    cpu::linear_backward_weights(context_, node.ranks, pass.batch->rows_per_rank * positions,
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
    cpu::layer_norm_backward_weights(
        context_, node.ranks, pass.batch->rows_per_rank * layer.in.pixels(), channels,
        pass.x + at * channels, pass.kept.mean.data() + at, pass.kept.inverse.data() + at,
        dy + at * channels, node.gradient + layer.weight, node.gradient + layer.bias);
  }
}

void Model::embedding_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t table = layer.positions - layer.weight;
  for (const Node& node : pass.batch->nodes) {
    const auto depth = static_cast<std::size_t>(std::bit_width(node.ranks) - 1);
    if (tables_.size() < depth * table) tables_.resize(depth * table);
    table_gradient(pass, dy, node, node.gradient + layer.weight, tables_.data());
    cpu::position_gradient(context_, node.ranks, pass.batch->rows_per_rank, layer.in.pixels(),
                           layer.out.channels, dy + node.first_row * layer.out.size(),
                           node.gradient + layer.positions);
  }
}

/// Of the table that embedding and head share: of a logical rank first the head's chain, which the
/// embedding's additions go on with; then the tree. `spare` has room for a table for each level of
/// it.
void Model::table_gradient(const Pass& pass, const float* dy, const Node& node, float* out,
                           float* spare) {
  const LayerShape& layer = pass.layer;
  const std::size_t table = layer.positions - layer.weight;
  if (node.ranks == 1) {
    const std::size_t positions = pass.batch->rows_per_rank * layer.in.pixels();
    const std::size_t at = node.first_row * layer.in.pixels();
    const std::size_t width = layer.out.channels, tokens = shape_.output().channels;
    cpu::linear_backward_weights(context_, 1, positions, width, tokens,
                                 borders_.back().data() + at * tokens,
                                 borders_[borders_.size() - 2].data() + at * width, out, nullptr);
    cpu::add_token_rows(context_, positions, width, tokens_.data() + at, dy + at * width, out);
    return;
  }
  Node left = node;
  left.ranks = node.ranks / 2;
  Node right = left;
  right.first_row += left.ranks * pass.batch->rows_per_rank;
  table_gradient(pass, dy, left, out, spare);
  table_gradient(pass, dy, right, spare, spare + table);
  cpu::add(context_, table, out, spare, out);
}

}  // namespace muster::engine
