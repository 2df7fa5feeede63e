// A multi-layer perceptron with ReLU between its layers and softmax cross-entropy at its end, over
// a flat parameter buffer: layer 0's weight, its bias, layer 1's weight, ... without padding. The
// graph is static: one arena for all activations, no tape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace muster::engine {

struct MlpShape {
  std::vector<std::size_t> widths;  ///< features, hidden..., classes; at least two

  struct Tensor {
    std::string name;                ///< layers.N.weight or layers.N.bias
    std::vector<std::size_t> shape;  ///< weight (in, out), bias (out)
    std::size_t offset = 0;          ///< in the flat buffer
    std::size_t size = 0;
  };

  std::size_t layers() const { return widths.size() - 1; }
  std::size_t parameters() const;
  /// In the order of the flat buffer: weight of layer l at 2 l, its bias at 2 l + 1.
  std::vector<Tensor> tensors() const;
};

/// First parameters: weights uniform in +-sqrt(6 / fan_in) from the counter generator, biases 0.
/// Shape: parameters (shape.parameters()).
void initialise(const MlpShape& shape, std::uint64_t seed, std::span<float> parameters);

class Mlp {
 public:
  /// `rows_max` rows at once. `context` outlives the model.
  Mlp(MlpShape shape, std::size_t rows_max, kernels::cpu::Context& context);

  const MlpShape& shape() const { return shape_; }
  std::size_t rows_max() const { return rows_max_; }
  /// Filled by the caller before forward().  Shape: (rows_max, features), (rows_max).
  std::span<float> input() { return activations_[0]; }
  std::span<std::int32_t> labels() { return labels_; }

  /// Logits of the first `rows` rows.
  void forward(std::span<const float> parameters, std::size_t rows);

  /// From logits to losses, and to the logits' gradient times `scale` in their place.
  void losses_with_gradient(std::size_t rows, float scale);
  /// The same without touching the logits.
  void losses(std::size_t rows);
  /// Of every row, after one of the two above.
  std::span<const float> loss() const { return loss_; }
  std::span<const float> correct() const { return correct_; }

  /// Rows [first_row, first_row + ranks x rows_per_rank): their gradient goes to `gradient`, in the
  /// order of the flat buffer.
  struct Node {
    std::size_t first_row = 0, ranks = 0;
    float* gradient = nullptr;
  };
  /// Gradients of the parameters by node, after losses_with_gradient().
  void backward(std::span<const float> parameters, std::size_t rows, std::size_t rows_per_rank,
                std::span<const Node> nodes);

 private:
  MlpShape shape_;
  std::size_t rows_max_;
  kernels::cpu::Context& context_;
  std::vector<MlpShape::Tensor> tensors_;
  std::vector<float> arena_;
  std::vector<std::span<float>> activations_;  ///< by layer border: input, ..., logits
  std::span<float> gradients_[2];              ///< of hidden activations, in turn
  std::vector<std::int32_t> labels_;
  std::vector<float> loss_, correct_;
};

}  // namespace muster::engine
