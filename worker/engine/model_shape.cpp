#include "worker/engine/model_shape.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/contract.h"
#include "common/rng.h"
#include "worker/engine/record.h"

namespace muster::engine {
namespace {

/// Share of the newest step in running statistics.
constexpr float kRunningShare = 0.1f;

std::string text_of(const Extent& extent) {
  return std::to_string(extent.height) + " x " + std::to_string(extent.width) + " x " +
         std::to_string(extent.channels);
}

const char* name_of(LayerKind kind) {
  switch (kind) {
    case LayerKind::kLinear:
      return "linear";
    case LayerKind::kConvolution:
      return "convolution";
    case LayerKind::kBatchNorm:
      return "batch normalisation";
    case LayerKind::kMaxPool:
      return "max pooling";
    case LayerKind::kDropout:
      return "dropout";
  }
  return "";
}

Error invalid(const std::string& sentence) {
  return Error(ErrorCode::kInvalid, sentence).with_exit_code(contract::exit_code::kInvalidSpec);
}

/// Whether every stage has images that it can halve.
Status check_stages(const TrainingConfig& config, Extent image) {
  const std::string size = std::to_string(image.height) + " x " + std::to_string(image.width);
  for (std::size_t stage = 0; stage < config.cnn->channels.size(); ++stage) {
    if (image.height < 2 || image.width < 2) {
      return invalid(
          "spec.training.model.cnn.channels: has " + std::to_string(config.cnn->channels.size()) +
          " stages, each of which halves its images, but those of " + config.train.images + ", " +
          size + ", can be halved only " + std::to_string(stage) + " times; leave stages out");
    }
    image.height /= 2;
    image.width /= 2;
  }
  return {};
}

}  // namespace

LayerShape& ModelShape::add(LayerKind kind, const Extent& out) {
  LayerShape layer;
  layer.kind = kind;
  layer.in = output();
  layer.out = out;
  if (layer.has_tensors()) layer.name = named_++;
  if (!layers_.empty()) {
    const LayerShape& before = layers_.back();
    const bool passes_on = before.kind == LayerKind::kMaxPool || before.kind == LayerKind::kDropout;
    layer.reads_rectified = before.is_rectified || (passes_on && before.reads_rectified);
  }
  return layers_.emplace_back(layer);
}

std::size_t ModelShape::add_tensor(const LayerShape& layer, const char* name,
                                   std::vector<std::size_t> shape) {
  Tensor tensor;
  tensor.name = "layers." + std::to_string(layer.name) + "." + name;
  tensor.offset = parameters_;
  tensor.size = 1;
  for (const std::size_t size : shape) tensor.size *= size;
  tensor.shape = std::move(shape);
  parameters_ += tensor.size;
  return tensors_.emplace_back(std::move(tensor)).offset;
}

ModelShape& ModelShape::linear(std::size_t width, bool rectify) {
  LayerShape& layer = add(LayerKind::kLinear, {1, 1, width});
  layer.is_rectified = rectify;
  layer.has_bias = true;
  layer.weight = add_tensor(layer, "weight", {layer.in.size(), width});
  tensors_.back().is_random = true;
  tensors_.back().fan_in = layer.in.size();
  layer.bias = add_tensor(layer, "bias", {width});
  return *this;
}

void ModelShape::normalise() {
  LayerShape& layer = add(LayerKind::kBatchNorm, output());
  layer.is_rectified = true;
  layer.has_bias = true;
  layer.weight = add_tensor(layer, "weight", {layer.in.channels});
  tensors_.back().first = 1;
  layer.bias = add_tensor(layer, "bias", {layer.in.channels});
}

ModelShape& ModelShape::stage(const Convolution& convolution) {
  const Extent in = output();
  LayerShape& layer = add(LayerKind::kConvolution, {in.height, in.width, convolution.channels});
  layer.side = convolution.side;
  layer.is_rectified = layer.has_bias = !convolution.normalise;
  layer.weight = add_tensor(
      layer, "weight", {convolution.side, convolution.side, in.channels, convolution.channels});
  tensors_.back().is_random = true;
  tensors_.back().fan_in = convolution.side * convolution.side * in.channels;
  if (layer.has_bias) layer.bias = add_tensor(layer, "bias", {convolution.channels});
  if (convolution.normalise) normalise();
  add(LayerKind::kMaxPool, {in.height / 2, in.width / 2, convolution.channels});
  return *this;
}

ModelShape& ModelShape::dropout(float share) {
  if (share == 0) return *this;
  LayerShape& layer = add(LayerKind::kDropout, output());
  MUSTER_CHECK_MSG(layer.reads_rectified, "a dropout tells what it dropped by its zeros");
  layer.dropout = share;
  layer.number = dropouts_++;
  return *this;
}

ModelShape& ModelShape::finish() {
  trained_ = tensors_.size();
  const std::size_t trained_values = parameters_;
  for (LayerShape& layer : layers_) {
    if (layer.kind != LayerKind::kBatchNorm) continue;
    layer.running_mean = add_tensor(layer, "running_mean", {layer.in.channels});
    layer.running_variance = add_tensor(layer, "running_var", {layer.in.channels});
    tensors_.back().first = 1;
  }
  running_ = parameters_ - trained_values;
  parameters_ = trained_values;
  return *this;
}

ModelShape ModelShape::mlp(std::span<const std::size_t> widths, float dropout) {
  MUSTER_CHECK(widths.size() >= 2);
  ModelShape shape({1, 1, widths[0]});
  for (std::size_t l = 1; l < widths.size(); ++l) {
    if (l > 1) shape.dropout(dropout);
    shape.linear(widths[l], l + 1 < widths.size());
  }
  return shape.finish();
}

Result<ModelShape> ModelShape::of(const TrainingConfig& config, const Extent& image, int classes) {
  const auto last = static_cast<std::size_t>(classes);
  if (!config.cnn) {
    std::vector<std::size_t> widths{image.size()};
    widths.insert(widths.end(), config.mlp.hidden.begin(), config.mlp.hidden.end());
    widths.push_back(last);
    return mlp(widths, config.mlp.dropout);
  }
  MUSTER_RETURN_IF_ERROR(check_stages(config, image));
  ModelShape shape(image);
  for (const int channels : config.cnn->channels) {
    shape.stage({static_cast<std::size_t>(channels),
                 static_cast<std::size_t>(config.cnn->kernel_size), config.cnn->normalise});
  }
  for (const int width : config.cnn->hidden) {
    shape.dropout(config.cnn->dropout).linear(static_cast<std::size_t>(width), true);
  }
  return shape.dropout(config.cnn->dropout).linear(last, false).finish();
}

std::vector<std::size_t> ModelShape::layer_starts() const {
  std::vector<std::size_t> starts;
  for (const LayerShape& layer : layers_) {
    if (layer.has_tensors()) starts.push_back(layer.weight);
  }
  return starts;
}

std::vector<std::string> ModelShape::description() const {
  std::vector<std::string> lines;
  for (const LayerShape& layer : layers_) {
    std::string line = name_of(layer.kind);
    if (layer.side > 0) line += " " + std::to_string(layer.side);
    if (layer.dropout > 0) line += " " + decimal(layer.dropout);
    lines.push_back(line + ", " + text_of(layer.in) + " to " + text_of(layer.out));
  }
  return lines;
}

void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> values) {
  MUSTER_CHECK(values.size() == shape.values());
  for (std::size_t t = 0; t < shape.tensors().size(); ++t) {
    const Tensor& tensor = shape.tensors()[t];
    const auto own = values.subspan(tensor.offset, tensor.size);
    std::fill(own.begin(), own.end(), tensor.first);
    if (!tensor.is_random) continue;
    const float bound = std::sqrt(6.0f / static_cast<float>(tensor.fan_in));
    for (std::size_t i = 0; i < own.size(); ++i) {
      const float unit = random_unit(seed, RngStream::kInit, static_cast<std::uint32_t>(t), i);
      // 2u - 1 is exact: u is a multiple of 2^-24.
      own[i] = (2.0f * unit - 1.0f) * bound;
    }
  }
}

void update_running(const ModelShape& shape, int logical_ranks, std::span<const float> sums,
                    std::span<float> values) {
  MUSTER_CHECK(sums.size() >= shape.running() && values.size() == shape.values());
  // A power of two: the mean over the ranks is exact.
  const float share = 1.0f / static_cast<float>(logical_ranks);
  const std::span<float> running = values.subspan(shape.parameters());
  for (std::size_t i = 0; i < running.size(); ++i) {
    running[i] = std::fma(kRunningShare, sums[i] * share - running[i], running[i]);
  }
}

}  // namespace muster::engine
