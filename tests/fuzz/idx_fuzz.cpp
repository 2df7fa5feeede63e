// IDX files from anywhere: parse_idx must answer or refuse, within its bounds.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"
#include "worker/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  for (const IdxKind kind : {IdxKind::kImages, IdxKind::kLabels}) {
    const auto array = parse_idx(std::vector<std::uint8_t>(bytes, bytes + size), kind, "x");
    if (!array) continue;
    std::size_t values = 1;
    for (const std::uint32_t dimension : array->shape) values *= dimension;
    MUSTER_CHECK(values == array->values.size());
  }
  return 0;
}
