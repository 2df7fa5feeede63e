#include "worker/engine/block_hash.h"

#include <algorithm>
#include <array>
#include <bit>

#include "kernels/ops.h"

namespace muster::engine {

static_assert(std::endian::native == std::endian::little,
              "hashes, checkpoints and frames hold little-endian bytes");

namespace {

/// Blocks between two calls of on_alive: some 10 ms of hashing.
constexpr std::size_t kBlocksAtOnce = 256;

}  // namespace

std::vector<Sha256Digest> block_digests(std::span<const float> values,
                                        const std::function<void()>& on_alive) {
  std::vector<Sha256Digest> digests;
  std::array<float, kernels::kBlockElements> canonical;
  for (std::size_t begin = 0; begin < values.size(); begin += kernels::kBlockElements) {
    auto block = values.subspan(begin, std::min(kernels::kBlockElements, values.size() - begin));
    const auto is_nan = [](float value) { return value != value; };
    if (std::any_of(block.begin(), block.end(), is_nan)) {
      std::transform(block.begin(), block.end(), canonical.begin(), [&](float value) {
        return is_nan(value) ? std::bit_cast<float>(0x7fc00000u) : value;
      });
      block = std::span<const float>(canonical).first(block.size());
    }
    digests.push_back(sha256(std::as_bytes(block)));
    if (on_alive && digests.size() % kBlocksAtOnce == 0) on_alive();
  }
  return digests;
}

Sha256Digest combine(std::span<const Sha256Digest> digests) {
  return sha256(std::as_bytes(digests));
}

}  // namespace muster::engine
