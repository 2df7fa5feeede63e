// A GPT-2 as Hugging Face's transformers save it, in the place of drawn first parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/ranges.h"
#include "worker/engine/saved_file.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Stays in its file: whoever has a part of the model reads no more than that into memory.
/// Errors: exit code kCheckpoint, or kDisk where the system could not read a file, which another
/// try may mend; one sentence that names it.  Blocks: all of it, on the disk.
class Pretrained {
 public:
  /// The parameters of a GPT from `directory`/model.safetensors, after `directory`/config.json has
  /// told that it is the same model. Tensors may be named with or without "transformer." in front;
  /// those that follow from others (causal masks, a head equal to the embedding) are passed over.
  /// Requires the shape of config.gpt.  Errors: they also name field or tensor, and what would be
  /// right.
  static Result<Pretrained> open(const std::string& directory, const GptConfig& config,
                                 const ModelShape& shape);

  /// The values at `range` of the whole model.  Shape: out (range.size()).
  Status read(ElementRange range, std::span<float> out) const;
  /// combine(block_digests()) of all values, in hexadecimal.
  const std::string& sha256() const { return sha256_; }

 private:
  struct Placed {
    std::size_t offset = 0;  ///< in the whole model's values
    std::size_t size = 0;
    std::span<const std::uint8_t> bytes{};
  };
  explicit Pretrained(SavedFile file) : file_(std::move(file)) {}
  Status place(const ModelShape& shape, const std::string& path);
  Status judge(const ModelShape& shape, const std::string& path);

  SavedFile file_;
  std::vector<Placed> tensors_;  ///< ascending, one behind the other
  std::string sha256_;
};

}  // namespace muster::engine
