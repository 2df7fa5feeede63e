// What a finished model of text is worth to a reader: tokens that it writes by itself, and the
// description by which others load it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "worker/engine/model.h"

namespace muster::engine {

struct SampleOptions {
  std::uint64_t seed = 0;
  std::size_t tokens = 512;
  std::int32_t first = '\n';  ///< what the sample goes on from, and does not have itself
  /// Below 1 likelier tokens are drawn oftener than the model says; above 0.
  float temperature = 0.8f;
};

/// Draws token after token, each after as many of those before it as the model reads. A function of
/// the values and the options: token i is the first whose share, added to those before it, is above
/// `unit`(6, 0, i) of their sum; shares are exp((logit - greatest) / temperature). Requires a model
/// that reads tokens, options.first among them.  Shape: values (shape.values()).
/// `between` is called before each token, and its errors end it; empty: nothing is.
Result<std::vector<std::int32_t>> write_sample(Model& model, std::span<const float> values,
                                               const SampleOptions& options,
                                               const std::function<Status()>& between = nullptr);

/// config.json of a GPT-2 as Hugging Face's transformers read it, for a model of these sizes. They
/// end what they write at the token `end_of_text`, where there is one.
Json gpt2_config(const GptConfig& config, std::size_t tokens,
                 std::optional<std::int32_t> end_of_text = std::nullopt);

}  // namespace muster::engine
