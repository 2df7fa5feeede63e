// What a model is made of: its layers, and where each of their tensors lies in the flat buffer.
// Pure description; engine/model computes.
//
// The flat buffer of a model holds the parameters, tensor after tensor in the order of the layers
// without padding, and behind them what is not trained but belongs to the model: running means and
// variances. Gradients have the same layout, with the statistics of a step in the place of the
// running ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kernels/ops.h"
#include "worker/engine/training.h"

namespace muster::engine {

using kernels::Extent;

enum class LayerKind {
  kLinear,
  kConvolution,
  kBatchNorm,
  kMaxPool,
  kDropout,
  kEmbedding,   ///< tokens to the sum of their rows and their positions' rows of two tables
  kLayerNorm,   ///< of each position
  kProjection,  ///< a linear layer of each position
  kGelu,
  kAttention,  ///< causal; a position's query, key and value to their heads' answers
  kHead        ///< each position against every row of the embedding's table
};

/// What of a layer a process has where it is divided between several (ModelShape::slice).
enum class LayerPart {
  kWhole,    ///< all of it, as each of the others
  kColumns,  ///< some of its outputs, of all its inputs
  kRows      ///< all its outputs, of some of its inputs: one part of their chains
};

struct LayerShape {
  LayerKind kind = LayerKind::kLinear;
  Extent in, out;
  LayerPart part = LayerPart::kWhole;
  std::size_t column_groups = 1;  ///< of kColumns: it has some columns of each; query, key, value
  std::size_t first_column = 0;   ///< of a dropout between divided layers, or a divided head; of a
                                  ///< divided embedding the first token that it has; of a
                                  ///< divided attention the first head
  bool is_rectified = false;      ///< ReLU is its last operation
  bool reads_rectified = false;   ///< its input is +0 where a ReLU cut it, and carries no gradient
                                  ///< there
  std::size_t side = 0;           ///< of a convolution's kernel
  float dropout = 0;              ///< the share of its input that it drops; of a branch's last
                                  ///< projection, of what it adds; of an attention, of its weights
  std::uint32_t number = 0;       ///< of what drops among all that do
  std::size_t heads = 0;          ///< of an attention
  std::optional<std::size_t> adds{};  ///< the border before that layer is added to its output
  bool is_branch = false;             ///< what it reads also goes past it, to be added later
  std::string name;                   ///< of its tensors, before the last dot; empty: it has none
  // Offsets in the flat buffer, where it has them; a head's weight is the embedding's.
  std::size_t weight = 0, bias = 0;
  bool has_bias = false;
  std::size_t running_mean = 0, running_variance = 0;
  std::size_t positions = 0;    ///< of an embedding's second table
  std::size_t tokens = 0;       ///< of an embedding or a head: rows of the whole table
  std::size_t tokens_most = 0;  ///< of a head: of them the most that any process has

  bool has_tensors() const { return !name.empty(); }
};

struct Tensor {
  std::string name;  ///< layers.N.weight ..., N counting the layers that have tensors; of a GPT
                     ///< those of GPT-2's published checkpoints: h.0.attn.c_proj.bias ...
  std::vector<std::size_t> shape;
  std::size_t offset = 0;    ///< in the flat buffer
  std::uint32_t number = 0;  ///< its place among the tensors of the whole model
  std::size_t size = 0;
  float bound = 0;  ///< above 0: its first values are uniform within +-bound, else all are `first`
  float first = 0;
  // Of a slice, where its values lie among those of the whole tensor: in runs that are `stride`
  // apart, the first from `begin` on.
  std::size_t run = 0, stride = 0, begin = 0;
  /// Of those processes with the same values of it, this one speaks for all.
  bool is_counted = true;
  std::size_t index_in_whole(std::size_t i) const { return begin + i / run * stride + i % run; }
};

class ModelShape {
 public:
  /// Before the first layer is added the output is the input.
  explicit ModelShape(Extent input = {}) : input_(input) {}

  // Each adds a layer to the end.
  ModelShape& linear(std::size_t width, bool rectify);
  /// Side odd; with a bias unless a batch normalisation follows and would take it out again.
  struct Convolution {
    std::size_t channels = 1, side = 3;
    bool normalise = false;
  };
  /// Convolution, batch normalisation where wanted, ReLU, 2 x 2 max pooling.
  ModelShape& stage(const Convolution& convolution);
  /// Nothing where `share` is 0. Its input must be rectified, or a transformer's stream.
  ModelShape& dropout(float share);
  /// Places the running statistics; the last call.
  ModelShape& finish();

  /// Linear layers of these widths, input first, with ReLU and dropout between them.
  static ModelShape mlp(std::span<const std::size_t> widths, float dropout = 0);
  /// A transformer as GPT-2 (Radford et al. 2019): learned positions, normalisation before each
  /// branch, GELU, the head tied to the embedding. Its input is config.context_length tokens below
  /// `tokens`, its output that many logits for each of them.
  static ModelShape gpt(const GptConfig& config, std::size_t tokens);
  /// Errors: kInvalid naming the field of the spec, exit code kInvalidSpec: the images are too
  /// small to be halved by every stage. So each batch normalisation has at least four values a
  /// channel. Of a GPT `image` counts for nothing.
  static Result<ModelShape> of(const TrainingConfig& config, const Extent& image, int classes);

  /// Layers [first, last) as a model of its own, with a flat buffer of its own, which computes what
  /// they compute in the whole one. What holds a head takes the embedding along, whose table that
  /// is: not as a layer, but as tied_embedding(), with its tensors before all others. No branch of
  /// a transformer may be cut.
  ModelShape cut(std::size_t first, std::size_t last) const;

  /// What one of `slices` processes has of this part of a model, with a flat buffer of its own.
  /// Linear layers are divided in pairs, as those of a transformer's branches: the first by its
  /// outputs, the second by its inputs, and what is between them with them; and a transformer's
  /// table by its rows where it has enough (divided_table.h). All else each process has whole; of
  /// that the first one counts. Source: Shoeybi et al., arXiv:1909.08053.
  /// Requires check_slices().
  ModelShape slice(std::size_t slices, std::size_t index) const;
  /// Errors: kInvalid naming the field of the spec, exit code kInvalidSpec: it cannot be divided.
  Status check_slices(std::size_t slices) const;
  /// Of a whole GPT one that reads the first `count` tokens of a context alone, with the same flat
  /// buffer: for passes without gradients. What it computes of them are the same bits, because no
  /// position depends on a later one.
  ModelShape first_positions(std::size_t count) const;
  /// Of how many this is one; 1: it is not divided.
  std::size_t slices() const { return slices_; }

  const Extent& input() const { return input_; }
  const Extent& output() const { return layers_.empty() ? input_ : layers_.back().out; }
  /// Whether a row of the input is a sequence of tokens, each with a label of its own.
  bool reads_tokens() const { return !layers_.empty() && layers_[0].kind == LayerKind::kEmbedding; }
  /// Whether its input is that of the whole model, of which no gradient is wanted.
  bool is_begin() const { return is_begin_; }
  /// Whether losses are made of what it puts out.
  bool is_end() const { return is_end_; }
  /// Whether it has some rows of its embedding's table and others of its team the rest.
  bool has_divided_table() const;
  bool has_head() const { return !layers_.empty() && layers_.back().kind == LayerKind::kHead; }
  /// Of a part of a model that has the head and not the embedding.
  const std::optional<LayerShape>& tied_embedding() const { return tied_embedding_; }
  /// Labels of one row, and losses.
  std::size_t targets() const { return has_head() ? output().pixels() : 1; }
  const std::vector<LayerShape>& layers() const { return layers_; }
  /// Whether what a layer puts out is read within a transformer's branch alone.
  bool is_within_branch(std::size_t layer) const;
  /// Trained values: the first of the flat buffer.
  std::size_t parameters() const { return parameters_; }
  /// Running means and variances: the rest of it.
  std::size_t running() const { return running_; }
  std::size_t values() const { return parameters_ + running_; }
  /// Multiplications with parameters in the forward pass of one row.
  std::uint64_t products() const;
  /// Where each layer's parameters begin in the flat buffer, ascending.
  std::vector<std::size_t> layer_starts() const;
  /// In the order of the flat buffer.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Those of them that are trained.
  std::span<const Tensor> trained() const { return std::span(tensors_).first(trained_); }
  /// One line a layer, for what must be equal between two runs.
  std::vector<std::string> description() const;

 private:
  LayerShape& add(LayerKind kind, const Extent& out, std::string name = {});
  std::string numbered() { return "layers." + std::to_string(numbered_++); }
  void normalise();
  void layer_norm(const std::string& name, bool is_branch);
  void projection(const std::string& name, std::size_t width, float bound);
  void attention(std::size_t heads, float dropout);
  void embedding(std::size_t tokens, std::size_t width);
  std::size_t add_tensor(const std::string& name, std::vector<std::size_t> shape);
  std::size_t copy_tensor(const ModelShape& from, std::size_t offset);
  void copy_tensors(const ModelShape& from, LayerShape& layer);
  void divide_layers(std::size_t slices, std::size_t index);
  void divide_table(std::size_t slices, std::size_t index);

  Extent input_;
  std::vector<LayerShape> layers_;
  std::vector<Tensor> tensors_;
  std::size_t trained_ = 0, parameters_ = 0, running_ = 0;
  std::size_t numbered_ = 0;  ///< layers that have a number in their name
  std::uint32_t dropouts_ = 0;
  bool is_begin_ = true, is_end_ = true;
  std::size_t slices_ = 1;
  std::optional<LayerShape> tied_embedding_;
};

/// First values: weights uniform in +-sqrt(6 / fan_in) from the counter generator, those of a GPT
/// with its deviation of 0.02; scales and running variances 1; all else 0.
/// `on_alive` is called often: of a large model it takes minutes.  Shape: values (shape.values()).
void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> values,
                const std::function<void()>& on_alive = nullptr);

/// The running means and variances after a step, from the sums over all logical ranks that stand
/// behind the gradients. Shape: sums (at least shape.running()), values (shape.values()), of which
/// the parameters are not touched.
void update_running(const ModelShape& shape, int logical_ranks, std::span<const float> sums,
                    std::span<float> values);

}  // namespace muster::engine
