#include "worker/engine/block_hash.h"

#include <algorithm>
#include <array>
#include <bit>

namespace muster::engine {

static_assert(std::endian::native == std::endian::little,
              "hashes, checkpoints and frames hold little-endian bytes");

namespace {

/// Blocks that a thread takes at once: few enough that all threads have some of a small model, and
/// a tenth of a millisecond of hashing.
constexpr std::size_t kBlocksOfPiece = 4;

Sha256Digest digest_of(std::span<const float> block) {
  const auto is_nan = [](float value) { return value != value; };
  if (std::none_of(block.begin(), block.end(), is_nan)) return sha256(std::as_bytes(block));
  std::array<float, kernels::kBlockElements> canonical;
  std::transform(block.begin(), block.end(), canonical.begin(), [&](float value) {
    return is_nan(value) ? std::bit_cast<float>(0x7fc00000u) : value;
  });
  return sha256(std::as_bytes(std::span<const float>(canonical).first(block.size())));
}

/// The blocks of values that lie side by side.
std::vector<std::span<const float>> blocks_of_values(std::span<const float> values) {
  std::vector<std::span<const float>> blocks;
  blocks.reserve((values.size() + kernels::kBlockElements - 1) / kernels::kBlockElements);
  while (!values.empty()) {
    blocks.push_back(values.first(std::min(kernels::kBlockElements, values.size())));
    values = values.subspan(blocks.back().size());
  }
  return blocks;
}

}  // namespace

std::vector<Sha256Digest> block_digests(std::span<const float> values) {
  std::vector<Sha256Digest> digests;
  for (const auto block : blocks_of_values(values)) digests.push_back(digest_of(block));
  return digests;
}

std::vector<Sha256Digest> block_digests(std::span<const float> values,
                                        kernels::cpu::Context& context) {
  return block_digests(blocks_of_values(values), context);
}

std::vector<Sha256Digest> block_digests(std::span<const std::span<const float>> blocks,
                                        kernels::cpu::Context& context) {
  std::vector<Sha256Digest> digests(blocks.size());
  const std::size_t pieces = (blocks.size() + kBlocksOfPiece - 1) / kBlocksOfPiece;
  kernels::cpu::for_each_piece(context, pieces, [&](std::size_t piece) {
    const std::size_t first = piece * kBlocksOfPiece;
    const std::size_t end = std::min(first + kBlocksOfPiece, blocks.size());
    for (std::size_t i = first; i < end; ++i) digests[i] = digest_of(blocks[i]);
  });
  return digests;
}

Sha256Digest combine(std::span<const Sha256Digest> digests) {
  return sha256(std::as_bytes(digests));
}

}  // namespace muster::engine
