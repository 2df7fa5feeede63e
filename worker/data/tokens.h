// Tokens that a tokenizer has made of a text, in shards on the disk: samples are read one by one
// and never all held. Which text a token stands for does not matter here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"
#include "common/token_shard.h"
#include "common/training_bounds.h"
#include "worker/data/file.h"

namespace muster::data {

struct Dataset;

using training_bounds::kMaxShards;

struct ShardHeader {
  std::uint64_t tokens = 0;
  std::size_t token_bytes = 2;  ///< 2 or 4
};

/// Reads the first token_shard::kHeaderBytes of a file, or all of a shorter one, that has
/// `file_bytes`; `name` stands in front of every error. Errors: kInvalid or kCorrupt, one sentence
/// with what would be right, exit code kData.
Result<ShardHeader> parse_shard_header(std::span<const std::uint8_t> head, std::uint64_t file_bytes,
                                       const std::string& name);

/// What the tokens of a shard must be.
struct TokenRule {
  std::size_t token_bytes = 2;
  std::uint32_t vocabulary = 0;  ///< every token is below it
  std::uint64_t first = 0;       ///< place in its shard of the first token read
};

/// Widens tokens.  Shape: bytes (out.size() * rule.token_bytes).
/// Errors: kInvalid with the place of a token that is not below rule.vocabulary, exit code kData.
Status decode_tokens(std::span<const std::uint8_t> bytes, const TokenRule& rule,
                     const std::string& name, std::span<std::int32_t> out);

/// What a set of samples is cut from, and how.
struct TokenSource {
  std::vector<std::string> paths;
  std::uint32_t vocabulary = 0;
  std::size_t context = 0;
  /// Around each read of a sample, which may take any time: the shard's path before, empty after.
  std::function<void(std::string_view path)> on_read{};
};

/// Shards one after another as one row of tokens: where one ends and the next begins does not show
/// in what is read.  Threads: any that on_read bears.
class TokenShards {
 public:
  /// Reads every token once, so that what is wrong with any of them is known before training.
  /// Errors: kNotFound, kIo, and those above; exit code kData, or kDisk where the system could not
  /// read a file.  Blocks: on the disk.
  static Result<std::shared_ptr<const TokenShards>> open(const TokenSource& source);

  std::uint64_t size() const { return size_; }
  /// SHA-256 over all tokens, each as 4 little-endian bytes.
  const Sha256Digest& digest() const { return digest_; }

  /// Tokens from `first` on.  Requires first + out.size() <= size().
  /// Errors: the file is not any more what it was, exit code kData; it could not be read, kDisk.
  /// Blocks: on the disk.
  Status read(std::uint64_t first, std::span<std::int32_t> out) const;

  /// Has the system read `count` tokens from `first` on, so that read() finds them in memory.
  /// Requires first + count <= size(). Does not wait for the disk, and what goes wrong is read()'s
  /// to tell.
  void prefetch(std::uint64_t first, std::uint64_t count) const;

 private:
  struct Shard {
    std::string path;
    UniqueFd file;
    FileStamp stamp;  ///< when it was opened
    ShardHeader header;
    std::uint64_t first = 0;  ///< token of all shards that it begins with
  };
  explicit TokenShards(const TokenSource& source)
      : vocabulary_(source.vocabulary), on_read_(source.on_read) {}
  Status add(const std::string& path, Sha256& hash);
  /// The number of the one that has token `first`, or the last.
  std::size_t shard_of(std::uint64_t first) const;
  Status read_piece(const Shard& shard, std::uint64_t first, std::span<std::int32_t> out) const;

  std::uint32_t vocabulary_;
  std::function<void(std::string_view path)> on_read_;
  std::vector<Shard> shards_;
  std::uint64_t size_ = 0;
  Sha256Digest digest_{};
};

/// Opens the shards, for training and for testing alike. Sample i is made of the tokens from i *
/// context to i * context + context of all shards: all but the last are the input, all but the
/// first are the labels. Requires context >= 1, and from 1 to kMaxShards paths.
/// Errors, Blocks: as TokenShards::open.
Result<Dataset> load_tokens(const TokenSource& source);

/// Copies a sample of a text or of tokens.  Shape: tokens, labels (samples.features).
/// Errors, Blocks: as TokenShards::read; none of a text.
Status read_sample(const Dataset& samples, std::size_t index, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> labels);

}  // namespace muster::data
