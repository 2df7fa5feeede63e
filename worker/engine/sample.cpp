#include "worker/engine/sample.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "common/rng.h"
#include "worker/engine/record.h"

namespace muster::engine {
namespace {

/// The token that `unit`, from 0 to below 1, falls on. Uses `logits` up.
std::size_t draw(std::span<float> logits, float temperature, float unit) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  for (float& logit : logits) logit = (logit - greatest) / temperature;
  kernels::cpu::exp_f32(logits.data(), logits.size(), logits.data());
  for (std::size_t n = 1; n < logits.size(); ++n) logits[n] = logits[n - 1] + logits[n];
  const float at = unit * logits.back();
  const auto found =
      std::find_if(logits.begin(), logits.end(), [&](float share) { return share > at; });
  return static_cast<std::size_t>(std::min(found, logits.end() - 1) - logits.begin());
}

}  // namespace

Result<std::vector<std::int32_t>> write_sample(Model& model, std::span<const float> values,
                                               const SampleOptions& options,
                                               const std::function<Status()>& between) {
  const std::size_t context = model.shape().targets();
  const std::size_t tokens = model.shape().output().channels;
  MUSTER_CHECK(model.shape().reads_tokens() && options.temperature > 0);
  MUSTER_CHECK(options.first >= 0 && static_cast<std::size_t>(options.first) < tokens);
  std::vector<std::int32_t> written{options.first};
  std::vector<float> logits(tokens);
  model.use(values);
  std::fill_n(model.tokens().begin(), context, 0);
  for (std::size_t i = 0; i < options.tokens; ++i) {
    if (between) MUSTER_RETURN_IF_ERROR(between());
    const std::size_t length = std::min(context, written.size());
    // What lies behind the last token is not read by those before it.
    std::copy_n(written.end() - static_cast<std::ptrdiff_t>(length), length,
                model.tokens().begin());
    model.forward(1);
    const auto last = model.logits(length - 1);
    std::copy(last.begin(), last.end(), logits.begin());
    const float unit = random_unit(options.seed, RngStream::kSample, 0, i);
    written.push_back(static_cast<std::int32_t>(draw(logits, options.temperature, unit)));
  }
  written.erase(written.begin());
  return written;
}

Json gpt2_config(const GptConfig& config, std::size_t tokens,
                 std::optional<std::int32_t> end_of_text) {
  const Json border = end_of_text ? Json(*end_of_text) : Json();
  return Json{{"model_type", "gpt2"},
              {"architectures", {"GPT2LMHeadModel"}},
              {"n_layer", config.layers},
              {"n_head", config.heads},
              {"n_embd", config.width},
              {"n_positions", config.context_length},
              {"vocab_size", tokens},
              {"layer_norm_epsilon", 1e-5},
              {"activation_function", "gelu_new"},
              {"tie_word_embeddings", true},
              {"embd_pdrop", std::stod(decimal(config.dropout))},
              {"attn_pdrop", std::stod(decimal(config.attention_dropout))},
              {"resid_pdrop", std::stod(decimal(config.dropout))},
              {"bos_token_id", border},
              {"eos_token_id", border},
              {"torch_dtype", "float32"}};
}

}  // namespace muster::engine
