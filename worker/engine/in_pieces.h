// What takes long because a model is large, in pieces between which the sentinel sees that this
// process moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

namespace muster::engine {

/// Values between two calls of on_alive: 1 MiB, below a millisecond also where memory is touched
/// for the first time.
inline constexpr std::size_t kPieceValues = std::size_t{1} << 18;

/// Calls `work(begin, end)` for one piece of [0, count) after another, and `on_alive` between two;
/// empty: nobody asks.
template <typename Work>
void in_pieces(std::size_t count, const std::function<void()>& on_alive, const Work& work) {
  for (std::size_t begin = 0; begin < count; begin += kPieceValues) {
    if (begin > 0 && on_alive) on_alive();
    work(begin, std::min(count, begin + kPieceValues));
  }
}

}  // namespace muster::engine
