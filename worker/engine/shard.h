// Where the optimiser's state lives when it is sharded (spec.training.optimizerState): each block
// has an owner, which updates it, and one or two buddies, which make the same update on a copy.
// Pure functions of the members: every process computes them for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/engine/buckets.h"
#include "worker/engine/ranges.h"

namespace muster::engine {

/// Who keeps what in one membership.
struct Shards {
  std::size_t trained = 0;    ///< elements that have optimiser state: the first ones
  std::vector<Ranges> owned;  ///< by rank; together [0, trained)
  /// By rank: who keeps a copy; none where there is nobody else.
  std::vector<std::vector<int>> buddies;
  int processes() const { return static_cast<int>(owned.size()); }
  bool is_buddy(int owner, int rank) const;
  /// Those whose copies `rank` keeps, ascending.
  std::vector<int> wards(int rank) const;
  /// All that `rank` keeps: its own and its wards'.
  Ranges held(int rank) const;
  std::vector<Ranges> held() const;  ///< by rank
};

/// What is to be shared, and with how many copies.
struct ShardPlan {
  Ownership ownership;  ///< of what is summed: who owns a block keeps its state
  std::size_t trained = 0;
  int buddies = 1;  ///< of each owner, where there are as many others
  /// By rank: what is lost together (a node), as a number, whose upper 32 bits are those of all
  /// nodes in its rack; all processes of a worker have the same. 0 or no list: not known, and the
  /// worker stands alone. So a gang that knows nothing shares as if each worker had a node of its
  /// own, which claims no more safety than that, and one worker that is not known takes nothing
  /// from the others.
  std::vector<std::uint64_t> domains{};
};

/// `slots[r]`: the worker of process r. A buddy is of another worker than the owner, and than the
/// other buddy, wherever there is one, so that the loss of a pod takes as few copies of a block as
/// can be. First buddies are spread so that each process keeps one copy, or as even as can be where
/// one worker has more than half of the processes; so are second ones, after the workers. Among
/// those it is on another node, and among these in another rack: with one buddy each owner has a
/// copy elsewhere unless one node has more than half of the processes, and then as many as there
/// are processes elsewhere, because who keeps more copies than its share may not have the memory;
/// with racks it is the same, as far as it takes none onto its owner's node. Whom the ownership
/// leaves out keeps nothing.
Shards make_shards(const std::vector<int>& slots, const ShardPlan& plan);

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

/// What changes hands until everybody has the state of its `targets` in [0, trained), and all
/// parameters; nothing that its receiver has already. The load is spread over those who have a
/// stretch. `keepers` by rank, complete.
std::vector<Move> plan_moves(std::size_t trained, const std::vector<Ranges>& targets,
                             const std::vector<Keeper>& keepers);
/// With what `shards` gives them.
std::vector<Move> plan_moves(const Shards& shards, const std::vector<Keeper>& keepers);

}  // namespace muster::engine
