// IDX, the format of MNIST and its relatives: a big-endian header and unsigned bytes, plain or as
// one gzip member. Nothing is allocated before the header's sizes were checked against the file.
// Source: LeCun, Cortes, Burges: The MNIST database, "file formats"; RFC 1952.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "worker/data/file.h"

namespace muster::data {

/// Most bytes of a file, and of its decoded content.
inline constexpr std::uint64_t kMaxIdxBytes = std::uint64_t{4} << 30;
/// Most values of one image.
inline constexpr std::uint64_t kMaxFeatures = std::uint64_t{1} << 24;

enum class IdxKind {
  kImages,  ///< rank 2 (n, features) or 3 (n, height, width)
  kLabels,  ///< rank 1 (n)
};

struct IdxArray {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> values;  ///< row-major, product of shape
};

/// Decodes the content of a file; `name` stands in front of every error. Packed and decoded it may
/// take `most_memory` together.
/// Errors: kInvalid, kCorrupt or kTooLarge, one sentence with what would be right, exit code kData;
/// those of check_memory_for().
Result<IdxArray> parse_idx(std::vector<std::uint8_t> file, IdxKind kind, const std::string& name,
                           std::uint64_t most_memory = kAnyMemory);

/// parse_idx of a file on disk.  Errors: also kNotFound, kIo.  Blocks: on the disk.
Result<IdxArray> read_idx(const std::string& path, IdxKind kind,
                          std::uint64_t most_memory = kAnyMemory);

}  // namespace muster::data
