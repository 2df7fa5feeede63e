// The safetensors format: a length, a JSON header, and the tensors' bytes. Only F32 is written.
// Source: huggingface/safetensors, README, "Format".
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace muster::engine {

/// Most bytes of a header.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::size_t kMaxTensors = 65'536;

struct TensorRef {
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t elements = 0;
};

/// The bytes before the tensors, whose values follow in the order given. Padded with spaces so that
/// they start at a multiple of 64. Same input, same bytes.
std::string safetensors_header(std::span<const TensorRef> tensors,
                               const std::map<std::string, std::string>& metadata);

struct SafetensorsFile {
  std::map<std::string, std::string> metadata;
  struct Tensor {
    std::string dtype;
    std::vector<std::size_t> shape;
    std::span<const std::uint8_t> bytes;  ///< of the parsed buffer; of F32 little-endian floats
  };
  std::map<std::string, Tensor> tensors;
};

/// Bytes of a file in front of its header.
inline constexpr std::size_t kSafetensorsLengthBytes = 8;
/// What they say: how many bytes the header has.
std::uint64_t safetensors_header_bytes(
    std::span<const std::uint8_t, kSafetensorsLengthBytes> length);

/// Reads a file's content, which stays owned by the caller. Looks at no byte behind the header.
/// Refuses overlaps, holes, unknown
/// dtypes and sizes that do not match.  Errors: kCorrupt with one sentence.
Result<SafetensorsFile> parse_safetensors(std::span<const std::uint8_t> file);

}  // namespace muster::engine
