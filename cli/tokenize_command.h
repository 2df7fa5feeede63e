// `muster tokenize TEXT...`: texts to a shard of tokens, by the vocabulary of a GPT-2.
#pragma once

#include <string>
#include <vector>

#include "common/bpe/vocabulary.h"
#include "common/result.h"

namespace muster::cli {

/// Most bytes of one text.
inline constexpr std::size_t kMaxTokenizedBytes = std::size_t{1} << 30;

struct TokenizeOptions {
  std::vector<std::string> texts;
  std::string vocabulary;  ///< directory of vocab.json and merges.txt
  std::string output;      ///< of the shard
};

/// Appends the tokens of one text to `tokens`, behind the token that stands between two texts where
/// the vocabulary has it.
void add_text(const bpe::Vocabulary& vocabulary, std::string_view text,
              std::vector<std::int32_t>& tokens);

/// The bytes of a shard of `tokens`, which are below `vocabulary_size`: two for each token where
/// all of the vocabulary have room in them, else four.
/// Errors: kTooLarge, exit code kData: more tokens than a shard may have.
Result<std::string> make_shard(std::span<const std::int32_t> tokens, std::size_t vocabulary_size);

/// Returns the exit code. Blocks: on the disk, and as long as encoding takes.
int tokenize_command(const TokenizeOptions& options);

}  // namespace muster::cli
