// What a model is made of: its layers, and where each of their tensors lies in the flat buffer.
// Pure description; engine/model computes.
//
// The flat buffer of a model holds the parameters, tensor after tensor in the order of the layers
// without padding, and behind them what is not trained but belongs to the model: running means and
// variances. Gradients have the same layout, with the statistics of a step in the place of the
// running ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "kernels/ops.h"
#include "worker/engine/training.h"

namespace muster::engine {

using kernels::Extent;

enum class LayerKind { kLinear, kConvolution, kBatchNorm, kMaxPool, kDropout };

struct LayerShape {
  LayerKind kind = LayerKind::kLinear;
  Extent in, out;
  bool is_rectified = false;     ///< ReLU is its last operation
  bool reads_rectified = false;  ///< its input is +0 where a ReLU cut it, and carries no gradient
                                 ///< there
  std::size_t side = 0;          ///< of a convolution's kernel
  float dropout = 0;             ///< the share of its input that it drops
  std::uint32_t number = 0;      ///< of a dropout among the dropouts
  std::size_t name = 0;          ///< N of its tensors' names
  // Offsets in the flat buffer, where it has them.
  std::size_t weight = 0, bias = 0;
  bool has_bias = false;
  std::size_t running_mean = 0, running_variance = 0;

  bool has_tensors() const { return kind != LayerKind::kMaxPool && kind != LayerKind::kDropout; }
};

struct Tensor {
  std::string name;  ///< layers.N.weight ...; N counts the layers that have tensors
  std::vector<std::size_t> shape;
  std::size_t offset = 0;  ///< in the flat buffer
  std::size_t size = 0;
  bool is_random = false;  ///< its first values come from the generator, else all are `first`
  std::size_t fan_in = 0;
  float first = 0;
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
  /// Nothing where `share` is 0.
  ModelShape& dropout(float share);
  /// Places the running statistics; the last call.
  ModelShape& finish();

  /// Linear layers of these widths, input first, with ReLU and dropout between them.
  static ModelShape mlp(std::span<const std::size_t> widths, float dropout = 0);
  /// Errors: kInvalid naming the field of the spec, exit code kInvalidSpec: the images are too
  /// small to be halved by every stage. So each batch normalisation has at least four values a
  /// channel.
  static Result<ModelShape> of(const TrainingConfig& config, const Extent& image, int classes);

  const Extent& input() const { return input_; }
  const Extent& output() const { return layers_.empty() ? input_ : layers_.back().out; }
  const std::vector<LayerShape>& layers() const { return layers_; }
  /// Trained values: the first of the flat buffer.
  std::size_t parameters() const { return parameters_; }
  /// Running means and variances: the rest of it.
  std::size_t running() const { return running_; }
  std::size_t values() const { return parameters_ + running_; }
  /// Where each layer's parameters begin in the flat buffer, ascending.
  std::vector<std::size_t> layer_starts() const;
  /// In the order of the flat buffer.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Those of them that are trained.
  std::span<const Tensor> trained() const { return std::span(tensors_).first(trained_); }
  /// One line a layer, for what must be equal between two runs.
  std::vector<std::string> description() const;

 private:
  LayerShape& add(LayerKind kind, const Extent& out);
  void normalise();
  std::size_t add_tensor(const LayerShape& layer, const char* name, std::vector<std::size_t> shape);

  Extent input_;
  std::vector<LayerShape> layers_;
  std::vector<Tensor> tensors_;
  std::size_t trained_ = 0, parameters_ = 0, running_ = 0;
  std::size_t named_ = 0;  ///< layers that have tensors
  std::uint32_t dropouts_ = 0;
};

/// First values: weights uniform in +-sqrt(6 / fan_in) from the counter generator; scales and
/// running variances 1; all else 0. Shape: values (shape.values()).
void initialise(const ModelShape& shape, std::uint64_t seed, std::span<float> values);

/// The running means and variances after a step, from the sums over all logical ranks that stand
/// behind the gradients. Shape: sums (at least shape.running()), values (shape.values()), of which
/// the parameters are not touched.
void update_running(const ModelShape& shape, int logical_ranks, std::span<const float> sums,
                    std::span<float> values);

}  // namespace muster::engine
