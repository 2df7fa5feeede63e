// Where the optimiser's state lives when it is sharded (spec.training.optimizerState): each block
// has an owner, which updates it, and a buddy, which makes the same update on a copy. Pure
// functions of the members: every process computes them for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/engine/ranges.h"

namespace muster::engine {

/// Who keeps what in one membership.
struct Shards {
  std::size_t trained = 0;          ///< elements that have optimiser state: the first ones
  std::vector<ElementRange> owned;  ///< by rank; together [0, trained), may be empty
  std::vector<int> buddy;           ///< by rank: who keeps the copy; itself: there is nobody else
  int processes() const { return static_cast<int>(owned.size()); }
  /// Those whose copies `rank` keeps, ascending.
  std::vector<int> wards(int rank) const;
  /// All that `rank` keeps: its own and its wards'.
  Ranges held(int rank) const;
};

/// `slots[r]`: the worker of process r. A buddy is of another worker than the owner wherever there
/// is one, so that the loss of a pod takes no block with both; each process then keeps one copy,
/// or as even as can be where one worker has more than half of the processes.
/// `elements`: of what is summed, the tail included; blocks are owned as GradientExchange does.
Shards make_shards(const std::vector<int>& slots, std::size_t elements, std::size_t trained);

/// Who would keep what if those alone were members for whom `stays[r]` is 1; the ranks stay. All
/// others own nothing.
Shards shards_among(const std::vector<int>& slots, const std::vector<std::uint8_t>& stays,
                    std::size_t elements, std::size_t trained);

/// What a member brings into a membership, all of one step.
struct Keeper {
  Ranges held;                  ///< optimiser state and parameters
  bool has_parameters = false;  ///< all of them
};

/// One stretch that one process gives another.
struct Move {
  int from = 0, to = 0;
  ElementRange range;
  bool is_state = false, is_parameters = false;
  bool operator==(const Move&) const = default;
};

/// Whether the state of all `trained` elements is there.
bool is_complete(std::size_t trained, const std::vector<Keeper>& keepers);

/// What changes hands until everybody has what `shards` gives it, and all parameters; nothing that
/// its receiver has already. The load is spread over those who have a stretch.
/// `keepers` by rank, complete.
std::vector<Move> plan_moves(const Shards& shards, const std::vector<Keeper>& keepers);

}  // namespace muster::engine
