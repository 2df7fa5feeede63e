// Who slows a gang whose processes have parts of a model: stages of a pipeline, and slices of them.
// Each waits inside its copy for its neighbours, whoever is slow, so what is held against each
// other is what each does alone, and how fast large messages come and go. Pure: no IO, threads or
// clock.
#pragma once

#include <vector>

#include "common/json.h"
#include "common/split.h"
#include "worker/sentinel/pace.h"
#include "worker/sentinel/view.h"

namespace muster::sentinel {

/// What a trainer has of the model.
struct Part {
  int copy = -1;  ///< -1: nothing, because others of its copy are missing
  int stage = 0, slice = 0;
  bool operator==(const Part&) const = default;
};

/// How spec.training says that a copy is divided; whole where it does not, or says nonsense.
Split split_of(const Json& training);
/// By rank, as trainers find them for themselves (engine/mesh).
std::vector<Part> parts_of(const View& view, const Split& split);

/// Of a Pace whose trainer has a part of the model: `logical_ranks` is what it computes, in parts
/// of one logical rank with the whole model, and `usual_wait` what it does alone in a usual step.
/// Such a one waits for nobody in all, so that older members draw nothing from it, nor from its
/// `waits`: by who sends it large messages over a network, how long a MiB takes to come in the
/// fastest one of a step, as is reached in one step of eight. Told are the fastest peer, which
/// shows that its own network is not slow, and the slowest ones; under its own rank what all that
/// comes so in a usual step would take from the fastest.
inline constexpr int kRankUnits = 256;

/// By rank, for trainers with parts of a model. Each is held against those with the same part in
/// other copies; where there is one copy alone against the other slices of its stage, and stages
/// against each other by what the model's graph foretells, of which a stage may take twice as long.
/// What is longer than that costs the gang as much as it makes the part the longest of all: a stage
/// that has little to do may be slow and nobody waits. Empty unless there are two with a part at
/// least, all of one epoch, each with its pace.
/// Whose large messages come, or go, at most a quarter as fast as is usual, also from or to one
/// whose network is not slow itself, has a slow network; of two processes, or in the middle of
/// three, nobody can tell whose it is. It costs the gang at most what each of them waits. Latency
/// is not found.
std::vector<Slowness> judge_parts(const std::vector<Pace>& paces, const std::vector<Part>& parts);

}  // namespace muster::sentinel
