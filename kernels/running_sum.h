// A sum of more values than are held at once.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "kernels/cpu/table.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {

/// sum() of values that come piece by piece: the same bits, however they are cut. Holds a block.
class RunningSum {
 public:
  void add(std::span<const float> values);
  /// Of all so far; more may come.
  float value() const;

 private:
  TreeSum blocks_{};  ///< those that are whole
  std::array<float, kBlockElements> block_{};
  std::size_t held_ = 0;  ///< of block_
};

}  // namespace muster::kernels::cpu
