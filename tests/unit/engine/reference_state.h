// Trainings of tests, and what each of their steps must leave behind: the state and the samples of
// an undisturbed run of one worker that keeps everything.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/sha256.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/stage_plan.h"
#include "worker/engine/training.h"

namespace muster::test {

engine::TrainingConfig digits(std::int64_t steps);
/// The same with all layers there are: convolutions, batch normalisation, pooling and dropout.
engine::TrainingConfig digits_with_layers(std::int64_t steps);
/// The same with everything that an update can have: moments, their powers, a norm that is above
/// its bound in some of the steps.
engine::TrainingConfig with_adamw(engine::TrainingConfig config);
/// A transformer over text, with all there is of an update.
engine::TrainingConfig small_gpt(std::int64_t steps);
/// The same with what it drops.
engine::TrainingConfig dropped_gpt(std::int64_t steps);
/// Four layers of whole blocks, each of which goes its way while the next is computed: all there is
/// of an update, too.
engine::TrainingConfig digits_in_buckets(std::int64_t steps);

/// What a step must leave behind.
struct ReferenceState {
  std::string parameters;                        ///< SHA-256
  std::vector<std::vector<Sha256Digest>> state;  ///< by buffer of the optimiser: of its blocks
  std::vector<double> scalars;
  std::vector<std::uint64_t> samples;  ///< that the step read, by logical rank
  /// The values themselves, and what the optimiser keeps of them; only of a model that is split.
  std::vector<std::vector<float>> whole;
};

/// By step, from one worker that nothing happens to.
const std::map<std::int64_t, ReferenceState>& reference(const engine::TrainingConfig& wanted);
/// Whether a process that holds this has what the step must leave behind, as far as it holds it.
bool is_right(const ReferenceState& right, std::span<const float> parameters,
              const engine::OptimizerState& optimizer);

/// The same of what the processes of a split model hold.
class StageReference {
 public:
  /// Of its first parameters, data and stages.
  explicit StageReference(const engine::TrainingConfig& config);
  bool is_right(int place, const ReferenceState& right, std::span<const float> parameters,
                const engine::OptimizerState& optimizer) const;
  const engine::ModelShape& whole() const { return whole_; }

 private:
  engine::ModelShape whole_;
  engine::StagePlan plan_;
};

}  // namespace muster::test
