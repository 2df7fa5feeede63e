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
  std::vector<float> input;
  std::vector<std::int32_t> labels;
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::size_t first_rank = 0;
  std::size_t rows() const { return ranks * rows_per_rank; }
};

/// Random images and labels.
ModelBatch make_batch(const engine::ModelShape& shape, std::size_t ranks, std::size_t rows_per_rank,
                      std::uint64_t seed);

/// Mean loss of a training step; with `evaluates` as evaluation computes it.
double loss_in_double(const engine::ModelShape& shape, const std::vector<double>& values,
                      const ModelBatch& batch, bool evaluates = false);

}  // namespace muster::test
