// Work shared out over the pool by the number of values in it.
#pragma once

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {

/// Calls function(first, size) for consecutive pieces of at most `piece` of `n` values.
template <typename Function>
void parallel_pieces(Context& context, std::size_t n, std::size_t piece, Function&& function) {
  parallel_for(context, (n + piece - 1) / piece, [&](std::size_t index, std::size_t) {
    const std::size_t first = index * piece;
    function(first, least(piece, n - first));
  });
}

/// Calls function(m) for each of M rows; a task is as many rows as have about `values` of the
/// `width` values of each.
template <typename Function>
void parallel_rows(Context& context, std::size_t M, std::size_t width, std::size_t values,
                   Function&& function) {
  parallel_pieces(context, M, values / width + 1, [&](std::size_t first, std::size_t size) {
    for (std::size_t m = first; m < first + size; ++m) function(m);
  });
}

}  // namespace muster::kernels::cpu
