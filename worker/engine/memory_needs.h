// How much memory a trainer takes: known from the model's graph before any of it is taken. A step
// can be computed in more passes without a bit changing, so a process that has too little for all
// its samples at once takes fewer; a model that does not fit at all is refused before the first
// step, with what would fit.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/split.h"
#include "worker/engine/assignment.h"
#include "worker/engine/hosts.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/stage_plan.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Bytes of a trainer process and of its sentinel, by what they are for. What is there for a moment
/// beside a step (the state on its way to a joiner) is not counted.
struct MemoryNeeds {
  std::size_t parameters = 0;  ///< and running statistics
  std::size_t optimizer = 0;   ///< its state: of all parameters, or of a shard and its copies
  std::size_t gradients = 0;   ///< sums over this process's samples, and what others send of theirs
  std::size_t activations = 0;  ///< what a pass through the model needs
  std::size_t rest = 0;  ///< data in memory, the processes themselves, their threads, and what they
                         ///< share or move to make something of all of a model that is split
  /// What the process with the files has of the optimiser's state until it has dealt it out as
  /// shards, when nothing is there yet of what a pass needs; 0 where it keeps all of it.
  std::size_t loading = 0;
  /// With some for pages that are not full, and for what the kernel counts beside them.
  std::size_t total() const {
    const std::size_t sum =
        parameters + gradients + rest + std::max(optimizer + activations, loading);
    return sum + sum / 32;
  }
};

/// How much of all sharded state a process keeps, where that is not an even share.
struct KeptParts {
  double held = 0;
  double received = 0;  ///< of that the part whose gradients others add up
};

/// What of a training one process has in hand.
struct MemoryShare {
  Assignment assignment;
  int rank = 0;
  std::size_t rows_per_rank = 1;
  std::size_t rows_evaluated = 0;  ///< at once; 0: nothing is evaluated
  std::size_t data_bytes = 0;
  Hosts hosts{};
  std::vector<std::uint8_t> weights{};  ///< of Ownership, by rank; empty: all add up as much
  std::optional<KeptParts> kept{};      ///< where state is sharded; empty: an even share
};

/// Of the model that such a process has: for a pass over at most so many logical ranks, and for an
/// evaluation.
std::size_t rows_of(const MemoryShare& share, int ranks_at_once);

/// Where at most `ranks_at_once` of its logical ranks are in one pass.
MemoryNeeds memory_needs(const TrainingConfig& config, const ModelShape& shape,
                         const MemoryShare& share, int ranks_at_once);

/// The same of one process of several with a copy of the model. The processes of `share` are the
/// copies of the model, and a pass is a micro-batch.
MemoryNeeds memory_needs(const TrainingConfig& config, const StagePlan& plan, int place,
                         const MemoryShare& share, int ranks_at_once);

/// Bytes of the device that computes the passes of such a process, where a model of `rows_had` rows
/// is there already and stays.
std::size_t device_needs(const TrainingConfig& config, const ModelShape& shape,
                         const MemoryShare& share, int ranks_at_once, std::size_t rows_had = 0);

/// Logical ranks that a pass may have so that config.memory_bytes suffice: `most` (1 or more), or
/// the first of its halves. Nothing: not even one at a time fits.
std::optional<int> ranks_that_fit(const TrainingConfig& config, const ModelShape& shape,
                                  const MemoryShare& share, int most);

/// The same of a micro-batch, so that every process fits.
std::optional<int> ranks_that_fit(const TrainingConfig& config, const StagePlan& plan,
                                  const MemoryShare& share, int most);

/// Pure. Into how many parts a copy of the model may be split so that each of config.processes
/// fits, those parts as many as divide the processes: the fewest first, of as many the fewest
/// slices, at most kMaxSplitsTold. What fits as config says is not among them, nor what is split
/// less.
std::vector<Split> splits_that_fit(const TrainingConfig& config, const ModelShape& whole,
                                   const MemoryShare& share);

/// In whole MiB, rounded up.
std::string mebibytes(std::size_t bytes);

/// The first half of what a user is told whose job does not fit: what it needs, and what there is.
std::string what_it_needs(const TrainingConfig& config, const ModelShape& whole,
                          const MemoryShare& share);

/// For a user whose job does not fit: what it needs, what there is, and which fields would help.
/// Where it is split that of the process that needs the most.
std::string why_it_does_not_fit(const TrainingConfig& config, const ModelShape& whole,
                                const MemoryShare& share);

}  // namespace muster::engine
