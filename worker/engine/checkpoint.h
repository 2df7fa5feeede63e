// Checkpoints: DIR/step-<12 digits>/ with model.safetensors, config.json where the model has one,
// optimizer.safetensors and, last, manifest.json. A directory without manifest is not a checkpoint.
// No file but the manifest depends on anything but the training itself, so the same step has the
// same bytes wherever it was saved.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/json.h"
#include "common/result.h"
#include "worker/engine/model_shape.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/saved_file.h"

namespace muster::engine {

/// What helps where the checkpoints of a directory are another training's. Another path would be
/// another name for the same directory: the claim's own.
inline constexpr const char* kAnotherPlace =
    "another claim (spec.training.checkpoint.volumeClaimName), or with muster run another --output";

/// The fields that a checkpoint must share with the job that goes on from it, by their names in the
/// manifest ("spec.training.seed": 7): another value is refused by name. Null: not given.
using CheckpointIdentity = Json;

struct CheckpointOptions {
  std::string path;
  int keep = 2;
  ModelShape shape;
  CheckpointIdentity identity;
  std::string job_uid;  ///< noted, not compared
  /// By what the job trains; which one it must be is said by the identity.
  std::string_view contract = contract::kNumericsContract;
  std::string model_config{};  ///< goes into config.json beside the model; empty: there is none
};

/// A part of a state: of the values (buffer 0), or of what the optimiser keeps of the trained ones
/// (buffers 1 and up).
struct StatePiece {
  std::size_t buffer = 0;
  ElementRange range;
};
/// In the order in which they are saved; `optimizer_buffers`: how many there are, none for a model.
std::vector<StatePiece> state_pieces(const ModelShape& shape, std::size_t optimizer_buffers);

/// A state that is saved without being in one place.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// The next of state_pieces(); there until the call after it.
  virtual Result<std::span<const float>> read(const StatePiece& piece) = 0;
};

/// One that is all in memory, which outlives it. Of a model alone there is no `optimizer`.
class StateInMemory final : public StateSource {
 public:
  explicit StateInMemory(std::span<const float> parameters,
                         const OptimizerState* optimizer = nullptr)
      : parameters_(parameters), optimizer_(optimizer) {}
  Result<std::span<const float>> read(const StatePiece& piece) override {
    const std::span<const float> all =
        piece.buffer == 0 ? parameters_ : optimizer_->buffers[piece.buffer - 1].values;
    return all.subspan(piece.range.begin, piece.range.size());
  }

 private:
  std::span<const float> parameters_;
  const OptimizerState* optimizer_;
};

/// A state as it stands in files. What it says is in the files' pages, not in memory of its own.
/// All of it has been read once, without an error; a disk that fails later gives one to read(), and
/// ends a process that looks at the values themselves.
struct SavedState {
  std::int64_t step = 0;
  std::span<const float> parameters;
  std::vector<std::span<const float>> buffers;
  std::vector<double> scalars;
  std::vector<SavedFile> files;

  /// Some of `parameters` or of one of `buffers`.  Shape: out (values.size()).
  /// Errors: as SavedFile.
  Status read(std::span<const float> values, std::span<float> out) const;
};

/// Threads: one.  Blocks: every call, on the disk.
class CheckpointStore {
 public:
  explicit CheckpointStore(CheckpointOptions options);

  /// Saves the state after `step` from `source`; `layout` says what the optimiser's buffers and
  /// scalars are. Then removes all but the newest `keep` checkpoints of this training up to its
  /// step, and those that find() has passed over. Another process may save the same step into the
  /// same directory, or may have: the files are the same, and what is whole there stays so.
  /// Errors: those of `source`; exit code kDisk; older checkpoints are untouched and nothing half
  /// written is left. One of the same step that cannot be read now may be whole: it is an error,
  /// and stays as it is.
  /// kConflict with exit code kCheckpoint: the newest checkpoint is another training's, which stays
  /// as it is; of two that begin in one directory the first to save has it.
  Status save(std::int64_t step, const OptimizerState& layout, StateSource& source);

  /// Fills `parameters` and `optimizer`, whose layout is that of the job, from the newest
  /// checkpoint that is whole and returns its step; nothing when there is none at all. A damaged
  /// one is passed over with a warning when an older one is whole. Errors: exit code kCheckpoint:
  /// all are damaged, or the newest belongs to another job; kDisk: they cannot be read now.
  Result<std::optional<std::int64_t>> load(std::span<float> parameters, OptimizerState& optimizer);

  /// The same without filling anything.
  Result<std::optional<SavedState>> find(const OptimizerState& layout);

  /// Writes the values alone as `path`/model.safetensors and returns that path.
  /// Errors: exit code kDisk, and those of the source.
  Result<std::string> write_model(StateSource& source);
  /// What write_model() has written; `on_alive` is called often meanwhile, unless it is empty.
  /// Errors: exit code kCheckpoint.
  Result<SavedState> read_model(const std::function<void()>& on_alive) const;

 private:
  /// Newest first: whether it is complete.
  using Steps = std::map<std::int64_t, bool, std::greater<>>;
  Result<Steps> steps() const;
  std::string directory_of(std::int64_t step) const;
  Status check_newest() const;
  Status write_step(const std::string& directory, std::int64_t step, const OptimizerState& layout,
                    StateSource& source);
  /// Errors: it is not one of this training.
  Result<Json> read_manifest(std::int64_t step) const;
  Result<SavedState> load_step(std::int64_t step, const OptimizerState& layout) const;
  void remove_old(std::int64_t newest) const;

  CheckpointOptions options_;
  std::set<std::int64_t> damaged_;  ///< steps that find() has passed over
};

}  // namespace muster::engine
