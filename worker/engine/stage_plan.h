// How a chain of layers is cut into the stages of a pipeline, and each stage into slices: what each
// process of a group has of the model. Pure: every process computes it for itself, from the model
// alone.
//
// The table that a transformer's embedding shares with its head belongs to the last stage, which
// also embeds: so every parameter is in one place, and what goes around is the activations of a
// border more, instead of a table with each step.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/ranges.h"

namespace muster::engine {

struct Stage {
  std::size_t first_layer = 0, last_layer = 0;  ///< [first, last) of the whole chain
  std::uint64_t cost = 0;  ///< multiply-adds of one row's forward pass; what is bound by memory
                           ///< counts as so many as take about as long
  ModelShape shape;
  std::vector<ModelShape> slices;  ///< what each process has of it
};

struct StagePlan {
  std::vector<Stage> stages;
  /// The last stage has the embedding, too: PipelineShape::is_tied.
  bool is_tied = false;
  int slices = 1;  ///< of each stage
  int size() const { return static_cast<int>(stages.size()); }
  /// Processes of a group. Their places are counted stage by stage.
  int places() const { return size() * slices; }
  const ModelShape& part(int place) const {
    return stages[static_cast<std::size_t>(place / slices)]
        .slices[static_cast<std::size_t>(place % slices)];
  }
};

/// Pieces that stages are made of: where a layer has tensors and no branch is cut.
std::size_t pieces_of(const ModelShape& whole);

/// The dearest stage as cheap as can be; then the most parameters of a stage as few as can be; then
/// the first stages as short as can be.
/// Errors: kInvalid naming the field of the spec, exit code kInvalidSpec: more stages than pieces,
/// or as ModelShape::check_slices.
Result<StagePlan> plan_stages(const ModelShape& whole, int stages, int slices = 1);

/// Where values of a process's flat buffer lie in the whole model's.
struct StageStretch {
  ElementRange whole;
  std::size_t own = 0;  ///< the first one in the process's
};

/// Of all values of a part of the model, ascending in both; each of trained ones or of running
/// statistics.
std::vector<StageStretch> stretches_of(const ModelShape& part, const ModelShape& whole);
/// Of those that it counts: all parts together have each value of the whole model once.
std::vector<StageStretch> counted_stretches_of(const ModelShape& part, const ModelShape& whole);
/// How many those are at most. A slice of many columns has one for each row, so that a list of all
/// is not small.
std::size_t counted_stretches_most(const ModelShape& part);

}  // namespace muster::engine
