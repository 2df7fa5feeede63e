// A GPT-2 as Hugging Face's transformers save it, in the place of drawn first parameters.
#pragma once

#include <span>
#include <string>

#include "common/result.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Fills the parameters of a GPT from `directory`/model.safetensors, after `directory`/config.json
/// has told that it is the same model. Tensors may be named with or without "transformer." in
/// front; those that follow from others (causal masks, a head equal to the embedding) are passed
/// over. Requires the shape of config.gpt.  Shape: values (shape.values()).
/// Errors: exit code kCheckpoint; one sentence that names the file, its field or tensor, and what
/// would be right.  Blocks: on the disk.
Status load_pretrained(const std::string& directory, const GptConfig& config,
                       const ModelShape& shape, std::span<float> values);

}  // namespace muster::engine
