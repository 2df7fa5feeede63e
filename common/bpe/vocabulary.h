// Byte-level byte-pair encoding as GPT-2 has it, by the two files in which Hugging Face keeps a
// vocabulary: text to tokens and back. Any bytes can be encoded, and come back as they were.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/file.h"
#include "common/result.h"

namespace muster::bpe {

/// What stands between two texts, where a vocabulary has it.
inline constexpr std::string_view kEndOfText = "<|endoftext|>";
inline constexpr std::size_t kMaxTokens = std::size_t{1} << 20;

/// The contents of the two files.
struct VocabularyText {
  std::string_view tokens, merges;
};

/// The two files as they are on a disk.
struct VocabularyFiles {
  std::string tokens, merges;
};

/// Threads: any number at once.
class Vocabulary {
 public:
  /// Errors: kInvalid; one sentence that begins with the file's name and says what would be right.
  static Result<Vocabulary> parse(const VocabularyText& text);
  /// Reads a file of at most so many bytes.
  using ReadFile = std::function<Result<std::string>(const std::string& path, std::size_t most)>;
  /// The two files of `directory`.  Errors: also those of `read`; each with the path and, where
  /// `read` gives no other, exit code kData.  Blocks: on the disk.
  static Result<Vocabulary> load(const std::string& directory, const ReadFile& read = read_file);

  /// What load() has read, for whoever hands it on; empty after parse().
  const VocabularyFiles& files() const { return files_; }

  /// All tokens are from 0 to below it.
  std::size_t size() const { return bytes_.size(); }
  /// The token that stands for exactly these bytes.
  std::optional<std::int32_t> find(std::string_view bytes) const;
  /// What a token stands for.  Requires 0 <= token < size().
  const std::string& bytes_of(std::int32_t token) const;

  /// Appends the tokens of a text. What is spelt like a special token is text like any other.
  /// Takes time in proportion to n log n for n bytes, whatever they are: a piece of more than 1 MiB
  /// is cut.
  void encode(std::string_view text, std::vector<std::int32_t>& out) const;
  /// The bytes of one token after the other.  Requires tokens of this vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  struct Merge {
    std::int32_t rank = 0, token = 0;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right);
  class Encoder;
  Status read_tokens(std::string_view text);
  Status read_merges(std::string_view text);
  Status add_merge(std::string_view line, const std::string& at);

  VocabularyFiles files_;
  std::vector<std::string> bytes_;                        ///< by token
  std::unordered_map<std::string, std::int32_t> tokens_;  ///< by bytes
  std::unordered_map<std::uint64_t, Merge> merges_;       ///< by the two tokens that become one
  std::int32_t single_[256] = {};                         ///< tokens of single bytes
};

}  // namespace muster::bpe
