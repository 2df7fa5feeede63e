// Fragmentation: room that is free and of no use to gangs of the usual sizes, because what is left
// in its leaf domain does not hold one.
#pragma once

#include <cstdint>
#include <vector>

namespace muster::core {

/// Sizes of gangs as they come, each as often as it came, in whatever is scarce (GPUs, processors).
/// None: nothing is known.
class UsualSizes {
 public:
  UsualSizes() = default;
  explicit UsualSizes(std::vector<std::int64_t> sizes);

  bool empty() const { return sizes_.empty(); }
  /// Of so much room in one leaf domain what a gang cannot use, on the mean over the sizes.
  double lost(std::int64_t room) const;

 private:
  std::vector<std::int64_t> sizes_;  ///< ascending
};

}  // namespace muster::core
