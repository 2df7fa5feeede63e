// safetensors files from anywhere: every tensor that is accepted lies within the file, and is as
// large as its dtype and shape say.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/check.h"
#include "worker/engine/safetensors.h"

namespace {

/// Bytes of one value by the number of bits that every dtype's name but BOOL's ends in.
std::size_t bytes_of_value(const std::string& dtype) {
  if (dtype == "BOOL") return 1;
  return std::stoul(dtype.substr(dtype.find_first_of("0123456789"))) / 8;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto file = muster::engine::parse_safetensors(std::span(bytes, size));
  if (!file) return 0;
  for (const auto& [name, tensor] : file->tensors) {
    std::size_t expected = bytes_of_value(tensor.dtype);
    for (const std::size_t dimension : tensor.shape) expected *= dimension;
    MUSTER_CHECK(expected == tensor.bytes.size());
    MUSTER_CHECK(tensor.bytes.empty() ||
                 (tensor.bytes.data() >= bytes &&
                  tensor.bytes.data() + tensor.bytes.size() <= bytes + size));
  }
  return 0;
}
