// The definition of a model written a second time, all in double, layer by layer and row by row:
// what gradients are held against by finite differences.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "worker/engine/model.h"

namespace muster::test {

struct ModelBatch {
  std::size_t ranks = 1, rows_per_rank = 1;
  std::vector<float> input;          ///< of a model that reads images
  std::vector<std::int32_t> tokens;  ///< of one that reads tokens
  std::vector<std::int32_t> labels;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::size_t first_rank = 0;
  std::size_t rows() const { return ranks * rows_per_rank; }
};

/// Random images, or tokens, and labels.
ModelBatch make_batch(const engine::ModelShape& shape, std::size_t ranks, std::size_t rows_per_rank,
                      std::uint64_t seed);

/// Fills the first rows of the model with `rows` of the batch from `first` on.
void fill(engine::Model& model, const ModelBatch& batch, std::size_t first, std::size_t rows);

/// Of a dropout in this step (docs/numerics.md).
std::uint64_t dropout_key(const engine::LayerShape& layer, const ModelBatch& batch);

/// Of the whole batch.
std::uint32_t row_of(const ModelBatch& batch, std::size_t row);

/// What one row of the batch loses to a layer (docs/numerics.md, "Dropout"); the rest is scaled up.
void drop(const engine::LayerShape& layer, const ModelBatch& batch, std::size_t row,
          std::vector<double>& x);

/// Of one row of logits.
double loss_of(const std::vector<double>& logits, std::int32_t label);

/// Mean loss of a training step; with `evaluates` as evaluation computes it.
double loss_in_double(const engine::ModelShape& shape, const std::vector<double>& values,
                      const ModelBatch& batch, bool evaluates = false);

}  // namespace muster::test
