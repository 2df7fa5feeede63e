// Percentiles of what was measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace muster::cli {

/// The value that at least `percent` of `values` do not exceed; 0 without values.
template <typename Value = std::int64_t>
Value percentile(std::vector<Value> values, int percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t at = (values.size() * static_cast<std::size_t>(percent) + 99) / 100;
  return values[std::clamp<std::size_t>(at, 1, values.size()) - 1];
}

}  // namespace muster::cli
