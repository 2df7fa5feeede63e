// How the processes of a membership make copies of a model that several of them have together. A
// group is the processes that have one copy: those whose numbers in the job are next to each other,
// so that it is known without a word who belongs to whom. It trains whole or not at all; who is
// left of one waits until the others are back. Pure.
#pragma once

#include <vector>

#include "worker/engine/membership.h"

namespace muster::engine {

struct Mesh {
  /// Ranks of the view by group and place in it; only groups that have all their processes.
  std::vector<std::vector<int>> groups;
  int group = -1;  ///< of this process; -1: it is not whole
  int owner = -1;  ///< the group whose first process is the first there is of slot 0; -1: none

  int copies() const { return static_cast<int>(groups.size()); }
  /// Ranks of all that train, group by group.
  std::vector<int> members() const;
  /// Ranks of those who have `place`, by group.
  std::vector<int> copies_of(int place) const;
};

/// So many processes make a group; with one, every process is its own.
Mesh mesh_of(const View& view, int group_size);

}  // namespace muster::engine
