// A model as a static graph: its layers one after another, softmax cross-entropy at the end, one
// arena for everything they need, no tape.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "worker/engine/model_shape.h"

namespace muster::engine {

class Model {
 public:
  /// `rows_max` rows at once. `context` outlives the model.
  Model(ModelShape shape, std::size_t rows_max, kernels::cpu::Context& context);

  const ModelShape& shape() const { return shape_; }
  std::size_t rows_max() const { return rows_max_; }
  /// Filled by the caller before a forward pass.  Shape: (rows_max, input), (rows_max).
  std::span<float> input() { return borders_[0]; }
  std::span<std::int32_t> labels() { return labels_; }

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
    std::size_t rows() const;
  };

  /// Logits as evaluation wants them: no dropout, running statistics.
  /// Shape: values (shape.values()).
  void forward(std::span<const float> values, std::size_t rows);
  /// Logits of a training step; the batch outlives backward().
  void forward(std::span<const float> values, const Batch& batch);

  /// From logits to losses, and to the logits' gradient times `scale` in their place.
  void losses_with_gradient(std::size_t rows, float scale);
  /// The same without touching the logits.
  void losses(std::size_t rows);
  /// Of every row, after one of the two above.
  std::span<const float> loss() const { return loss_; }
  std::span<const float> correct() const { return correct_; }

  /// Told that from value `first` on all nodes' gradients are final; `first` descends to 0.
  using Finished = std::function<void(std::size_t first)>;
  /// Every value of every node's gradient, after losses_with_gradient() of the same batch: the
  /// statistics first, then layer by layer from the last one on. `finished` is called after each
  /// layer that has gradients.
  void backward(std::span<const float> values, const Batch& batch,
                const Finished& finished = nullptr);

 private:
  /// Statistics that a batch normalisation keeps from its forward pass, by logical rank.
  struct Kept {
    std::span<float> mean, inverse, variance;
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
  };
  void reserve();
  void run(std::span<const float> values, std::size_t rows, const Batch* batch);
  void linear(const Pass& pass);
  void convolution(const Pass& pass);
  void batch_norm(const Pass& pass);
  void drop(const Pass& pass);
  void sum_statistics(const Batch& batch);
  void linear_weights_back(const Pass& pass, const float* dy);
  void linear_input_back(const Pass& pass, const float* dy, float* dx);
  void convolution_weights_back(const Pass& pass, const float* dy);
  void convolution_input_back(const Pass& pass, const float* dy, float* dx);
  void batch_norm_back(const Pass& pass, const float* dy, float* dx);

  ModelShape shape_;
  std::size_t rows_max_;
  kernels::cpu::Context& context_;
  std::vector<float> arena_;
  std::vector<std::span<float>> borders_;  ///< by layer border: input, ..., logits; a dropout's two
                                           ///< are one
  std::vector<Kept> kept_;                 ///< by layer
  std::span<float> gradients_[2];          ///< of borders, in turn
  std::span<float> patches_;               ///< of the convolution under way
  std::span<float> dgamma_, dbeta_;        ///< of the batch normalisation under way, by rank
  std::vector<std::int32_t> labels_;
  std::vector<float> loss_, correct_;
};

}  // namespace muster::engine
