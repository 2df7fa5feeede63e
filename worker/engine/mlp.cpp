#include "worker/engine/mlp.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/rng.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

}  // namespace

std::vector<MlpShape::Tensor> MlpShape::tensors() const {
  std::vector<Tensor> tensors;
  std::size_t offset = 0;
  for (std::size_t l = 0; l < layers(); ++l) {
    const std::string name = "layers." + std::to_string(l);
    const std::size_t weights = widths[l] * widths[l + 1];
    tensors.push_back({name + ".weight", {widths[l], widths[l + 1]}, offset, weights});
    offset += weights;
    tensors.push_back({name + ".bias", {widths[l + 1]}, offset, widths[l + 1]});
    offset += widths[l + 1];
  }
  return tensors;
}

std::size_t MlpShape::parameters() const {
  std::size_t count = 0;
  for (std::size_t l = 0; l < layers(); ++l) count += (widths[l] + 1) * widths[l + 1];
  return count;
}

void initialise(const MlpShape& shape, std::uint64_t seed, std::span<float> parameters) {
  MUSTER_CHECK(parameters.size() == shape.parameters());
  std::fill(parameters.begin(), parameters.end(), 0.0f);
  const auto tensors = shape.tensors();
  for (std::size_t t = 0; t < tensors.size(); t += 2) {
    const auto& weight = tensors[t];
    const float bound = std::sqrt(6.0f / static_cast<float>(weight.shape[0]));
    for (std::size_t i = 0; i < weight.size; ++i) {
      const float unit = random_unit(seed, RngStream::kInit, static_cast<std::uint32_t>(t), i);
      // 2u - 1 is exact: u is a multiple of 2^-24.
      parameters[weight.offset + i] = (2.0f * unit - 1.0f) * bound;
    }
  }
}

Mlp::Mlp(MlpShape shape, std::size_t rows_max, cpu::Context& context)
    : shape_(std::move(shape)),
      rows_max_(rows_max),
      context_(context),
      tensors_(shape_.tensors()),
      labels_(rows_max),
      loss_(rows_max),
      correct_(rows_max) {
  MUSTER_CHECK(shape_.widths.size() >= 2 && rows_max > 0);
  const std::size_t layers = shape_.layers();
  std::size_t widest[2] = {0, 0};
  for (std::size_t l = 1; l < layers; ++l) {
    widest[l % 2] = std::max(widest[l % 2], shape_.widths[l]);
  }
  std::size_t width = widest[0] + widest[1];
  for (const std::size_t w : shape_.widths) width += w;
  arena_.resize(width * rows_max);
  float* next = arena_.data();
  const auto take = [&](std::size_t columns) {
    const std::span<float> part(next, columns * rows_max);
    next += part.size();
    return part;
  };
  for (const std::size_t w : shape_.widths) activations_.push_back(take(w));
  gradients_[0] = take(widest[0]);
  gradients_[1] = take(widest[1]);
}

void Mlp::forward(std::span<const float> parameters, std::size_t rows) {
  MUSTER_CHECK(rows <= rows_max_ && parameters.size() == shape_.parameters());
  const std::size_t layers = shape_.layers();
  for (std::size_t l = 0; l < layers; ++l) {
    cpu::linear_forward(context_, rows, shape_.widths[l + 1], shape_.widths[l],
                        activations_[l].data(), parameters.data() + tensors_[2 * l].offset,
                        parameters.data() + tensors_[2 * l + 1].offset,
                        l + 1 < layers ? kernels::Activation::kRelu : kernels::Activation::kNone,
                        activations_[l + 1].data());
  }
}

void Mlp::losses_with_gradient(std::size_t rows, float scale) {
  cpu::softmax_cross_entropy(context_, rows, shape_.widths.back(), labels_.data(), scale, true,
                             activations_.back().data(), loss_.data(), correct_.data());
}

void Mlp::losses(std::size_t rows) {
  cpu::softmax_cross_entropy(context_, rows, shape_.widths.back(), labels_.data(), 1.0f, false,
                             activations_.back().data(), loss_.data(), correct_.data());
}

void Mlp::backward(std::span<const float> parameters, std::size_t rows, std::size_t rows_per_rank,
                   std::span<const Node> nodes) {
  const float* dy = activations_.back().data();
  for (std::size_t l = shape_.layers(); l-- > 0;) {
    const std::size_t in = shape_.widths[l];
    const std::size_t out = shape_.widths[l + 1];
    for (const Node& node : nodes) {
      cpu::linear_backward_weights(
          context_, node.ranks, rows_per_rank, out, in,
          activations_[l].data() + node.first_row * in, dy + node.first_row * out,
          node.gradient + tensors_[2 * l].offset, node.gradient + tensors_[2 * l + 1].offset);
    }
    if (l == 0) break;
    float* dx = gradients_[l % 2].data();
    cpu::linear_backward_input(context_, rows, out, in, dy,
                               parameters.data() + tensors_[2 * l].offset, activations_[l].data(),
                               dx);
    dy = dx;
  }
}

}  // namespace muster::engine
