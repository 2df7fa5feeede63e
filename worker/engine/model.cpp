#include "worker/engine/model.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "common/rng.h"
#include "kernels/dropout.h"
#include "worker/data/tokens.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

/// A head makes the logits of so many positions at once, so that reading its table costs less than
/// multiplying with it; of more, while they are not more logits than that.
constexpr std::size_t kHeadPositions = 256;
constexpr std::size_t kHeadLogits = std::size_t{1} << 20;

/// Bytes of patches that are laid out at once. On a host each thread's are still in its second
/// cache when they are multiplied, up to as many threads as are worth the memory; a device is only
/// busy with many rows, and logical ranks, at once.
constexpr std::size_t kHostPatchBytes = std::size_t{1} << 20;
constexpr int kPatchThreads = 8;
constexpr std::size_t kDevicePatchBytes = std::size_t{1} << 30;
/// Where many channels leave few pixels to these bytes a host lays out so many: a product packs the
/// weights first, which is little beside so many rows of it. But no more bytes than so many.
constexpr std::size_t kPatchPixels = 1024;
constexpr std::size_t kHostPatchMost = std::size_t{32} << 20;

/// Of a backward pass a device has so many layers to compute while the gradients of the one before
/// are fetched and sent.
constexpr std::size_t kLayersAhead = 8;

kernels::Activation activation_of(const LayerShape& layer) {
  return layer.is_rectified ? kernels::Activation::kRelu : kernels::Activation::kNone;
}

static_assert(kernels::kDropoutStream == static_cast<std::uint32_t>(RngStream::kDropout));

/// The most pixels of a row that a process has of those that are dealt out between so many.
std::size_t pixels_of_slice(const LayerShape& layer, std::size_t slices) {
  return (layer.in.pixels() + slices - 1) / slices;
}

/// What a convolution's kernel meets in a row.
std::size_t patch_size(const LayerShape& layer) {
  return layer.in.size() * layer.side * layer.side;
}

/// Of a convolution, without its bias.
std::size_t weights_of(const LayerShape& layer) {
  return layer.side * layer.side * layer.in.channels * layer.out.channels;
}

float scale_of(const LayerShape& layer) { return 1.0f / (1.0f - layer.dropout); }

}  // namespace

Model::PatchRoom Model::PatchRoom::of_host(int threads) {
  const int some = std::clamp(threads, 1, kPatchThreads);
  return {kHostPatchBytes * static_cast<std::size_t>(some), kPatchPixels, kHostPatchMost};
}

Model::PatchRoom Model::PatchRoom::of(kernels::Context& context) {
  if (!context.is_host()) return {kDevicePatchBytes};
  return of_host(static_cast<cpu::Context&>(context).threads());
}

std::size_t Model::PatchRoom::rows(const LayerShape& layer) const {
  const std::size_t of_row = patch_size(layer) * sizeof(float), of_image = layer.in.pixels();
  const std::size_t for_pixels = std::min((pixels + of_image - 1) / of_image, most / of_row);
  return std::max({std::size_t{1}, bytes / of_row, for_pixels});
}

std::size_t Model::Batch::rows() const {
  std::size_t rows = 0;
  for (const Node& node : nodes) {
    MUSTER_CHECK(node.first_row == rows);
    rows += node.ranks * rows_per_rank;
  }
  return rows;
}

Model::Model(ModelShape shape, std::size_t rows_max, kernels::Context& context,
             Activations activations, PatchRoom patch_room, Unreserved)
    : shape_(std::move(shape)),
      rows_max_(rows_max),
      context_(context),
      on_(context.operations()),
      activations_(activations),
      patch_room_(patch_room) {
  MUSTER_CHECK(!shape_.layers().empty() && rows_max > 0);
}

Model::Model(ModelShape shape, std::size_t rows_max, kernels::Context& context,
             Activations activations, std::size_t patch_bytes)
    : Model(std::move(shape), rows_max, context, activations,
            patch_bytes > 0 ? PatchRoom{patch_bytes} : PatchRoom::of(context), Unreserved()) {
  reserve();
}

std::size_t Model::bytes(const ModelShape& shape, std::size_t rows_max, Activations activations,
                         int threads) {
  cpu::Context unused(1);
  const PatchRoom room = PatchRoom::of_host(threads);
  return Model(shape, rows_max, unused, activations, room, Unreserved()).bytes();
}

std::size_t Model::bytes() {
  const std::size_t tokens = shape_.reads_tokens() ? shape_.input().size() : 0;
  return sizeof(float) * (arena_floats() + patch_floats() + head_floats()) +
         rows_max_ * (tokens * sizeof(std::int32_t) +
                      shape_.targets() * (sizeof(std::int32_t) + 2 * sizeof(float)));
}

std::size_t Model::table_bytes(const ModelShape& shape, std::size_t later_ranks) {
  if (!shape.has_head() || shape.tied_embedding()) return 0;
  const LayerShape& head = shape.layers().back();
  return later_ranks * head.in.channels * head.out.channels * sizeof(float);
}

std::size_t Model::scratch_bytes(const ModelShape& shape, std::size_t rows, int threads) {
  std::size_t shared = 0, of_thread = 0;
  for (const LayerShape& layer : shape.layers()) {
    const std::size_t pixels = layer.in.pixels();
    std::size_t steps = layer.in.channels, columns = layer.out.channels, chain = rows * pixels;
    switch (layer.kind) {
      case LayerKind::kLinear:
        steps *= pixels;
        chain = rows;
        break;
      case LayerKind::kConvolution:
        steps *= layer.side * layer.side;
        chain = std::min(rows, PatchRoom::of_host(threads).rows(layer)) * pixels;
        break;
      case LayerKind::kProjection:
      case LayerKind::kHead:
        break;
      case LayerKind::kAttention:
        of_thread = std::max(of_thread, cpu::attention_scratch_bytes(
                                            {rows, pixels, layer.heads, columns / layer.heads}));
        continue;
      default:
        continue;
    }
    shared = std::max({shared, cpu::product_scratch_bytes(steps, columns),
                       cpu::product_scratch_bytes(columns, steps),
                       cpu::weights_scratch_bytes(chain, std::max(steps, columns))});
  }
  return shared + static_cast<std::size_t>(threads) * of_thread;
}

std::size_t Model::device_bytes(const ModelShape& shape, std::size_t rows_max,
                                Activations activations, PassSize most) {
  const std::size_t floats = shape.values() * (1 + most.nodes);
  cpu::Context unused(1);
  Model model(shape, rows_max, unused, activations, PatchRoom{kDevicePatchBytes}, Unreserved());
  return model.bytes() + table_bytes(shape, most.further_ranks) + floats * sizeof(float);
}

void Model::forget_nodes() {
  if (context_.is_host()) return;
  node_gradients_ = {};
  tables_ = {};
}

/// Of the arena, measured by dealing out nothing.
std::size_t Model::arena_floats() {
  std::size_t floats = 0;
  deal([&](std::size_t columns) {
    floats += columns * rows_max_;
    return std::span<float>();
  });
  return floats;
}

/// Of how many positions a head makes the logits at once: as many on all processes of a team.
std::size_t Model::head_positions() const {
  const std::size_t at_once =
      std::max(kHeadPositions, kHeadLogits / shape_.layers().back().tokens_most);
  return std::min(at_once, rows_max_ * positions());
}

std::size_t Model::patch_rows(const LayerShape& layer) const {
  return std::min(rows_max_, patch_room_.rows(layer));
}

std::size_t Model::patch_floats() const {
  std::size_t floats = 0;
  for (const LayerShape& layer : shape_.layers()) {
    if (layer.kind != LayerKind::kConvolution) continue;
    const std::size_t rows = patch_rows(layer);
    std::size_t of_layer = rows * patch_size(layer);
    if (rows < rows_max_) {
      // Subtrees have at least half of the rows, and as many sums wait as a number of all has bits.
      const auto waiting = static_cast<std::size_t>(std::bit_width(2 * rows_max_ / rows)) - 1;
      of_layer += waiting * weights_of(layer);
    }
    floats = std::max(floats, of_layer);
  }
  return floats;
}

std::size_t Model::head_floats() const {
  return has_head() ? head_positions() * shape_.output().channels : 0;
}

void Model::reserve() {
  arena_ = {context_, arena_floats()};
  std::size_t taken = 0;
  deal([&](std::size_t columns) {
    const std::size_t size = columns * rows_max_;
    return arena_.span().subspan(std::exchange(taken, taken + size), size);
  });
  patches_ = {context_, patch_floats()};
  head_logits_ = {context_, head_floats()};
  tokens_ = {context_, shape_.reads_tokens() ? rows_max_ * shape_.input().size() : 0};
  labels_ = {context_, rows_max_ * shape_.targets()};
  loss_ = {context_, labels_.size()};
  correct_ = {context_, labels_.size()};
  if (!context_.is_host()) brought_ = {context_, shape_.values()};
}

/// Whether what the layer of a branch puts out lies where that of all branches does.
bool Model::is_made_anew(std::size_t layer) const {
  const bool is_whole_in_slice = shape_.slices() > 1 && shape_.layers()[layer].is_branch;
  return shape_.is_within_branch(layer) &&
         (activations_ == Activations::kRecomputed || is_whole_in_slice);
}

/// Whether of the stream, which branches read and add to, each process of the team keeps its rows.
/// All of it is in one place then, as far as it has come.
bool Model::divides_stream() const {
  return activations_ == Activations::kRecomputed && shape_.slices() > 1;
}

/// Whether what the layer puts out is the stream that is divided.
bool Model::is_divided(std::size_t layer) const {
  const LayerShape& one = shape_.layers()[layer];
  if (one.kind == LayerKind::kDropout) return layer > 0 && is_divided(layer - 1);
  return divides_stream() && (one.kind == LayerKind::kEmbedding || one.adds);
}

/// Of a branch the last border, of which the stream goes on, stays.
void Model::deal_borders(const Take& take) {
  const auto& layers = shape_.layers();
  std::vector<std::size_t> places(layers.size(), SIZE_MAX);  // of the borders that are shared
  std::size_t place = 0, shared_columns = 0, stream_columns = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (is_divided(l)) stream_columns = layers[l].out.size();
    if (layers[l].is_branch) place = 0;
    if (!is_made_anew(l)) continue;
    places[l] = place;
    place += layers[l].out.size();
    shared_columns = std::max(shared_columns, place);
  }
  const std::span<float> shared = take(shared_columns), stream = take(stream_columns);
  borders_.assign(1, take(shape_.reads_tokens() ? 0 : shape_.input().size()));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t columns = layers[l].out.size();
    if (layers[l].kind == LayerKind::kDropout) {
      borders_.push_back(borders_.back());
    } else if (layers[l].kind == LayerKind::kHead) {
      borders_.emplace_back();
    } else if (is_divided(l)) {
      borders_.push_back(stream);
    } else if (places[l] == SIZE_MAX) {
      borders_.push_back(take(columns));
    } else {
      borders_.push_back(
          shared.empty() ? shared : shared.subspan(places[l] * rows_max_, columns * rows_max_));
    }
  }
}

void Model::deal(const Take& take) {
  std::size_t widest = shape_.is_end() ? 0 : shape_.output().size();
  std::size_t channels = 0, stream = 0;
  deal_borders(take);
  kept_.assign(shape_.layers().size(), {});
  for (std::size_t l = 0; l < shape_.layers().size(); ++l) {
    const LayerShape& layer = shape_.layers()[l];
    if (l > 0 || !shape_.is_begin()) widest = std::max(widest, layer.in.size());
    switch (layer.kind) {
      case LayerKind::kBatchNorm:
        channels = std::max(channels, layer.in.channels);
        kept_[l].mean = take(layer.in.channels);
        kept_[l].inverse = take(layer.in.channels);
        kept_[l].variance = take(layer.in.channels);
        break;
      case LayerKind::kLayerNorm:
        stream = layer.in.size();
        kept_[l].mean = take(layer.in.pixels());
        kept_[l].inverse = take(layer.in.pixels());
        if (layer.is_branch && l > 0 && is_divided(l - 1)) {
          kept_[l].rows = take(pixels_of_slice(layer, shape_.slices()) * layer.in.channels);
        }
        break;
      case LayerKind::kAttention:
        kept_[l].greatest = take(layer.heads * layer.in.pixels());
        kept_[l].total = take(layer.heads * layer.in.pixels());
        break;
      default:
        break;
    }
  }
  gradients_[0] = take(widest);
  gradients_[1] = take(widest);
  stream_ = take(stream);
  dgamma_ = take(channels);
  dbeta_ = take(channels);
}

void Model::use(std::span<const float> values) {
  MUSTER_CHECK(values.size() == shape_.values());
  const bool is_host = context_.is_host();
  values_ = is_host ? values.data() : brought_.data();
  to_bring_ = is_host ? std::span<const float>() : values;
}

/// One layer's after the other's, so that a device computes those before meanwhile. An evaluation
/// needs the statistics at once, which lie behind all else.
void Model::bring(const LayerShape& layer, const Batch* batch) {
  const std::size_t from = shape_.values() - to_bring_.size();
  if (to_bring_.empty() || !layer.has_tensors() || layer.weight != from) return;
  std::size_t end = shape_.values();
  for (const std::size_t start : shape_.layer_starts()) {
    if (batch != nullptr && start > from) end = std::min(end, start);
  }
  context_.put(brought_.data() + from, to_bring_.data(), (end - from) * sizeof(float));
  to_bring_ = to_bring_.subspan(end - from);
}

const Model::Batch& Model::reachable(const Batch& batch) {
  if (context_.is_host()) return batch;
  MUSTER_CHECK(batch.tables.empty() && batch.team == nullptr);
  const std::size_t of_node = shape_.values();
  if (node_gradients_.size() < batch.nodes.size() * of_node) {
    forget_nodes();  // never both
    node_gradients_ = {context_, batch.nodes.size() * of_node};
  }
  reachable_nodes_.assign(batch.nodes.begin(), batch.nodes.end());
  for (std::size_t n = 0; n < reachable_nodes_.size(); ++n) {
    reachable_nodes_[n].gradient = node_gradients_.data() + n * of_node;
  }
  reachable_ = batch;
  reachable_.nodes = reachable_nodes_;
  return reachable_;
}

bool Model::fetch_gradients(const Batch& batch, const Final& some) {
  const auto [first, end, part] = some;
  bool is_sound = true;
  for (std::size_t n = 0; n < batch.nodes.size() && is_sound; ++n) {
    is_sound = context_.fetch(part, batch.nodes[n].gradient + first,
                              node_gradients_.data() + n * shape_.values() + first,
                              (end - first) * sizeof(float));
  }
  return is_sound;
}

cpu::Context& Model::host() const {
  MUSTER_CHECK(context_.is_host());
  return static_cast<cpu::Context&>(context_);
}

Status Model::status() {
  const char* const error = context_.finish();
  if (error == nullptr) return {};
  return Error(ErrorCode::kIo, std::string("the GPU failed: ") + error)
      .with_exit_code(contract::exit_code::kDevice);
}

Status Model::set_row(std::size_t row, const data::Dataset& samples, std::size_t index) {
  const std::size_t features = shape_.input().size(), targets = shape_.targets();
  const auto labels = labels_.span().subspan(row * targets, targets);
  if (shape_.reads_tokens()) {
    return data::read_sample(samples, index, tokens_.span().subspan(row * features, features),
                             labels);
  }
  float* const input = borders_[0].data() + row * features;
  if (samples.is_table()) {
    MUSTER_RETURN_IF_ERROR(data::read_row(samples, index, {input, features}));
  } else {
    MUSTER_ASSIGN_OR_RETURN(const auto image, data::read_image(samples, index, image_));
    cpu::bytes_to_unit(image.data(), features, input);
  }
  std::copy_n(samples.labels_of(index), targets, labels.begin());
  return {};
}

void Model::linear(const Pass& pass) { multiply(pass, activation_of(pass.layer)); }

/// A linear layer of each row, or of each of its positions. Chains over inputs that are divided
/// run through all who have some.
void Model::multiply(const Pass& pass, kernels::Activation activation) {
  const LayerShape& layer = pass.layer;
  const std::size_t pixels = layer.out.pixels();
  const std::size_t M = pass.rows * pixels, N = layer.out.channels, K = layer.in.size() / pixels;
  const float* const w = pass.values + layer.weight;
  const float* const bias = pass.values + layer.bias;
  if (layer.part != LayerPart::kRows) {
    return on_.linear_forward(context_, M, N, K, pass.x, w, bias, activation, pass.y);
  }
  pass.team->make({pass.y, M, N}, [&](const TensorTeam::Part& part) {
    cpu::linear_forward_part(host(), part.rows, N, K, {0, K, part.goes_on},
                             pass.x + part.first_row * K, w, part.is_last ? bias : nullptr,
                             part.is_last ? activation : kernels::Activation::kNone,
                             pass.y + part.first_row * N);
  });
}

/// The gradient of its input. Chains over outputs that are divided run through all who have some,
/// once for each group of columns.
void Model::multiply_back(const Pass& pass, const float* dy, const float* relu_output, float* dx) {
  const LayerShape& layer = pass.layer;
  const std::size_t pixels = layer.out.pixels();
  const std::size_t M = pass.rows * pixels, N = layer.out.channels, K = layer.in.size() / pixels;
  const float* const w = pass.values + layer.weight;
  if (layer.part != LayerPart::kColumns) {
    return on_.linear_backward_input(context_, M, N, K, dy, w, relu_output, dx);
  }
  const std::size_t of_group = N / layer.column_groups;
  pass.team->make({dx, M, K, layer.column_groups}, [&](const TensorTeam::Part& part) {
    const std::size_t at = part.first_row * K;
    const bool is_masked = part.is_last && relu_output != nullptr;
    cpu::linear_backward_input_part(
        host(), part.rows, N, K, {part.round * of_group, of_group, part.goes_on},
        dy + part.first_row * N, w, is_masked ? relu_output + at : nullptr, dx + at);
  });
}

void Model::convolution(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const std::size_t at_once = patch_rows(layer);
  for (std::size_t row = 0; row < pass.rows; row += at_once) {
    const std::size_t some = std::min(at_once, pass.rows - row);
    on_.gather_patches(context_, some, layer.in, layer.side, pass.x + row * layer.in.size(),
                       patches_.data());
    on_.linear_forward(context_, some * layer.in.pixels(), layer.out.channels,
                       layer.side * layer.side * layer.in.channels, patches_.data(),
                       pass.values + layer.weight,
                       layer.has_bias ? pass.values + layer.bias : nullptr, activation_of(layer),
                       pass.y + row * layer.out.size());
  }
}

void Model::batch_norm(const Pass& pass) {
  const LayerShape& layer = pass.layer;
  const Kept& kept = pass.kept;
  const std::size_t channels = layer.in.channels;
  std::size_t ranks = 1;
  cpu::Normalisation by{};
  by.gamma = pass.values + layer.weight;
  by.beta = pass.values + layer.bias;
  if (pass.batch == nullptr) {
    on_.inverse_deviation(context_, channels, pass.values + layer.running_variance, kEpsilon,
                          kept.inverse.data());
    by.mean = pass.values + layer.running_mean;
  } else {
    ranks = pass.rows / pass.batch->rows_per_rank;
    on_.batch_statistics(context_, ranks, pass.batch->rows_per_rank * layer.in.pixels(), channels,
                         pass.x, kEpsilon,
                         {kept.mean.data(), kept.inverse.data(), kept.variance.data()});
    by.mean = kept.mean.data();
  }
  by.inverse = kept.inverse.data();
  on_.batch_normalise(context_, ranks, pass.rows / ranks * layer.in.pixels(), channels, pass.x, by,
                      activation_of(layer), pass.y);
}

/// Of one dropout at one step: of the spec's generator the first two words of a block.
std::uint64_t Model::dropout_key(const Pass& pass) {
  const auto at = static_cast<std::uint64_t>(pass.batch->step);
  const auto block = philox4x32(
      pass.batch->seed, {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                         pass.layer.number, static_cast<std::uint32_t>(RngStream::kDropout)});
  return std::uint64_t{block[0]} | std::uint64_t{block[1]} << 32;
}

void Model::drop(const Pass& pass, float* values) {
  const LayerShape& layer = pass.layer;
  const Batch& batch = *pass.batch;
  cpu::Drop by{dropout_key(pass), layer.out.size(), layer.first_column, 0,
               layer.dropout,     scale_of(layer)};
  for (const Node& node : batch.nodes) {
    by.first_row = static_cast<std::uint32_t>(node.first_rank * batch.rows_per_rank);
    on_.drop(context_, node.ranks * batch.rows_per_rank, by,
             values + node.first_row * layer.out.size());
  }
}

Model::Pass Model::pass_of(std::size_t layer, const Rows& rows) {
  return {shape_.layers()[layer],     kept_[layer], values_,    borders_[layer].data(),
          borders_[layer + 1].data(), rows.count,   rows.batch, rows.team};
}

Status Model::run(const Rows& rows, const std::function<Status()>& between) {
  MUSTER_CHECK(rows.count <= rows_max_ && values_ != nullptr);
  for (std::size_t l = 0; l < shape_.layers().size(); ++l) {
    if (l > 0 && between) MUSTER_RETURN_IF_ERROR(between());
    if (shape_.layers()[l].kind == LayerKind::kHead) return {};  // comes with the losses
    if (shape_.layers()[l].is_branch) {
      branch_held_ = l;
      keep_rows(l, rows);
    }
    bring(shape_.layers()[l], rows.batch);
    run_layer(pass_of(l, rows));
    context_.keep_pace();
    if (rows.team != nullptr) MUSTER_RETURN_IF_ERROR(rows.team->status());
  }
  return {};
}

void Model::run_layer(const Pass& pass) {
  switch (pass.layer.kind) {
    case LayerKind::kLinear:
      linear(pass);
      break;
    case LayerKind::kConvolution:
      convolution(pass);
      break;
    case LayerKind::kBatchNorm:
      batch_norm(pass);
      break;
    case LayerKind::kMaxPool:
      on_.max_pool(context_, pass.rows, pass.layer.in, pass.x, pass.y);
      break;
    case LayerKind::kDropout:
      if (pass.batch != nullptr) drop(pass, pass.y);
      break;
    default:
      run_gpt(pass);
  }
}

/// What was not kept of the branch that ends with layer `last`: all of it but what that one puts
/// out, and what the branch reads.
void Model::restore_branch(std::size_t last, const Batch& batch) {
  const std::size_t first = *shape_.layers()[last].adds;
  gather_rows(first, rows_of(batch));
  if (branch_held_ == first) return;
  branch_held_ = first;
  for (std::size_t l = first; l < last; ++l) {
    if (is_made_anew(l)) run_layer(pass_of(l, rows_of(batch)));
  }
}

void Model::forward(std::size_t rows, TensorTeam* team) {
  const Status done = run({rows, nullptr, team}, nullptr);
  MUSTER_CHECK(done || team != nullptr);
}

void Model::forward(const Batch& batch) {
  const Status done = run(rows_of(batch), nullptr);
  MUSTER_CHECK(done || batch.team != nullptr);
}

Status Model::forward(const Batch& batch, const std::function<Status()>& between) {
  return run(rows_of(batch), between);
}

void Model::losses_with_gradient(const Batch& batch, float scale) {
  if (has_head()) {
    head_losses(reachable(batch), scale);
  } else {
    on_.softmax_cross_entropy(context_, batch.rows(), shape_.output().size(), labels_.data(), scale,
                              true, borders_.back().data(), loss_.data(), correct_.data());
  }
  static_cast<void>(context_.finish());  // status() tells
}

void Model::losses(std::size_t rows, TensorTeam* team) {
  if (!has_head()) {
    on_.softmax_cross_entropy(context_, rows, shape_.output().size(), labels_.data(), 1.0f, false,
                              borders_.back().data(), loss_.data(), correct_.data());
  } else {
    const std::size_t at_once = head_positions(), all = rows * positions();
    for (std::size_t first = 0; first < all; first += at_once) {
      const std::size_t some = std::min(at_once, all - first);
      make_logits(first, some);
      losses_at({first, some}, team);
      context_.keep_pace();
    }
  }
  static_cast<void>(context_.finish());  // status() tells
}

std::span<const float> Model::logits(std::size_t label) {
  const std::size_t classes = shape_.output().size() / shape_.targets();
  if (!has_head()) {
    static_cast<void>(context_.finish());
    return borders_.back().subspan(label * classes, classes);
  }
  make_logits(label, 1);
  static_cast<void>(context_.finish());
  return head_logits_.span().first(classes);
}

/// Statistics go the way of the gradients: along the tree over all logical ranks.
void Model::sum_statistics(const Batch& batch) {
  for (std::size_t l = 0; l < shape_.layers().size(); ++l) {
    const LayerShape& layer = shape_.layers()[l];
    if (layer.kind != LayerKind::kBatchNorm) continue;
    const std::size_t channels = layer.in.channels;
    for (const Node& node : batch.nodes) {
      const std::size_t at = node.first_row / batch.rows_per_rank * channels;
      const std::size_t size = node.ranks * channels;
      // The means are wanted again, and a sum over ranks uses its values up.
      context_.copy(dgamma_.data(), kept_[l].mean.data() + at, size * sizeof(float));
      on_.sum_ranks(context_, node.ranks, channels, dgamma_.data(),
                    node.gradient + layer.running_mean);
      on_.sum_ranks(context_, node.ranks, channels, kept_[l].variance.data() + at,
                    node.gradient + layer.running_variance);
    }
  }
}

void Model::linear_weights_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t in = layer.in.size();
  const std::size_t out = layer.out.size();
  for (const Node& node : pass.batch->nodes) {
    on_.linear_backward_weights(context_, node.ranks, pass.batch->rows_per_rank, out, in,
                                pass.x + node.first_row * in, dy + node.first_row * out,
                                node.gradient + layer.weight, node.gradient + layer.bias);
  }
}

void Model::linear_input_back(const Pass& pass, const float* dy, float* dx) {
  const LayerShape& layer = pass.layer;
  multiply_back(pass, dy, layer.reads_rectified ? pass.x : nullptr, dx);
}

void Model::convolution_weights_back(const Pass& pass, const float* dy) {
  const LayerShape& layer = pass.layer;
  for (const Node& node : pass.batch->nodes) {
    convolution_weights_back(pass, node, dy);
    if (!layer.has_bias) continue;
    // Of no taps, which the bias does not need.
    on_.linear_backward_weights(
        context_, node.ranks, pass.batch->rows_per_rank * layer.in.pixels(), layer.out.channels, 0,
        nullptr, dy + node.first_row * layer.out.size(), nullptr, node.gradient + layer.bias);
  }
}

/// The sum over a node's logical ranks is a complete binary tree: some whole subtrees of it are
/// made at once, and what waits for its right neighbour lies as in a binary counter, from the
/// gradient on.
void Model::convolution_weights_back(const Pass& pass, const Node& node, const float* dy) {
  const LayerShape& layer = pass.layer;
  const std::size_t rows_per_rank = pass.batch->rows_per_rank;
  const std::size_t fit = std::max<std::size_t>(1, patch_rows(layer) / rows_per_rank);
  const std::size_t ranks = std::min(node.ranks, std::bit_floor(fit));
  const std::size_t size = weights_of(layer);
  const auto place = [&](std::size_t waiting) {
    if (waiting == 0) return node.gradient + layer.weight;
    return patches_.data() + patch_rows(layer) * patch_size(layer) + (waiting - 1) * size;
  };
  std::size_t waiting = 0;
  for (std::size_t rank = 0; rank < node.ranks; rank += ranks) {
    add_ranks(pass, node.first_row + rank * rows_per_rank, ranks, dy, place(waiting));
    for (std::size_t bits = rank / ranks; (bits & 1) != 0; bits >>= 1, --waiting) {
      on_.add(context_, size, place(waiting - 1), place(waiting), place(waiting - 1));
    }
    ++waiting;
  }
}

/// The sum over a subtree whose patches have room, or over one rank, whose chain goes on from piece
/// to piece.
void Model::add_ranks(const Pass& pass, std::size_t first_row, std::size_t ranks, const float* dy,
                      float* sum) {
  const LayerShape& layer = pass.layer;
  const std::size_t pixels = layer.in.pixels(), out = layer.out.channels;
  const std::size_t taps = layer.side * layer.side * layer.in.channels;
  const std::size_t rows = pass.batch->rows_per_rank, at_once = patch_rows(layer);
  const std::size_t end = first_row + ranks * rows;
  for (std::size_t row = first_row; row < end; row += at_once) {
    const std::size_t some = std::min(at_once, end - row);
    const float* const from = dy + row * layer.out.size();
    on_.gather_patches(context_, some, layer.in, layer.side, pass.x + row * layer.in.size(),
                       patches_.data());
    if (row > first_row) {
      on_.linear_backward_weights_further(context_, some * pixels, out, taps, patches_.data(), from,
                                          sum);
    } else {
      on_.linear_backward_weights(context_, ranks, std::min(rows, at_once) * pixels, out, taps,
                                  patches_.data(), from, sum, nullptr);
    }
  }
}

void Model::convolution_input_back(const Pass& pass, const float* dy, float* dx) {
  const LayerShape& layer = pass.layer;
  const std::size_t at_once = patch_rows(layer);
  for (std::size_t row = 0; row < pass.rows; row += at_once) {
    const std::size_t some = std::min(at_once, pass.rows - row), at = row * layer.in.size();
    on_.linear_backward_input(context_, some * layer.in.pixels(), layer.out.channels,
                              layer.side * layer.side * layer.in.channels,
                              dy + row * layer.out.size(), pass.values + layer.weight, nullptr,
                              patches_.data());
    on_.scatter_patches(context_, some, layer.in, layer.side, patches_.data(),
                        layer.reads_rectified ? pass.x + at : nullptr, dx + at);
  }
}

void Model::batch_norm_back(const Pass& pass, const float* dy, float* dx) {
  const LayerShape& layer = pass.layer;
  const std::size_t channels = layer.in.channels;
  const std::size_t rows = pass.batch->rows_per_rank;
  on_.batch_normalise_backward(context_, pass.rows / rows, rows * layer.in.pixels(), channels,
                               pass.x,
                               {pass.kept.mean.data(), pass.kept.inverse.data(),
                                pass.values + layer.weight, pass.values + layer.bias},
                               dy, dgamma_.data(), dbeta_.data(), dx);
  for (const Node& node : pass.batch->nodes) {
    const std::size_t at = node.first_row / rows * channels;
    on_.sum_ranks(context_, node.ranks, channels, dgamma_.data() + at,
                  node.gradient + layer.weight);
    on_.sum_ranks(context_, node.ranks, channels, dbeta_.data() + at, node.gradient + layer.bias);
  }
}

/// The gradients of one layer; returns that of its input.
float* Model::back(const Pass& pass, float* dy, const Finished& finished) {
  const LayerShape& layer = pass.layer;
  float* dx = gradients_[dy == gradients_[0].data() ? 1 : 0].data();
  const bool is_first = shape_.is_begin() && &layer == &shape_.layers().front();
  const auto tell = [&] {
    if (finished) finished(layer.weight);
  };
  switch (layer.kind) {
    case LayerKind::kLinear:
      linear_weights_back(pass, dy);
      tell();
      if (!is_first) linear_input_back(pass, dy, dx);
      return dx;
    case LayerKind::kConvolution:
      convolution_weights_back(pass, dy);
      tell();
      if (!is_first) convolution_input_back(pass, dy, dx);
      return dx;
    case LayerKind::kBatchNorm:
      batch_norm_back(pass, dy, dx);
      tell();
      return dx;
    case LayerKind::kMaxPool:
      on_.max_pool_backward(context_, pass.rows, layer.in, pass.x, dy, dx);
      return dx;
    case LayerKind::kDropout:
      if (layer.reads_rectified) {
        // What was dropped is +0 and has no gradient already: its reader left it out.
        on_.scale(context_, pass.rows * layer.in.size(), scale_of(layer), dy);
      } else {
        drop(pass, dy);
      }
      return dy;
    default:
      dx = back_gpt(pass, dy, dx);
      if (layer.has_tensors()) tell();
      return dx;
  }
}

std::span<const float> Model::backward(const Batch& batch, const Finished& finished) {
  if (context_.is_host()) return run_back(batch, finished);
  MUSTER_CHECK(shape_.is_begin());
  std::size_t end = shape_.values();
  std::deque<Final> waiting;
  const auto fetch_first = [&] {
    const Final some = waiting.front();
    waiting.pop_front();
    if (fetch_gradients(batch, some) && finished) finished(some.first);
  };
  run_back(reachable(batch), [&](std::size_t first) {
    waiting.push_back({first, std::exchange(end, first), context_.keep_pace()});
    if (waiting.size() > kLayersAhead) fetch_first();
  });
  while (!waiting.empty()) fetch_first();
  MUSTER_CHECK(end == 0);  // the first layer with tensors has the first values
  return {};
}

std::span<const float> Model::run_back(const Batch& batch, const Finished& finished) {
  const std::size_t rows = batch.rows();
  float* dy = has_head() ? gradients_[0].data() : borders_.back().data();
  if (!shape_.is_end()) dy = output_gradient().data();
  sum_statistics(batch);
  for (std::size_t l = shape_.layers().size() - (has_head() ? 1 : 0); l-- > 0;) {
    if (shape_.layers()[l].adds) restore_branch(l, batch);
    dy = back(pass_of(l, rows_of(batch)), dy, finished);
    if (batch.team != nullptr && !batch.team->status()) return {};
  }
  if (shape_.is_begin()) return {};
  return {dy, rows * shape_.input().size()};
}

}  // namespace muster::engine
