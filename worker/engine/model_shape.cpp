#include "worker/engine/model_shape.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "common/rng.h"
#include "worker/engine/divided_table.h"
#include "worker/engine/in_pieces.h"
#include "worker/engine/record.h"

namespace muster::engine {
namespace {

/// Share of the newest step in running statistics.
constexpr float kRunningShare = 0.1f;

/// 0.02 times the root of 3: uniform within it, values have a standard deviation of 0.02.
constexpr float kGptBound = 0x1.1bc77ap-5f;

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
    case LayerKind::kEmbedding:
      return "embedding";
    case LayerKind::kLayerNorm:
      return "layer normalisation";
    case LayerKind::kProjection:
      return "projection";
    case LayerKind::kGelu:
      return "GELU";
    case LayerKind::kAttention:
      return "attention";
    case LayerKind::kHead:
      return "tied head";
  }
  return "";
}

float bound_of(std::size_t fan_in) { return std::sqrt(6.0f / static_cast<float>(fan_in)); }

Error invalid(const std::string& sentence) {
  return Error(ErrorCode::kInvalid, sentence).with_exit_code(contract::exit_code::kInvalidSpec);
}

/// Whether every stage has images that it can halve.
Status check_stages(const TrainingConfig& config, Extent image) {
  const std::string size = std::to_string(image.height) + " x " + std::to_string(image.width);
  for (std::size_t stage = 0; stage < config.cnn->channels.size(); ++stage) {
    if (image.height < 2 || image.width < 2) {
      return invalid("spec.training.model.cnn.channels: has " +
                     std::to_string(config.cnn->channels.size()) +
                     " stages, each of which halves its images, but those of " +
                     config.train.path_of_images() + ", " + size + ", can be halved only " +
                     std::to_string(stage) + " times; leave stages out");
    }
    image.height /= 2;
    image.width /= 2;
  }
  return {};
}

}  // namespace

LayerShape& ModelShape::add(LayerKind kind, const Extent& out, std::string name) {
  LayerShape layer;
  layer.kind = kind;
  layer.in = output();
  layer.out = out;
  layer.name = std::move(name);
  if (!layers_.empty()) {
    const LayerShape& before = layers_.back();
    const bool passes_on = before.kind == LayerKind::kMaxPool || before.kind == LayerKind::kDropout;
    layer.reads_rectified = before.is_rectified || (passes_on && before.reads_rectified);
  }
  return layers_.emplace_back(layer);
}

std::size_t ModelShape::add_tensor(const std::string& name, std::vector<std::size_t> shape) {
  Tensor tensor;
  tensor.name = name;
  tensor.offset = parameters_;
  tensor.size = 1;
  for (const std::size_t size : shape) tensor.size *= size;
  tensor.number = static_cast<std::uint32_t>(tensors_.size());
  tensor.shape = std::move(shape);
  tensor.run = tensor.stride = tensor.size;
  parameters_ += tensor.size;
  return tensors_.emplace_back(std::move(tensor)).offset;
}

ModelShape& ModelShape::linear(std::size_t width, bool rectify) {
  LayerShape& layer = add(LayerKind::kLinear, {1, 1, width}, numbered());
  layer.is_rectified = rectify;
  layer.has_bias = true;
  layer.weight = add_tensor(layer.name + ".weight", {layer.in.size(), width});
  tensors_.back().bound = bound_of(layer.in.size());
  layer.bias = add_tensor(layer.name + ".bias", {width});
  return *this;
}

void ModelShape::normalise() {
  LayerShape& layer = add(LayerKind::kBatchNorm, output(), numbered());
  layer.is_rectified = true;
  layer.has_bias = true;
  layer.weight = add_tensor(layer.name + ".weight", {layer.in.channels});
  tensors_.back().first = 1;
  layer.bias = add_tensor(layer.name + ".bias", {layer.in.channels});
}

void ModelShape::embedding(std::size_t tokens, std::size_t width) {
  LayerShape& layer = add(LayerKind::kEmbedding, {1, input_.width, width}, "wte");
  layer.weight = add_tensor("wte.weight", {tokens, width});
  tensors_.back().bound = kGptBound;
  layer.tokens = tokens;
  layer.positions = add_tensor("wpe.weight", {input_.width, width});
  tensors_.back().bound = kGptBound;
}

void ModelShape::layer_norm(const std::string& name, bool is_branch) {
  LayerShape& layer = add(LayerKind::kLayerNorm, output(), name);
  layer.is_branch = is_branch;
  layer.has_bias = true;
  layer.weight = add_tensor(name + ".weight", {layer.in.channels});
  tensors_.back().first = 1;
  layer.bias = add_tensor(name + ".bias", {layer.in.channels});
}

void ModelShape::projection(const std::string& name, std::size_t width, float bound) {
  LayerShape& layer = add(LayerKind::kProjection, {1, input_.width, width}, name);
  layer.has_bias = true;
  layer.weight = add_tensor(name + ".weight", {layer.in.channels, width});
  tensors_.back().bound = bound;
  layer.bias = add_tensor(name + ".bias", {width});
}

void ModelShape::attention(std::size_t heads, float dropout) {
  LayerShape& layer = add(LayerKind::kAttention, {1, input_.width, output().channels / 3});
  layer.heads = heads;
  if (dropout == 0) return;
  layer.dropout = dropout;
  layer.number = dropouts_++;
}

ModelShape& ModelShape::stage(const Convolution& convolution) {
  const Extent in = output();
  LayerShape& layer =
      add(LayerKind::kConvolution, {in.height, in.width, convolution.channels}, numbered());
  layer.side = convolution.side;
  layer.is_rectified = layer.has_bias = !convolution.normalise;
  layer.weight = add_tensor(layer.name + ".weight", {convolution.side, convolution.side,
                                                     in.channels, convolution.channels});
  tensors_.back().bound = bound_of(convolution.side * convolution.side * in.channels);
  if (layer.has_bias) layer.bias = add_tensor(layer.name + ".bias", {convolution.channels});
  if (convolution.normalise) normalise();
  add(LayerKind::kMaxPool, {in.height / 2, in.width / 2, convolution.channels});
  return *this;
}

ModelShape& ModelShape::dropout(float share) {
  if (share == 0) return *this;
  LayerShape& layer = add(LayerKind::kDropout, output());
  layer.dropout = share;
  layer.number = dropouts_++;
  return *this;
}

ModelShape& ModelShape::finish() {
  trained_ = tensors_.size();
  const std::size_t trained_values = parameters_;
  for (LayerShape& layer : layers_) {
    if (layer.kind != LayerKind::kBatchNorm) continue;
    layer.running_mean = add_tensor(layer.name + ".running_mean", {layer.in.channels});
    layer.running_variance = add_tensor(layer.name + ".running_var", {layer.in.channels});
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

ModelShape ModelShape::gpt(const GptConfig& config, std::size_t tokens) {
  const auto width = static_cast<std::size_t>(config.width);
  // Every block adds two branches to the stream; their last weights begin smaller for it.
  const float last_bound = kGptBound / std::sqrt(2.0f * static_cast<float>(config.layers));
  ModelShape shape({1, static_cast<std::size_t>(config.context_length), 1});
  shape.embedding(tokens, width);
  shape.dropout(config.dropout);
  for (int block = 0; block < config.layers; ++block) {
    const std::string name = "h." + std::to_string(block) + ".";
    const auto branch = [&](const char* norm, const auto& inside, const std::string& last) {
      const std::size_t stream = shape.layers_.size();
      shape.layer_norm(name + norm, true);
      inside();
      shape.projection(last, width, last_bound);
      shape.layers_.back().adds = stream;
      if (config.dropout == 0) return;
      shape.layers_.back().dropout = config.dropout;
      shape.layers_.back().number = shape.dropouts_++;
    };
    branch(
        "ln_1",
        [&] {
          shape.projection(name + "attn.c_attn", 3 * width, kGptBound);
          shape.attention(static_cast<std::size_t>(config.heads), config.attention_dropout);
        },
        name + "attn.c_proj");
    branch(
        "ln_2",
        [&] {
          shape.projection(name + "mlp.c_fc", 4 * width, kGptBound);
          shape.add(LayerKind::kGelu, shape.output());
        },
        name + "mlp.c_proj");
  }
  shape.layer_norm("ln_f", false);
  LayerShape& head = shape.add(LayerKind::kHead, {1, shape.input_.width, tokens});
  head.weight = shape.layers_[0].weight;
  head.tokens = head.tokens_most = tokens;
  return shape.finish();
}

Result<ModelShape> ModelShape::of(const TrainingConfig& config, const Extent& image, int classes) {
  const auto last = static_cast<std::size_t>(classes);
  if (config.gpt) return gpt(*config.gpt, last);
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

/// The one at `offset`; returns where it lies now.
std::size_t ModelShape::copy_tensor(const ModelShape& from, std::size_t offset) {
  const auto found = std::find_if(from.tensors_.begin(), from.tensors_.end(),
                                  [&](const Tensor& one) { return one.offset == offset; });
  MUSTER_CHECK(found != from.tensors_.end());
  Tensor tensor = *found;
  tensor.offset = parameters_;
  parameters_ += tensor.size;
  return tensors_.emplace_back(std::move(tensor)).offset;
}

/// Those that are trained; running statistics come last.
void ModelShape::copy_tensors(const ModelShape& from, LayerShape& layer) {
  if (!layer.has_tensors()) return;
  layer.weight = copy_tensor(from, layer.weight);
  if (layer.has_bias) layer.bias = copy_tensor(from, layer.bias);
  if (layer.kind == LayerKind::kEmbedding) layer.positions = copy_tensor(from, layer.positions);
}

ModelShape ModelShape::cut(std::size_t first, std::size_t last) const {
  MUSTER_CHECK(first < last && last <= layers_.size());
  ModelShape part(layers_[first].in);
  part.is_begin_ = is_begin_ && first == 0;
  part.is_end_ = is_end_ && last == layers_.size();
  if (layers_[last - 1].kind == LayerKind::kHead && first > 0) {
    part.tied_embedding_ = layers_[0];
    part.copy_tensors(*this, *part.tied_embedding_);
  }
  for (std::size_t l = first; l < last; ++l) {
    LayerShape& layer = part.layers_.emplace_back(layers_[l]);
    MUSTER_CHECK_MSG(!layer.adds || *layer.adds >= first, "a branch is cut");
    if (layer.adds) *layer.adds -= first;
    part.copy_tensors(*this, layer);
    if (layer.kind == LayerKind::kHead && part.tied_embedding_) {
      layer.weight = part.tied_embedding_->weight;
    } else if (layer.kind == LayerKind::kHead) {
      layer.weight = part.layers_[0].weight;
    }
  }
  part.trained_ = part.tensors_.size();
  const std::size_t trained_values = part.parameters_;
  for (LayerShape& layer : part.layers_) {
    if (layer.kind != LayerKind::kBatchNorm) continue;
    layer.running_mean = part.copy_tensor(*this, layer.running_mean);
    layer.running_variance = part.copy_tensor(*this, layer.running_variance);
  }
  part.running_ = part.parameters_ - trained_values;
  part.parameters_ = trained_values;
  return part;
}

Status ModelShape::check_slices(std::size_t slices) const {
  const auto refuse = [&](const std::string& why) {
    return invalid("spec.training.parallelism.tensor: is " + std::to_string(slices) + ", but " +
                   why);
  };
  std::size_t linear = 0;
  for (const LayerShape& layer : layers_) {
    if (layer.kind == LayerKind::kConvolution) {
      return refuse("convolutions cannot be divided; must be 1 with a cnn");
    }
    if (layer.kind == LayerKind::kAttention && layer.heads % slices != 0) {
      return refuse("the model has " + std::to_string(layer.heads) +
                    " heads; must divide spec.training.model.gpt.heads");
    }
    if (layer.kind != LayerKind::kLinear) continue;
    const bool is_hidden = &layer != &layers_.back();
    if (is_hidden && layer.out.size() % slices != 0) {
      return refuse("a hidden layer is " + std::to_string(layer.out.size()) +
                    " wide; must divide all of spec.training.model.mlp.hidden");
    }
    ++linear;
  }
  if (linear == 1) return refuse("the model has no hidden layer; must be 1");
  return {};
}

/// The embedding of a transformer's slice, and the head with it.
void ModelShape::divide_table(std::size_t slices, std::size_t index) {
  if (!has_head() || !divides_table(layers_.back().tokens, slices)) return;
  LayerShape& head = layers_.back();
  LayerShape& embedding = tied_embedding_ ? *tied_embedding_ : layers_.front();
  const kernels::cpu::Slice own = table_slice(head.tokens, slices, index);
  head.part = LayerPart::kColumns;
  head.out.channels = own.count;
  head.first_column = embedding.first_column = own.first;
  head.tokens_most = 0;
  for (std::size_t i = 0; i < slices; ++i) {
    head.tokens_most = std::max(head.tokens_most, table_slice(head.tokens, slices, i).count);
  }
}

/// Which layers of a slice are divided, and how large they are.
void ModelShape::divide_layers(std::size_t slices, std::size_t index) {
  const auto is_linear = [](const LayerShape& layer) { return layer.kind == LayerKind::kLinear; };
  bool is_divided = false;  // what the layer reads
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    LayerShape& layer = layers_[l];
    const auto next = layers_.begin() + static_cast<std::ptrdiff_t>(l) + 1;
    if (is_divided) {
      layer.in.channels /= slices;
      layer.heads /= slices;
      if (layer.kind == LayerKind::kDropout) layer.first_column = index * layer.in.channels;
      if (layer.kind == LayerKind::kAttention) layer.first_column = index * layer.heads;
    }
    if (is_linear(layer) || layer.kind == LayerKind::kProjection) {
      const bool has_pair =
          layer.kind == LayerKind::kProjection || std::any_of(next, layers_.end(), is_linear);
      if (is_divided) {
        layer.part = LayerPart::kRows;
      } else if (has_pair) {
        layer.part = LayerPart::kColumns;
      }
      is_divided = layer.part == LayerPart::kColumns;
      const bool is_attended = next != layers_.end() && next->kind == LayerKind::kAttention;
      if (is_divided && is_attended) layer.column_groups = 3;
    }
    if (is_divided) layer.out.channels /= slices;
  }
}

ModelShape ModelShape::slice(std::size_t slices, std::size_t index) const {
  MUSTER_CHECK(index < slices && running_ == 0);
  ModelShape part = *this;
  if (slices == 1) return part;
  part.slices_ = slices;
  part.divide_layers(slices, index);
  part.divide_table(slices, index);
  const std::size_t table = tied_embedding_ ? tied_embedding_->weight : layers_.front().weight;
  part.parameters_ = 0;
  for (Tensor& tensor : part.tensors_) {
    const std::size_t whole_offset = std::exchange(tensor.offset, part.parameters_);
    tensor.is_counted = index == 0;
    if (part.has_divided_table() && whole_offset == table) {
      const LayerShape& head = part.layers_.back();
      tensor.stride = tensor.size;
      tensor.run = tensor.size = head.out.channels * head.in.channels;
      tensor.begin = head.first_column * head.in.channels;
      tensor.shape.front() = head.out.channels;
      tensor.is_counted = true;
    }
    for (LayerShape& layer : part.layers_) {
      const bool is_weight = layer.weight == whole_offset && layer.has_tensors();
      const bool is_bias = layer.has_bias && layer.bias == whole_offset;
      const bool is_rows = is_weight && layer.part == LayerPart::kRows;
      if (!is_rows && !((is_weight || is_bias) && layer.part == LayerPart::kColumns)) continue;
      tensor.stride = is_rows ? tensor.size : tensor.shape.back() / layer.column_groups;
      tensor.run = tensor.stride / slices;
      tensor.begin = index * tensor.run;
      tensor.size /= slices;
      (is_rows ? tensor.shape.front() : tensor.shape.back()) /= slices;
      tensor.is_counted = true;
    }
    part.parameters_ += tensor.size;
  }
  const auto moved = [&](std::size_t offset) {
    const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                    [&](const Tensor& one) { return one.offset == offset; });
    MUSTER_CHECK(found != tensors_.end());
    return part.tensors_[static_cast<std::size_t>(found - tensors_.begin())].offset;
  };
  const auto move = [&](LayerShape& layer) {
    if (layer.has_tensors() || layer.kind == LayerKind::kHead) layer.weight = moved(layer.weight);
    if (layer.has_bias) layer.bias = moved(layer.bias);
    if (layer.kind == LayerKind::kEmbedding) layer.positions = moved(layer.positions);
  };
  std::ranges::for_each(part.layers_, move);
  if (part.tied_embedding_) move(*part.tied_embedding_);
  return part;
}

ModelShape ModelShape::first_positions(std::size_t count) const {
  MUSTER_CHECK(reads_tokens() && has_head() && slices_ == 1);
  MUSTER_CHECK(count >= 1 && count <= input_.width);
  ModelShape part = *this;
  part.input_.width = count;
  for (LayerShape& layer : part.layers_) layer.in.width = layer.out.width = count;
  return part;
}

bool ModelShape::has_divided_table() const {
  return has_head() && layers_.back().part == LayerPart::kColumns;
}

std::uint64_t ModelShape::products() const {
  std::uint64_t products = 0;
  for (const LayerShape& layer : layers_) {
    switch (layer.kind) {
      case LayerKind::kLinear:
        products += layer.in.size() * layer.out.size();
        break;
      case LayerKind::kConvolution:
        products += layer.side * layer.side * layer.in.channels * layer.out.size();
        break;
      case LayerKind::kProjection:
      case LayerKind::kHead:
        products += layer.in.channels * layer.out.size();
        break;
      default:
        break;
    }
  }
  return products;
}

std::vector<std::size_t> ModelShape::layer_starts() const {
  std::vector<std::size_t> starts;
  if (tied_embedding_) starts.push_back(tied_embedding_->weight);
  for (const LayerShape& layer : layers_) {
    if (layer.has_tensors()) starts.push_back(layer.weight);
  }
  return starts;
}

bool ModelShape::is_within_branch(std::size_t layer) const {
  for (std::size_t end = layer + 1; end < layers_.size(); ++end) {
    if (layers_[end].adds) return *layers_[end].adds <= layer;
  }
  return false;
}

std::vector<std::string> ModelShape::description() const {
  std::vector<std::string> lines;
  for (const LayerShape& layer : layers_) {
    std::string line = name_of(layer.kind);
    if (layer.side > 0) line += " " + std::to_string(layer.side);
    if (layer.heads > 0) line += " " + std::to_string(layer.heads);
    if (layer.dropout > 0) line += " " + decimal(layer.dropout);
    lines.push_back(line + ", " + text_of(layer.in) + " to " + text_of(layer.out));
  }
  return lines;
}

void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> values,
                const std::function<void()>& on_alive) {
  MUSTER_CHECK(values.size() == shape.values());
  for (const Tensor& tensor : shape.tensors()) {
    const auto own = values.subspan(tensor.offset, tensor.size);
    in_pieces(own.size(), on_alive, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        own[i] = tensor.first;
        if (!(tensor.bound > 0)) continue;
        const float unit =
            random_unit(seed, RngStream::kInit, tensor.number, tensor.index_in_whole(i));
        // 2u - 1 is exact: u is a multiple of 2^-24.
        own[i] = (2.0f * unit - 1.0f) * tensor.bound;
      }
    });
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
