// safetensors files from anywhere: every tensor that is accepted lies within the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/check.h"
#include "worker/engine/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto file = muster::engine::parse_safetensors(std::span(bytes, size));
  if (!file) return 0;
  for (const auto& [name, tensor] : file->tensors) {
    std::size_t values = 1;
    for (const std::size_t dimension : tensor.shape) values *= dimension;
    MUSTER_CHECK(values * sizeof(float) == tensor.bytes.size());
    MUSTER_CHECK(tensor.bytes.empty() ||
                 (tensor.bytes.data() >= bytes &&
                  tensor.bytes.data() + tensor.bytes.size() <= bytes + size));
  }
  return 0;
}
