// What the trainer process runs: one training job, from its spec to a model, over a communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"

namespace muster::comm {
class Communicator;
}

namespace muster::engine {

/// spec.training as the engine uses it. The operator has validated it already; it is validated
/// again here, because a worker trusts nobody.
struct MlpConfig {
  std::vector<int> hidden;
};

struct SgdConfig {
  float learning_rate = 0.1f;
  float momentum = 0.0f;
};

struct IdxSource {
  std::string images, labels;  ///< paths; relative ones start at TrainingConfig::data_root
};

struct TrainingConfig {
  std::uint64_t seed = 0;
  int logical_ranks = 16;
  int batch_size = 64;      ///< global
  std::int64_t epochs = 0;  ///< or steps; exactly one is positive
  std::int64_t steps = 0;
  MlpConfig mlp;
  IdxSource train, test;
  bool has_test = false;
  SgdConfig sgd;
  int evaluate_every_epochs = 1;
  std::string checkpoint_path;  ///< empty: no checkpoints
  bool checkpoint_durable = false;
  std::int64_t checkpoint_every_steps = 100;
  int checkpoint_keep = 2;
  // Not part of spec.training:
  std::string data_root = ".";
  std::string job_uid;
  int threads = 1;
  std::int64_t hash_every_steps = 1;   ///< 0: only the last step's parameters are hashed
  milliseconds peer_deadline{30'000};  ///< longest wait for the other workers within a step
};

/// Reads spec.training (shape: docs/reference and manifest). Errors: kInvalid with the field's path
/// ("spec.training.batchSize: ...") and exit code kInvalidSpec.
Result<TrainingConfig> parse_training(const Json& training);

/// After every step, on the trainer's thread; must return at once.
struct StepReport {
  std::int64_t step = 0, total_steps = 0, epoch = 0;
  float loss = 0;            ///< mean over the global batch of this step
  double accuracy = -1;      ///< of the last evaluation, -1 = none yet
  std::int64_t samples = 0;  ///< of this step, all workers
  double step_seconds = 0, data_seconds = 0, compute_seconds = 0, communicate_seconds = 0,
         update_seconds = 0;
  /// Between this step and the next; 0 where there was none.
  double record_seconds = 0, evaluate_seconds = 0, checkpoint_seconds = 0;
  std::uint64_t sent_bytes = 0;                 ///< of this process since its start
  std::uint64_t logical_rank_computations = 0;  ///< of this process since its start
  std::int64_t checkpoint_step = -1;            ///< newest complete one
};

struct TrainingSummary {
  std::int64_t step = 0, total_steps = 0;
  bool complete = false;            ///< false: stopped on request after a checkpoint
  std::int64_t restored_step = -1;  ///< step of the checkpoint it started from, -1 = from the start
  float loss = 0;
  double accuracy = -1;
  std::int64_t model_parameters = 0;
  std::string model_sha256;  ///< block hash of the parameters (ARCHITECTURE.md)
  std::string data_sha256;
  std::uint64_t sent_bytes = 0;
  std::uint64_t logical_rank_computations = 0;
  std::string model_path;  ///< written by rank 0 when complete and checkpoint_path is set
};

struct TrainingHooks {
  std::function<void(const StepReport&)> on_step;
  /// Told once before the first step, after data and checkpoint are loaded.
  std::function<void(const TrainingSummary&)> on_start;
  /// Set from any thread: every rank stops after the same step, with a checkpoint. The flag rides
  /// with the gradients, so one rank's request stops all.
  const std::atomic<bool>* stop = nullptr;
};

/// Trains to the end, or until stopped. All ranks of the communicator call it with the same config.
/// Errors carry the exit code the process ends with (contract::exit_code: kData, kCheckpoint,
/// kNumerics, kPeerLost, kDisk ...). Blocks: for the whole training. Threads: one.
Result<TrainingSummary> run_training(const TrainingConfig& config, comm::Communicator& communicator,
                                     const Clock& clock, const TrainingHooks& hooks);

}  // namespace muster::engine
