// What a finished model of text is worth to a reader: bytes that it writes by itself, and the
// description by which others load it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/json.h"
#include "worker/engine/model.h"

namespace muster::engine {

struct SampleOptions {
  std::uint64_t seed = 0;
  std::size_t bytes = 512;
  /// Below 1 likelier bytes are drawn oftener than the model says; above 0.
  float temperature = 0.8f;
};

/// Draws byte after byte, each after as many of those before it as the model reads, the first after
/// a line feed. A function of the values and the options: byte i is the first whose share, added to
/// those before it, is above `unit`(6, 0, i) of their sum; shares are exp((logit - greatest) /
/// temperature). Requires a model that reads tokens below 256.  Shape: values (shape.values()).
std::string write_sample(Model& model, std::span<const float> values, const SampleOptions& options);

/// config.json of a GPT-2 as Hugging Face's transformers read it, for a model of these sizes.
Json gpt2_config(const GptConfig& config, std::size_t tokens);

}  // namespace muster::engine
