// What a step sums besides gradients. Private to the engine.
#pragma once

#include <cstddef>

namespace muster::engine {

/// Statistics that are summed with the gradients, behind the last value of the model.
enum Tail : std::size_t {
  kTailLoss,
  kTailCorrect,
  kTailStop,
  kTailAhead,         ///< by how many epochs the view is newer that a member is prepared for
  kTailAheadSquared,  ///< with it: whether that is the same for all
  kTailRecorded,      ///< from who writes the record: it has all lines before this step
  kTailFilesLeave,    ///< from the copy with the files: somebody of it is not in the view ahead
  kTailFilesAsked,    ///< from who can save all of the state by itself: it is to leave
  kTailSize
};

}  // namespace muster::engine
