// GPT-2 written a second time, all in double and by the names of its published checkpoints: what
// gradients of a transformer are held against by finite differences.
#pragma once

#include <optional>
#include <vector>

#include "tests/unit/engine/model_in_double.h"

namespace muster::test {

/// A row of a batch in a step of training, by which is drawn what is dropped.
struct TrainedRow {
  const ModelBatch& batch;
  std::size_t row = 0;
};

/// Logits of each position of one sequence; of `trained`, where that is told.
/// Shape: (tokens, vocabulary).
std::vector<std::vector<double>> gpt_logits(
    const engine::ModelShape& shape, const std::vector<double>& values,
    const std::vector<std::int32_t>& tokens,
    const std::optional<TrainedRow>& trained = std::nullopt);

/// Mean loss over all labels of the batch.
double gpt_loss(const engine::ModelShape& shape, const std::vector<double>& values,
                const ModelBatch& batch, bool evaluates);

}  // namespace muster::test
