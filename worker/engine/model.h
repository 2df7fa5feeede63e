// A model as a static graph: its layers one after another, softmax cross-entropy at the end, one
// arena for everything they need, no tape. A part of a model (ModelShape::cut) is one, too: what
// the part before it puts out is its input, and where others follow it has no losses.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/memory.h"
#include "kernels/operations.h"
#include "kernels/ops.h"
#include "worker/data/dataset.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/tensor_team.h"

namespace muster::engine {

/// What becomes of what the layers of a transformer's branches have put out: it is kept until the
/// backward pass, or made anew from the branch's beginning when that comes to it. The same bits,
/// for a part of a forward pass more and the memory of one branch instead of all.
/// Source: Chen et al., arXiv:1604.06174.
///
/// Of slices each would keep the same of what is not divided. The normalisation at a branch's
/// beginning is made anew from what the branch reads; and of that, with recomputation, each slice
/// keeps its rows alone, which are gathered when the backward pass comes to the branch.
/// Source: Korthikanti et al., arXiv:2205.05198.
enum class Activations { kKept, kRecomputed };

/// Passes are computed where `context` says. Values and gradients are the host's all the same:
/// where operations do not reach the host's memory, the model has memory of its own for them, to
/// which the first forward pass copies values, and from which each backward pass copies gradients,
/// layer by layer, while the device computes others.
class Model {
 public:
  /// `rows_max` rows at once. `context` outlives the model. A slice, and a part of a model whose
  /// table is elsewhere (Batch::tables), are computed by the host alone. Of convolutions, patches
  /// of at most `patch_bytes` are laid out at once, or of one row; the bits are the same. 0: as
  /// many as suit the context's threads, or the device.
  Model(ModelShape shape, std::size_t rows_max, kernels::Context& context,
        Activations activations = Activations::kKept, std::size_t patch_bytes = 0);

  const ModelShape& shape() const { return shape_; }
  std::size_t rows_max() const { return rows_max_; }
  /// What a model of so many rows takes, and all that its passes need beside values and gradients,
  /// of a context with so many threads. But for table_bytes().
  static std::size_t bytes(const ModelShape& shape, std::size_t rows_max, Activations activations,
                           int threads);
  /// What its passes with gradients take where a model has its embedding and its head, one table
  /// for both: a gradient of it for each logical rank of a batch, but for the first one of each
  /// node.
  static std::size_t table_bytes(const ModelShape& shape, std::size_t later_ranks);
  /// What a context of so many threads keeps for passes with gradients over so many rows: scratch
  /// memory of operations.
  static std::size_t scratch_bytes(const ModelShape& shape, std::size_t rows, int threads);
  /// Of one pass: its nodes, and its logical ranks but the first of each node.
  struct PassSize {
    std::size_t nodes = 0, further_ranks = 0;
  };
  /// The same of a device, values and gradients included, where passes are at most so large.
  static std::size_t device_bytes(const ModelShape& shape, std::size_t rows_max,
                                  Activations activations, PassSize most);
  /// Of what all passes need beside the values and the gradients.
  std::size_t arena_bytes() const {
    return (arena_.size() + patches_.size() + head_logits_.size()) * sizeof(float);
  }
  /// Filled by the caller before a forward pass. A model that reads tokens has no input(), all
  /// others no tokens().  Shape: (rows_max, input), (rows_max, input), (rows_max, targets).
  std::span<float> input() { return borders_[0]; }
  std::span<std::int32_t> tokens() { return tokens_.span(); }
  std::span<std::int32_t> labels() { return labels_.span(); }
  /// Of a part that others follow: after a forward pass, what the next one reads.
  /// Shape: (rows_max, output).
  std::span<const float> output() const { return borders_.back(); }
  /// Of the same: filled by the caller before a backward pass, and used up by it.
  std::span<float> output_gradient() { return has_stream() ? stream_ : gradients_[0]; }
  /// The first error of the device that computes: then what was computed since the last call is of
  /// no worth. To be asked after losses and after a backward pass.  Exit code: kDevice.
  Status status();
  /// Gives back what of a device's memory depends on the nodes of a pass, before these are others.
  void forget_nodes();
  /// Fills one row with a sample.  Errors: as data::read_sample and data::read_image.
  Status set_row(std::size_t row, const data::Dataset& samples, std::size_t index);

  /// Rows [first_row, first_row + ranks x rows_per_rank) of the logical ranks from `first_rank` on:
  /// their gradient and statistics go to `gradient`, in the order of the flat buffer.
  struct Node {
    std::size_t first_row = 0, ranks = 0;
    float* gradient = nullptr;
    std::size_t first_rank = 0;
  };
  /// The rows of one pass of training: those of its nodes, one node after another.
  struct Batch {
    std::uint64_t seed = 0;
    std::int64_t step = 0;  ///< steps done before
    std::size_t rows_per_rank = 1;
    std::span<const Node> nodes;
    /// Where a head without its embedding puts its share in the gradient of the table, by logical
    /// rank of the pass.  Shape: (ranks, table).
    std::span<float> tables{};
    /// Those between whom the model is divided, where it is a slice. An error is found there: then
    /// what a pass has computed is of no worth.
    TensorTeam* team = nullptr;
    std::size_t rows() const;
    std::size_t ranks() const { return rows() / rows_per_rank; }
  };

  /// What all passes compute with until the next call, while they stay as they are; to be called
  /// again for others, also where these lie in the same place.  Shape: (shape.values()).
  void use(std::span<const float> values);

  /// As evaluation wants it: no dropout, running statistics. `team`: as Batch::team.
  void forward(std::size_t rows, TensorTeam* team = nullptr);
  /// Of a training step; the batch outlives backward().
  void forward(const Batch& batch);
  /// The same; `between`, where there is one, is called between two layers, and its error is where
  /// the pass ends.
  Status forward(const Batch& batch, const std::function<Status()>& between);

  /// Losses after a forward pass of the same batch, and their gradient times `scale`. Of a head's
  /// logits only those of some positions are there at a time.
  void losses_with_gradient(const Batch& batch, float scale);
  /// Without the gradient. `team`: as Batch::team.
  void losses(std::size_t rows, TensorTeam* team = nullptr);
  /// Of every row's labels, after one of the two above.  Shape: (rows_max, targets).
  std::span<const float> loss() const { return loss_.span(); }
  std::span<const float> correct() const { return correct_.span(); }
  /// What decides one label, after an evaluation's forward pass and until the next call; of a
  /// divided head, of those tokens that this process has.
  /// Shape: (output.size() / targets).
  std::span<const float> logits(std::size_t label);

  /// Told that from value `first` on all nodes' gradients are final; `first` descends to 0.
  using Finished = std::function<void(std::size_t first)>;
  /// Every value of every node's gradient, after losses_with_gradient() of the same batch: the
  /// statistics first, then layer by layer from the last one on. `finished` is called after each
  /// layer that has gradients; a device computes those before it meanwhile. Returns the gradient of
  /// the input, until the next backward pass, of a part that others precede.  Shape: (rows, input).
  /// A tied embedding's tensors are left out.
  std::span<const float> backward(const Batch& batch, const Finished& finished = nullptr);

  /// What is to be known of one node to end the gradient of the table that embedding and head
  /// share: the head's share by logical rank, in place of the first of which the sum comes, the
  /// node's tokens, and the gradient of what they were embedded as.
  struct TableParts {
    const Node& node;
    std::span<float* const> tables;
    const std::int32_t* tokens;
    const float* dy;
  };
  /// Of a logical rank the head's chain, which the embedding's additions go on with; then the tree
  /// over the ranks. The positions' gradient goes to the node's.
  static void finish_table(kernels::Context& context, const LayerShape& embedding,
                           std::size_t rows_per_rank, const TableParts& parts);

 private:
  /// What layers keep from their forward pass: of a batch normalisation by logical rank, of a layer
  /// normalisation by position, of an attention by head and position.
  struct Kept {
    std::span<float> mean, inverse, variance;
    std::span<float> greatest, total;
    std::span<float> rows;  ///< of what a branch reads those that are this process's to keep
  };
  /// One layer's pass over some rows. In a backward pass `dy` is the gradient of its output, and
  /// `dx` takes that of its input unless it is nullptr.
  struct Pass {
    const LayerShape& layer;
    const Kept& kept;
    const float* values;
    const float* x;
    float* y;
    std::size_t rows;
    const Batch* batch;  ///< nullptr: evaluation
    TensorTeam* team;
  };
  /// Hands out parts of the arena, of so many values a row.
  using Take = std::function<std::span<float>(std::size_t columns)>;
  /// How much of patches is laid out at once: of so many bytes, or of so many pixels where that is
  /// more, as far as these are no more than `most` bytes; and always one row's.
  struct PatchRoom {
    std::size_t bytes = 0, pixels = 0, most = 0;
    static PatchRoom of_host(int threads);
    static PatchRoom of(kernels::Context& context);
    /// Of a pass, for a convolution.
    std::size_t rows(const LayerShape& layer) const;
  };
  struct Unreserved {};
  Model(ModelShape shape, std::size_t rows_max, kernels::Context& context, Activations activations,
        PatchRoom patch_room, Unreserved);
  /// What it will take, of one that has taken nothing yet.
  std::size_t bytes();
  /// Where operations do not reach the host's memory: those of the values that `layer` needs.
  void bring(const LayerShape& layer, const Batch* batch);
  /// A batch whose gradients are where operations reach them.
  const Batch& reachable(const Batch& batch);
  /// Of all nodes' gradients some that are final with a part of the backward pass.
  struct Final {
    std::size_t first = 0, end = 0;
    std::uint64_t part = 0;
  };
  /// To the host.
  bool fetch_gradients(const Batch& batch, const Final& some);
  /// For what only the host computes.
  kernels::cpu::Context& host() const;
  std::size_t arena_floats();
  /// Rows of a pass whose patches are laid out at once.
  std::size_t patch_rows(const LayerShape& layer) const;
  /// Of all that convolutions lay out at once, and of sums of their weights' gradients that wait.
  std::size_t patch_floats() const;
  std::size_t head_positions() const;
  std::size_t head_floats() const;
  void reserve();
  void deal(const Take& take);
  void deal_borders(const Take& take);
  bool is_made_anew(std::size_t layer) const;
  bool divides_stream() const;
  bool is_divided(std::size_t layer) const;
  /// How many rows there are, of which training step, if of any.
  struct Rows {
    std::size_t count;
    const Batch* batch;
    TensorTeam* team;
  };
  static Rows rows_of(const Batch& batch) { return {batch.rows(), &batch, batch.team}; }
  Status run(const Rows& rows, const std::function<Status()>& between);
  void run_layer(const Pass& pass);
  Pass pass_of(std::size_t layer, const Rows& rows);
  void multiply(const Pass& pass, kernels::Activation activation);
  void multiply_back(const Pass& pass, const float* dy, const float* relu_output, float* dx);
  void restore_branch(std::size_t last, const Batch& batch);
  void keep_rows(std::size_t branch, const Rows& rows);
  void gather_rows(std::size_t branch, const Rows& rows);
  void linear(const Pass& pass);
  void convolution(const Pass& pass);
  void batch_norm(const Pass& pass);
  static std::uint64_t dropout_key(const Pass& pass);
  void drop(const Pass& pass, float* values);
  void sum_statistics(const Batch& batch);
  void linear_weights_back(const Pass& pass, const float* dy);
  void linear_input_back(const Pass& pass, const float* dy, float* dx);
  void convolution_weights_back(const Pass& pass, const float* dy);
  void convolution_weights_back(const Pass& pass, const Node& node, const float* dy);
  void add_ranks(const Pass& pass, std::size_t first_row, std::size_t ranks, const float* dy,
                 float* sum);
  void convolution_input_back(const Pass& pass, const float* dy, float* dx);
  void batch_norm_back(const Pass& pass, const float* dy, float* dx);
  float* back(const Pass& pass, float* dy, const Finished& finished);
  std::span<const float> run_back(const Batch& batch, const Finished& finished);

  // model_gpt.cpp: layers of a transformer
  /// Rows that attention takes at once, and what of their weights is dropped.
  struct Attended {
    kernels::cpu::AttentionShape shape;
    kernels::cpu::WeightDrop drop;
    std::size_t first_row = 0;  ///< of the pass
  };
  static std::vector<Attended> attended(const Pass& pass);
  void attend(const Pass& pass);
  void attend_back(const Pass& pass, const float* dy, float* dx);
  void run_gpt(const Pass& pass);
  void project(const Pass& pass);
  float* back_gpt(const Pass& pass, const float* dy, float* dx);
  const float* dropped_gradient(const Pass& pass, const float* dy);
  void projection_weights_back(const Pass& pass, const float* dy);
  void layer_norm_weights_back(const Pass& pass, const float* dy);
  void embedding_back(const Pass& pass, const float* dy);
  bool has_head() const { return shape_.has_head(); }
  /// Whether there are branches, which the gradient of the stream goes past.
  bool has_stream() const { return !stream_.empty(); }
  std::size_t positions() const { return shape_.input().pixels(); }
  const float* head_input(std::size_t position) const;
  void make_logits(std::size_t first, std::size_t positions);
  void head_losses(const Batch& batch, float scale);
  /// The positions of one logical rank, and where its head's share in the table's gradient goes.
  struct RankOfHead {
    std::size_t first = 0, positions = 0;
    float* table = nullptr;
  };
  void rank_losses(const Batch& batch, const RankOfHead& rank, float scale);
  /// Losses from the logits of some positions, and what becomes of these.
  struct LossOf {
    std::size_t first = 0, positions = 0;
    float scale = 1;
    bool with_gradient = false;
  };
  void losses_at(const LossOf& of, TensorTeam* team);
  void head_input_back(TensorTeam* team, std::size_t first, std::size_t positions);
  /// Floats of the table that embedding and head share.
  std::size_t table_size() const;
  float* table_of(const Batch& batch, std::size_t node, std::size_t rank);

  /// Added to variances before their root.
  static constexpr float kEpsilon = 1e-5f;

  ModelShape shape_;
  std::size_t rows_max_;
  kernels::Context& context_;
  const kernels::Operations& on_;
  const Activations activations_;
  const PatchRoom patch_room_;
  const float* values_ = nullptr;    ///< where operations reach them
  std::span<const float> to_bring_;  ///< of those in use the last ones, if they are not there yet
  std::size_t branch_held_ = 0;      ///< first layer of the branch whose borders are in memory
  kernels::Memory<float> arena_;
  std::vector<std::span<float>> borders_;  ///< by layer border: input, ..., logits unless a head
                                           ///< makes them; a dropout's two are one, and so is what
                                           ///< branches use in turn
  std::vector<Kept> kept_;                 ///< by layer
  std::span<float> gradients_[2];          ///< of borders, in turn
  std::span<float> stream_;                ///< gradient of what goes past a transformer's branches
  std::span<float> dgamma_, dbeta_;        ///< of the batch normalisation under way, by rank
  kernels::Memory<float> head_logits_;     ///< of some positions
  kernels::Memory<float> patches_;  ///< of some rows of the convolution under way, and sums behind
  /// The head's share in the gradient of the table, by logical rank of the pass but each node's
  /// first, whose lies in the gradient; it waits for the embedding's. Without that: Batch::tables.
  kernels::Memory<float> tables_;
  kernels::Memory<std::int32_t> tokens_, labels_;
  kernels::Memory<float> loss_, correct_;
  std::vector<std::uint8_t> image_;  ///< that is being read

  // Only where operations do not reach the host's memory.
  kernels::Memory<float> brought_, node_gradients_;
  Batch reachable_;
  std::vector<Node> reachable_nodes_;
};

}  // namespace muster::engine
