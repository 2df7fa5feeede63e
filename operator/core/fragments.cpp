#include "operator/core/fragments.h"

#include <algorithm>
#include <utility>

namespace muster::core {

UsualSizes::UsualSizes(std::vector<std::int64_t> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end());
}

double UsualSizes::lost(std::int64_t room) const {
  if (sizes_.empty()) return 0;
  const auto larger = sizes_.end() - std::upper_bound(sizes_.begin(), sizes_.end(), room);
  return static_cast<double>(room) * static_cast<double>(larger) /
         static_cast<double>(sizes_.size());
}

}  // namespace muster::core
