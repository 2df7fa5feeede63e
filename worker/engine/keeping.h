// Who keeps the optimiser's state of what while members change: where Shards says how it is to be,
// this is how it is, and what is copied next on the way there. Pure functions of what all members
// know: every process computes them for itself.
#pragma once

#include <cstddef>
#include <vector>

#include "worker/engine/shard.h"

namespace muster::engine {

/// Who keeps the state of what, and makes its updates. Everything has somebody.
struct Keeping {
  std::size_t trained = 0;
  std::vector<Ranges> kept;  ///< by rank
  /// By rank: whose parameters it gives to those who do not keep them; together [0, trained).
  std::vector<Ranges> given;
};

/// Elements that the same processes keep.
struct Stretch {
  ElementRange range;
  std::vector<int> keepers;  ///< ascending; may be none
  bool operator==(const Stretch&) const = default;
};

/// [0, trained) in ascending order, cut wherever the share of anybody in `kept` begins or ends.
std::vector<Stretch> stretches_of(std::size_t trained, const std::vector<Ranges>& kept);

/// Every stretch is in somebody's `kept`. The parameters are given by the owner, or while that does
/// not keep them by whoever has least to give.
Keeping keeping_of(const Shards& shards, std::vector<Ranges> kept);

/// What each still keeps when nobody keeps anything for others that those have themselves: all that
/// `shards` gives it, as far as it has that, and what anybody lacks of what is to be his.
std::vector<Ranges> without_surplus(const Shards& shards, std::vector<Ranges> kept);

/// The next part of what is to be copied until all keep what `shards` gives them, those stretches
/// first that fewest keep. Nobody gives or takes more than `elements_most`, which is a block at
/// least; empty only when nothing is lacking.
std::vector<Move> next_portion(const Shards& shards, const std::vector<Ranges>& kept,
                               std::size_t elements_most);

/// So many elements a process gives and takes at most in one step: a 32nd of all, and
/// `blocks_least` at least. A step moves all of them twice, so copying adds a few per cent to its
/// bytes, and few steps pass until it is done.
std::size_t portion_most(std::size_t trained, std::size_t blocks_least);

/// Blocks of which fewer copies are kept than `shards` would have.
std::size_t blocks_short(const Shards& shards, const std::vector<Ranges>& kept);

}  // namespace muster::engine
