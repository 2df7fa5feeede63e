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

/// Of the blocks that begin with `first`, to some digests side by side.
void hash_blocks(std::span<const float> values, std::size_t first, std::span<Sha256Digest> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t begin = (first + i) * kernels::kBlockElements;
    to[i] =
        digest_of(values.subspan(begin, std::min(kernels::kBlockElements, values.size() - begin)));
  }
}

std::vector<Sha256Digest> room_for_blocks(std::span<const float> values) {
  return std::vector<Sha256Digest>((values.size() + kernels::kBlockElements - 1) /
                                   kernels::kBlockElements);
}

}  // namespace

std::vector<Sha256Digest> block_digests(std::span<const float> values) {
  auto digests = room_for_blocks(values);
  hash_blocks(values, 0, digests);
  return digests;
}

std::vector<Sha256Digest> block_digests(std::span<const float> values,
                                        kernels::cpu::Context& context) {
  auto digests = room_for_blocks(values);
  const std::size_t pieces = (digests.size() + kBlocksOfPiece - 1) / kBlocksOfPiece;
  kernels::cpu::for_each_piece(context, pieces, [&](std::size_t piece) {
    const std::size_t first = piece * kBlocksOfPiece;
    const std::size_t some = std::min(kBlocksOfPiece, digests.size() - first);
    hash_blocks(values, first, std::span(digests).subspan(first, some));
  });
  return digests;
}

Sha256Digest combine(std::span<const Sha256Digest> digests) {
  return sha256(std::as_bytes(digests));
}

}  // namespace muster::engine
