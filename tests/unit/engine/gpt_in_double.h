// GPT-2 written a second time, all in double and by the names of its published checkpoints: what
// gradients of a transformer are held against by finite differences.
#pragma once

#include <vector>

#include "tests/unit/engine/model_in_double.h"

namespace muster::test {

/// Logits of each position of one sequence.  Shape: (tokens, vocabulary).
std::vector<std::vector<double>> gpt_logits(const engine::ModelShape& shape,
                                            const std::vector<double>& values,
                                            const std::vector<std::int32_t>& tokens);

/// Mean loss over all labels of the batch.
double gpt_loss(const engine::ModelShape& shape, const std::vector<double>& values,
                const ModelBatch& batch);

}  // namespace muster::test
