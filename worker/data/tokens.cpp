#include "worker/data/tokens.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/data/dataset.h"
#include "worker/data/permutation.h"

namespace muster::data {
namespace {

/// Tokens that are read at once.
constexpr std::size_t kPieceTokens = 32'768;

std::uint32_t little_endian(std::span<const std::uint8_t> bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

static_assert(std::endian::native == std::endian::little,
              "tokens are taken as they stand in files");

/// Tokens of the width of `Token` as they are; the greatest of them.
template <typename Token>
Token widen(std::span<const std::uint8_t> bytes, std::span<std::int32_t> out) {
  Token token, greatest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::memcpy(&token, bytes.data() + i * sizeof token, sizeof token);
    greatest = std::max(greatest, token);
    out[i] = static_cast<std::int32_t>(token);
  }
  return greatest;
}

}  // namespace

Result<ShardHeader> parse_shard_header(std::span<const std::uint8_t> head, std::uint64_t file_bytes,
                                       const std::string& name) {
  if (file_bytes == 0) {
    return bad_data(name, ErrorCode::kInvalid, "is empty; must be a shard of tokens");
  }
  const auto field = [&](std::size_t index) { return little_endian(head.subspan(4 * index, 4)); };
  // A file of another kind may be short, too: its magic says more than its length.
  const auto format = std::find_if(
      token_shard::kFormats.begin(), token_shard::kFormats.end(),
      [&](const token_shard::Format& one) { return head.size() >= 4 && one.magic == field(0); });
  if (head.size() >= 4 && format == token_shard::kFormats.end()) {
    return bad_data(name, ErrorCode::kInvalid,
                    "starts with the number " + std::to_string(field(0)) +
                        "; a shard of tokens starts with 20240520 (tokens of 2 bytes) or 20240801 "
                        "(of 4 bytes)");
  }
  if (head.size() < token_shard::kHeaderBytes) {
    return bad_data(name, ErrorCode::kCorrupt,
                    "is cut within its header of 1024 bytes; copy the file again");
  }
  if (field(1) != format->version) {
    return bad_data(name, ErrorCode::kInvalid,
                    "its header says version " + std::to_string(field(1)) +
                        "; shards that start with " + std::to_string(format->magic) +
                        " must have version " + std::to_string(format->version));
  }
  const ShardHeader header{field(2), format->token_bytes};
  if (header.tokens == 0 || header.tokens > token_shard::kMaxTokens) {
    return bad_data(name, ErrorCode::kInvalid,
                    "its header says " + std::to_string(header.tokens) +
                        " tokens; must be from 1 to " + std::to_string(token_shard::kMaxTokens));
  }
  const std::uint64_t expected = header.tokens * header.token_bytes;
  const std::uint64_t follow = file_bytes - token_shard::kHeaderBytes;
  if (follow != expected) {
    return bad_data(name, follow < expected ? ErrorCode::kCorrupt : ErrorCode::kInvalid,
                    "its header says " + std::to_string(header.tokens) + " tokens of " +
                        std::to_string(header.token_bytes) +
                        " bytes = " + std::to_string(expected) + " bytes, but " +
                        std::to_string(follow) + " follow");
  }
  return header;
}

Status decode_tokens(std::span<const std::uint8_t> bytes, const TokenRule& rule,
                     const std::string& name, std::span<std::int32_t> out) {
  MUSTER_CHECK(rule.token_bytes == 2 || rule.token_bytes == 4);
  MUSTER_CHECK(bytes.size() == out.size() * rule.token_bytes);
  MUSTER_CHECK(rule.vocabulary >= 1 && rule.vocabulary <= INT32_MAX);
  const std::uint32_t greatest =
      rule.token_bytes == 2 ? widen<std::uint16_t>(bytes, out) : widen<std::uint32_t>(bytes, out);
  if (greatest < rule.vocabulary) return {};
  const auto wrong = std::ranges::find_if(out, [&](std::int32_t token) {
    return static_cast<std::uint32_t>(token) >= rule.vocabulary;
  });
  return bad_data(name, ErrorCode::kInvalid,
                  "token " +
                      std::to_string(rule.first + static_cast<std::uint64_t>(wrong - out.begin())) +
                      " is " + std::to_string(static_cast<std::uint32_t>(*wrong)) +
                      "; must be below spec.training.model.gpt.vocabularySize (" +
                      std::to_string(rule.vocabulary) + ")");
}

Result<std::shared_ptr<const TokenShards>> TokenShards::open(const TokenSource& source) {
  MUSTER_CHECK(!source.paths.empty() && source.paths.size() <= kMaxShards);
  std::shared_ptr<TokenShards> shards(new TokenShards(source));
  Sha256 hash;
  for (const std::string& path : source.paths) {
    MUSTER_RETURN_IF_ERROR(shards->add(path, hash));
  }
  shards->digest_ = hash.finish();
  return std::shared_ptr<const TokenShards>(std::move(shards));
}

Status TokenShards::add(const std::string& path, Sha256& hash) {
  MUSTER_ASSIGN_OR_RETURN(RegularFile file, open_regular(path));
  std::array<std::uint8_t, token_shard::kHeaderBytes> head;
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, read_at(file.fd.get(), 0, head, path));
  MUSTER_ASSIGN_OR_RETURN(const ShardHeader header,
                          parse_shard_header(std::span(head).first(got), file.stamp.bytes, path));
  const Shard& shard =
      shards_.emplace_back(Shard{path, std::move(file.fd), file.stamp, header, size_});
  size_ += header.tokens;
  std::vector<std::int32_t> tokens(std::min<std::uint64_t>(kPieceTokens, header.tokens));
  for (std::uint64_t first = 0; first < header.tokens; first += tokens.size()) {
    tokens.resize(std::min<std::uint64_t>(tokens.size(), header.tokens - first));
    MUSTER_RETURN_IF_ERROR(read_piece(shard, first, tokens));
    hash.update(std::as_bytes(std::span(tokens)));
  }
  return {};
}

/// `first` counts from the shard's first token.
Status TokenShards::read_piece(const Shard& shard, std::uint64_t first,
                               std::span<std::int32_t> out) const {
  const std::size_t width = shard.header.token_bytes;
  std::vector<std::uint8_t> bytes(out.size() * width);
  MUSTER_ASSIGN_OR_RETURN(
      const std::size_t got,
      read_at(shard.file.get(), token_shard::kHeaderBytes + first * width, bytes, shard.path));
  if (got < bytes.size()) {
    return bad_data(shard.path, ErrorCode::kCorrupt,
                    "has become shorter since it was opened; leave it as it is while jobs train");
  }
  // After the bytes are there, so that none of them was written since.
  MUSTER_ASSIGN_OR_RETURN(const FileStamp now, stamp_of(shard.file.get(), shard.path));
  if (now != shard.stamp) {
    return bad_data(shard.path, ErrorCode::kCorrupt,
                    "has changed since it was opened; leave it as it is while jobs train");
  }
  return decode_tokens(bytes, {width, vocabulary_, first}, shard.path, out);
}

Status TokenShards::read(std::uint64_t first, std::span<std::int32_t> out) const {
  MUSTER_CHECK(first <= size_ && out.size() <= size_ - first);
  for (std::size_t i = shard_of(first); !out.empty(); ++i) {
    const Shard& shard = shards_[i];
    const std::uint64_t at = first - shard.first;
    const auto piece = std::min<std::uint64_t>(out.size(), shard.header.tokens - at);
    if (on_read_) on_read_(shard.path);
    const Status got = read_piece(shard, at, out.first(piece));
    if (on_read_) on_read_({});
    MUSTER_RETURN_IF_ERROR(got);
    out = out.subspan(piece);
    first += piece;
  }
  return {};
}

std::size_t TokenShards::shard_of(std::uint64_t first) const {
  const auto after =
      std::upper_bound(shards_.begin(), shards_.end(), first,
                       [](std::uint64_t at, const Shard& one) { return at < one.first; });
  return static_cast<std::size_t>(after - shards_.begin()) - 1;
}

void TokenShards::prefetch(std::uint64_t first, std::uint64_t count) const {
  MUSTER_CHECK(first <= size_ && count <= size_ - first);
  for (std::size_t i = shard_of(first); count > 0; ++i) {
    const Shard& shard = shards_[i];
    const std::uint64_t at = first - shard.first;
    const auto piece = std::min(count, shard.header.tokens - at);
    const std::size_t width = shard.header.token_bytes;
    (void)::posix_fadvise(shard.file.get(),
                          static_cast<off_t>(token_shard::kHeaderBytes + at * width),
                          static_cast<off_t>(piece * width), POSIX_FADV_WILLNEED);
    count -= piece;
    first += piece;
  }
}

Result<Dataset> load_tokens(const TokenSource& source) {
  const std::size_t context = source.context;
  MUSTER_CHECK(context >= 1);
  MUSTER_ASSIGN_OR_RETURN(auto shards, TokenShards::open(source));
  const std::string more = source.paths.size() > 1 ? " and the shards after it" : "";
  if (shards->size() <= context) {
    return bad_data(source.paths[0] + more, ErrorCode::kInvalid,
                    "has " + std::to_string(shards->size()) + " tokens; shards for a context of " +
                        std::to_string(context) + " must have at least " +
                        std::to_string(context + 1));
  }
  Dataset dataset;
  dataset.count = (shards->size() - 1) / context;
  if (dataset.count > Permutation::kMostSamples) {
    return bad_data(source.paths[0] + more, ErrorCode::kTooLarge,
                    "has " + std::to_string(dataset.count) + " samples; at most " +
                        std::to_string(Permutation::kMostSamples) +
                        " are read, so leave shards out");
  }
  dataset.features = context;
  dataset.targets = context;
  dataset.classes = static_cast<int>(source.vocabulary);
  dataset.width = context;
  dataset.shards = std::move(shards);
  return dataset;
}

Status read_sample(const Dataset& samples, std::size_t index, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> labels) {
  MUSTER_CHECK(tokens.size() == samples.features && labels.size() == tokens.size());
  if (!samples.shards) {
    std::copy_n(samples.image(index), tokens.size(), tokens.begin());
    std::copy_n(samples.labels_of(index), labels.size(), labels.begin());
    return {};
  }
  const std::uint64_t first = std::uint64_t{index} * samples.features;
  MUSTER_RETURN_IF_ERROR(samples.shards->read(first, tokens));
  std::copy(tokens.begin() + 1, tokens.end(), labels.begin());
  return samples.shards->read(first + tokens.size(), labels.last(1));
}

}  // namespace muster::data
