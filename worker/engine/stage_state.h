// What the processes with one copy of a model know and do of it only together: its hash, the
// squares of its gradient, and its state as a whole, as it stands in files. All processes of the
// communicator make each call together, which are those of one copy, or with shards of all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/sha256.h"
#include "kernels/ops.h"
#include "worker/comm/communicator.h"
#include "worker/engine/block_parts.h"
#include "worker/engine/checkpoint.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/stage_plan.h"

namespace muster::engine {

/// The processes of a group, by place; all outlive it.
struct StageGroup {
  const ModelShape& whole;
  const StagePlan& plan;
  comm::Communicator& processes;
  const BlockPlan& hashed;  ///< who hashes which of all values
  int place() const { return processes.rank(); }
  int stage() const { return place() / plan.slices; }
  const ModelShape& shape() const { return plan.part(place()); }
};

/// When a call is made: the stamp of its transfers, and how long it may take.
struct Meeting {
  std::uint64_t stamp = 0;
  MonoTime deadline;
};

// Blocks and errors of all: as comm::Work::wait.

/// Of all values, what combine(block_digests()) says of a model that is not split. By all threads
/// of `context`, whose caller is seen to live meanwhile: of a large part it takes seconds.
/// Shape: values (part's values).
Result<Sha256Digest> hash_of_stages(const StageGroup& group, kernels::cpu::Context& context,
                                    std::span<const float> values, const Meeting& meeting);

/// Each block's sum of squares, as the owners of blocks make them where the model is not split.
/// `plan` is of the whole model's trained elements between `processes`, and `gradients` of all that
/// this process has of them, in any order.  Shape: (ceil(trained / 4096)).
Result<std::vector<float>> squares_of_parts(const BlockPlan& plan, comm::Communicator& processes,
                                            kernels::cpu::Context& context,
                                            std::span<const Gradient> gradients,
                                            const Meeting& meeting);

/// A stretch of one of a process's buffers, and where it lies in the whole model's. Buffer 0 are
/// the values, the others what the optimiser keeps.
struct StatePart {
  std::size_t buffer = 0, whole = 0, own = 0, size = 0;
};

/// Of all values of a part of the model that it counts, and of as many buffers of the optimiser.
std::vector<StatePart> state_parts(const ModelShape& part, const ModelShape& whole,
                                   std::size_t optimizer_buffers);

/// A state that several processes have together: which of them has what.
struct StateParts {
  comm::Communicator& processes;  ///< outlives it
  int reader = 0;                 ///< to whom all of it comes
  std::vector<const float*> own;  ///< of this process, by buffer
  /// By rank, in any order; on others than the reader those of this process suffice.
  std::vector<std::vector<StatePart>> by_process;
};

/// Such a state, piece by piece on its reader. No process ever has more of the others' than a
/// piece, and none is more than some pieces ahead of the reader, or waits for longer than it takes
/// for those.  Threads: one.
class PartsSource final : public StateSource {
 public:
  /// `whole` outlives it; `deadline` of each piece.
  PartsSource(const ModelShape& whole, const StateParts& parts, std::uint64_t stamp,
              std::function<MonoTime()> deadline);
  /// Of the reader of a copy's state, with the StateParts that it is made of.
  static std::size_t bytes(const StagePlan& plan, std::size_t optimizer_buffers);

  Result<std::span<const float>> read(const StatePiece& piece) override;
  /// Called by all processes when the reader has read all that it wants, which is all of it unless
  /// something went wrong there; by the others instead of read().
  Status finish();

 private:
  struct PlacedPart {
    int process = 0;
    StatePart part;
    std::pair<std::size_t, std::size_t> position() const { return {part.buffer, part.whole}; }
  };
  bool is_reader() const { return processes_.rank() == reader_; }
  Status move(const StatePiece& piece);

  comm::Communicator& processes_;
  const int reader_;
  const std::uint64_t stamp_;
  const std::function<MonoTime()> deadline_;
  std::vector<const float*> own_;  ///< by buffer
  std::vector<StatePiece> pieces_;
  std::vector<PlacedPart> parts_;  ///< ascending; of all processes on the reader, else its own
  std::size_t moved_ = 0;
  std::vector<float> values_;  ///< of the piece that was moved last
};

/// The other way round: the first process alone has `whole`, the others nullptr.
Status deal_stages(const StageGroup& group, std::span<float> values, OptimizerState& optimizer,
                   const SavedState* whole, const Meeting& meeting);

/// What of the whole model's values is the part's, as `read` gives them, stretch by stretch.
/// Errors: those of `read`.
using ReadWhole = std::function<Status(ElementRange range, std::span<float> out)>;
Status take_stage(const ModelShape& whole, const ModelShape& part, const ReadWhole& read,
                  std::span<float> values);

}  // namespace muster::engine
