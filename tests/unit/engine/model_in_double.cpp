#include "tests/unit/engine/model_in_double.h"

#include <algorithm>
#include <cmath>

#include "common/rng.h"
#include "tests/unit/engine/gpt_in_double.h"

namespace muster::test {
namespace {

using engine::Extent;
using engine::LayerKind;
using engine::LayerShape;
using Values = std::vector<double>;

double rectified(const LayerShape& layer, double value) {
  return layer.is_rectified ? std::max(value, 0.0) : value;
}

Values linear(const LayerShape& layer, const Values& values, const Values& x) {
  Values y(layer.out.size());
  for (std::size_t n = 0; n < y.size(); ++n) {
    y[n] = values[layer.bias + n];
    for (std::size_t k = 0; k < x.size(); ++k) {
      y[n] += x[k] * values[layer.weight + k * y.size() + n];
    }
    y[n] = rectified(layer, y[n]);
  }
  return y;
}

Values convolution(const LayerShape& layer, const Values& values, const Values& x) {
  const auto height = static_cast<std::ptrdiff_t>(layer.in.height);
  const auto width = static_cast<std::ptrdiff_t>(layer.in.width);
  const auto side = static_cast<std::ptrdiff_t>(layer.side);
  Values y;
  for (std::ptrdiff_t row = 0; row < height; ++row) {
    for (std::ptrdiff_t column = 0; column < width; ++column) {
      for (std::size_t n = 0; n < layer.out.channels; ++n) {
        double sum = layer.has_bias ? values[layer.bias + n] : 0;
        for (std::ptrdiff_t tap = 0; tap < side * side; ++tap) {
          const std::ptrdiff_t from_row = row + tap / side - side / 2;
          const std::ptrdiff_t from_column = column + tap % side - side / 2;
          if (from_row < 0 || from_row >= height || from_column < 0 || from_column >= width) {
            continue;
          }
          for (std::size_t c = 0; c < layer.in.channels; ++c) {
            const auto pixel = static_cast<std::size_t>(from_row * width + from_column);
            const std::size_t k = static_cast<std::size_t>(tap) * layer.in.channels + c;
            sum += x[pixel * layer.in.channels + c] *
                   values[layer.weight + k * layer.out.channels + n];
          }
        }
        y.push_back(rectified(layer, sum));
      }
    }
  }
  return y;
}

Values max_pool(const LayerShape& layer, const Values& x) {
  Values y;
  const Extent& in = layer.in;
  for (std::size_t row = 0; row < layer.out.height; ++row) {
    for (std::size_t column = 0; column < layer.out.width; ++column) {
      for (std::size_t c = 0; c < in.channels; ++c) {
        const auto at = [&](std::size_t dy, std::size_t dx) {
          return x[((2 * row + dy) * in.width + 2 * column + dx) * in.channels + c];
        };
        y.push_back(std::max({at(0, 0), at(0, 1), at(1, 0), at(1, 1)}));
      }
    }
  }
  return y;
}

/// Rows [first, last) with statistics of their own, or with the running ones.
void batch_norm(const LayerShape& layer, const Values& values, bool evaluates,
                std::vector<Values>& rows, std::size_t first, std::size_t last) {
  const std::size_t channels = layer.in.channels;
  for (std::size_t c = 0; c < channels; ++c) {
    double mean = 0, variance = 0, count = 0;
    const auto each = [&](const std::function<void(double&)>& visit) {
      for (std::size_t row = first; row < last; ++row) {
        for (std::size_t i = c; i < rows[row].size(); i += channels) visit(rows[row][i]);
      }
    };
    each([&](double& v) { mean += v, count += 1; });
    mean /= count;
    each([&](double& v) { variance += (v - mean) * (v - mean) / count; });
    if (evaluates) {
      mean = values[layer.running_mean + c];
      variance = values[layer.running_variance + c];
    }
    each([&](double& v) {
      const double normal = (v - mean) / std::sqrt(variance + 1e-5f);
      v = rectified(layer, normal * values[layer.weight + c] + values[layer.bias + c]);
    });
  }
}

}  // namespace

std::uint64_t dropout_key(const LayerShape& layer, const ModelBatch& batch) {
  const auto step = static_cast<std::uint64_t>(batch.step);
  const auto words = philox4x32(
      batch.seed, {static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32),
                   layer.number, static_cast<std::uint32_t>(RngStream::kDropout)});
  return words[0] | std::uint64_t{words[1]} << 32;
}

std::uint32_t row_of(const ModelBatch& batch, std::size_t row) {
  return static_cast<std::uint32_t>(batch.first_rank * batch.rows_per_rank + row);
}

void drop(const LayerShape& layer, const ModelBatch& batch, std::size_t row, Values& x) {
  const std::uint64_t key = dropout_key(layer, batch);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool stays =
        random_unit(key, RngStream::kDropout, row_of(batch, row), i) >= layer.dropout;
    x[i] = stays ? x[i] / (1 - double{layer.dropout}) : 0;
  }
}

double loss_of(const Values& logits, std::int32_t label) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double v : logits) sum += std::exp(v - most);
  return std::log(sum) + most - logits[static_cast<std::size_t>(label)];
}

void fill(engine::Model& model, const ModelBatch& batch, std::size_t first, std::size_t rows) {
  const auto part = [&](const auto& all, auto out, std::size_t columns) {
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(first * columns), rows * columns,
                out.begin());
  };
  const std::size_t in = model.shape().input().size();
  if (model.shape().reads_tokens()) {
    part(batch.tokens, model.tokens(), in);
  } else {
    part(batch.input, model.input(), in);
  }
  part(batch.labels, model.labels(), model.shape().targets());
}

ModelBatch make_batch(const engine::ModelShape& shape, std::size_t ranks, std::size_t rows_per_rank,
                      std::uint64_t seed) {
  Rng rng(seed);
  ModelBatch batch;
  batch.ranks = ranks;
  batch.rows_per_rank = rows_per_rank;
  const std::size_t classes = shape.output().size() / shape.targets();
  for (std::size_t i = 0; i < batch.rows() * shape.input().size(); ++i) {
    if (shape.reads_tokens()) {
      batch.tokens.push_back(static_cast<std::int32_t>(rng.below(classes)));
    } else {
      batch.input.push_back(static_cast<float>(rng.unit()));
    }
  }
  for (std::size_t i = 0; i < batch.rows() * shape.targets(); ++i) {
    batch.labels.push_back(static_cast<std::int32_t>(rng.below(classes)));
  }
  return batch;
}

double loss_in_double(const engine::ModelShape& shape, const std::vector<double>& values,
                      const ModelBatch& batch, bool evaluates) {
  if (shape.reads_tokens()) return gpt_loss(shape, values, batch, evaluates);
  const std::size_t in = shape.input().size();
  std::vector<Values> rows;
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const auto begin = batch.input.begin() + static_cast<std::ptrdiff_t>(row * in);
    rows.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(in));
  }
  for (const LayerShape& layer : shape.layers()) {
    for (std::size_t row = 0; row < rows.size(); ++row) {
      Values& x = rows[row];
      if (layer.kind == LayerKind::kLinear) x = linear(layer, values, x);
      if (layer.kind == LayerKind::kConvolution) x = convolution(layer, values, x);
      if (layer.kind == LayerKind::kMaxPool) x = max_pool(layer, x);
      if (layer.kind == LayerKind::kDropout && !evaluates) drop(layer, batch, row, x);
    }
    if (layer.kind != LayerKind::kBatchNorm) continue;
    for (std::size_t rank = 0; rank < batch.ranks; ++rank) {
      batch_norm(layer, values, evaluates, rows, rank * batch.rows_per_rank,
                 (rank + 1) * batch.rows_per_rank);
    }
  }
  double total = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    total += loss_of(rows[row], batch.labels[row]);
  }
  return total / static_cast<double>(rows.size());
}

}  // namespace muster::test
