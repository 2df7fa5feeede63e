// Who slows a gang whose processes have parts of a model: stages of a pipeline, and slices of them.
// Each waits inside its copy for its neighbours, whoever is slow, so what is held against each
// other is what each does alone. Pure: no IO, threads or clock.
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
/// Such a one waits for nobody in all, so that older members draw nothing from it.
inline constexpr int kRankUnits = 256;

/// By rank, for trainers with parts of a model. Each is held against those with the same part in
/// other copies; where there is one copy alone against the other slices of its stage, and stages
/// against each other by what the model's graph foretells, of which a stage may take twice as long.
/// What is longer than that costs the gang as much as it makes the part the longest of all: a stage
/// that has little to do may be slow and nobody waits. Empty unless there are two with a part at
/// least, all of one epoch, each with its pace. Nobody's network is found out.
std::vector<Slowness> judge_parts(const std::vector<Pace>& paces, const std::vector<Part>& parts);

}  // namespace muster::sentinel
