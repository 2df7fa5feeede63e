// What the trainer process runs: one training job, from its spec to a model, over a communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/exchange_sizes.h"
#include "common/json.h"
#include "common/result.h"
#include "common/split.h"
#include "kernels/ops.h"
#include "worker/comm/arrivals.h"
#include "worker/data/loader.h"
#include "worker/data/picture_files.h"
#include "worker/data/table_column.h"

namespace muster::comm {
class Communicator;
}

namespace muster::engine {

class Membership;
struct OptimizerState;

/// spec.training as the engine uses it. The operator has validated it already; it is validated
/// again here, because a worker trusts nobody.
struct MlpConfig {
  std::vector<int> hidden;
  float dropout = 0;  ///< share of every hidden layer's output
};

/// Stages of convolution, batch normalisation, ReLU and 2 x 2 max pooling, then linear layers.
struct CnnConfig {
  std::vector<int> channels;  ///< of each stage, from the image on
  int kernel_size = 3;        ///< odd
  bool normalise = true;      ///< by batch statistics of each logical rank
  std::vector<int> hidden;    ///< widths of the linear layers before the last
  float dropout = 0;          ///< share of every linear layer's input
};

/// A transformer as GPT-2 has it.
struct GptConfig {
  int layers = 0, heads = 0;
  int width = 0;                ///< of the stream; a multiple of heads
  int context_length = 0;       ///< tokens that a sample has
  int vocabulary_size = 256;    ///< all tokens are below it; of a text that of bytes
  float dropout = 0;            ///< share of what the embedding and each branch put out
  float attention_dropout = 0;  ///< share of attention's weights
};

struct SgdConfig {
  float learning_rate = 0.1f;
  float momentum = 0.0f;
};

struct AdamwConfig {
  float learning_rate = 0.001f;
  float beta1 = 0.9f, beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;
  bool decays_all = true;  ///< else tensors of two dimensions and more
};

/// A learning rate that rises over the first steps and falls along half a cosine over the others.
struct CosineConfig {
  std::int64_t warmup_steps = 0;  ///< at most all steps
  float final_share = 0;          ///< of the learning rate, towards which it falls
};

/// Paths; relative ones start at TrainingConfig::data_root.
struct DataSource {
  std::string images = {}, labels = {};  ///< of IDX files
  std::string text = {};                 ///< instead of them: of a file whose bytes are the tokens
  std::vector<std::string> shards = {};  ///< or of files that hold tokens
  std::string csv = {}, label = {};      ///< or of a table, and its column of labels,
  data::TableRules rules = {};           ///< and what a training table may have
  std::string folder = {};               ///< or of a directory of pictures,
  int height = 0, width = 0;             ///< what they are scaled to (0: they have one size),
  bool is_gray = false;                  ///< and whether they are made gray
  const std::string& path_of_images() const { return folder.empty() ? images : folder; }
  /// Of what is read first; it is not empty.
  const std::string& first_path() const {
    return !text.empty()     ? text
           : !shards.empty() ? shards[0]
           : !csv.empty()    ? csv
                             : path_of_images();
  }
};

/// Most stages of a pipeline.
inline constexpr int kMaxStages = kMaxSplit;
/// Most processes between which a layer is divided.
inline constexpr int kMaxSlices = kMaxSplit;

struct TrainingConfig {
  std::uint64_t seed = 0;
  int logical_ranks = 16;
  int batch_size = 64;       ///< global
  int micro_batch_size = 0;  ///< samples that a process computes at once at most; 0: all it has
  std::int64_t epochs = 0;   ///< or steps; exactly one is positive
  std::int64_t steps = 0;
  MlpConfig mlp;
  std::optional<CnnConfig> cnn;  ///< instead of mlp
  std::optional<GptConfig> gpt;  ///< instead of mlp
  std::string pretrained;        ///< directory of a GPT-2 to begin with; as the paths of data
  std::string vocabulary;  ///< directory that says what tokens stand for; as the paths of data
  DataSource train, test;
  bool has_test = false;
  SgdConfig sgd;
  std::optional<AdamwConfig> adamw;    ///< in place of sgd
  std::optional<CosineConfig> cosine;  ///< without: a constant learning rate
  bool is_sharded = false;             ///< each process keeps a part of the optimiser's state
  int buddies = 1;                     ///< others that keep a copy of it
  int stages = 1;                      ///< of the pipeline that one copy of the model is cut into
  int slices = 1;             ///< of each stage: processes between which its layers are divided
  bool may_be_split = false;  ///< further than that, where a process has too little memory for it
  bool recomputes_activations = false;  ///< of a gpt, in place of keeping all
  bool is_bfloat16 = false;             ///< what products of matrices take, in place of fp32
  float gradient_norm_max = 0;          ///< longer gradients are scaled down to it; 0: none is
  bool rolls_back = true;               ///< to a checkpoint, where loss or state is not finite
  int evaluate_every_epochs = 1;
  std::int64_t evaluate_every_steps = 0;   ///< as well; 0: not
  std::int64_t evaluate_samples_most = 0;  ///< of the test set; 0: all
  std::string checkpoint_path;             ///< empty: no checkpoints
  bool checkpoint_durable = false;
  std::int64_t checkpoint_every_steps = 100;
  int checkpoint_keep = 2;
  /// Processes that have one copy of the model together.
  int group_size() const { return stages * slices; }
  // Not part of spec.training:
  std::string data_root = ".";
  std::string job_uid;
  int threads = 1;
  std::size_t memory_bytes = 0;  ///< that this process may have; 0: not known
  /// Of pictures or tables, together: what of them may be held, and not read anew in each step.
  std::uint64_t most_data_held = data::kMostHeldBytes;
  /// Others train already: what they have found of pictures they tell, so that this process need
  /// not decode all before it can train. Where nobody has found anything yet it does.
  bool is_joining = false;
  int processes = 1;  ///< of all workers when this one starts
  int together = 1;   ///< of these, on this one's machine, whose memory limit they share
  int place = 0;      ///< of this process in its group, stage by stage: stage * slices + slice
  /// Steps after which speeds are compared at the earliest, so that shares of a batch follow them
  /// (speeds.h); where it is 0, or the model is split, shares stay even. The same for all.
  int look_steps = 0;
  /// Least of the gradients that is sent at once while the backward pass goes on; the same for all.
  std::size_t bucket_blocks = exchange_sizes::kBucketBlocks;
  /// Gradients of fewer blocks go from process to process, whoever shares a host; the same for all.
  std::size_t host_blocks = exchange_sizes::kHostBlocks;
  /// Of shards that are copied: what a process may give or take in one step, where a 32nd of all
  /// is less; the same for all.
  std::size_t copy_blocks = 64;
  std::int64_t hash_every_steps = 1;  ///< between hashes in the record; 0: none
  /// Longest wait for what the other workers have at hand.
  milliseconds peer_deadline{30'000};
  /// The same where they may be at work alone: on a pass, an evaluation or files. Either is longer
  /// where the same workers have waited in vain before.
  milliseconds long_deadline{600'000};
  /// A checkpoint is left out where the one before is still being written after so long; whoever
  /// waits for files is told so as often while they get on.
  milliseconds save_patience{10'000};
};

/// Reads spec.training (shape: docs/reference and manifest). Errors: kInvalid with the field's path
/// ("spec.training.batchSize: ...") and exit code kInvalidSpec.
Result<TrainingConfig> parse_training(const Json& training);

/// After every step, on the trainer's thread; must return at once.
struct StepReport {
  std::int64_t step = 0, total_steps = 0, epoch = 0;
  float loss = 0;            ///< mean over the global batch of this step
  float gradient_norm = -1;  ///< before clipping; -1 = not measured
  double accuracy = -1;      ///< of the last evaluation, -1 = none yet
  std::int64_t samples = 0;  ///< of this step, all workers
  double step_seconds = 0, data_seconds = 0, compute_seconds = 0, communicate_seconds = 0,
         update_seconds = 0;
  /// Between this step and the next; 0 where there was none.
  double record_seconds = 0, evaluate_seconds = 0, checkpoint_seconds = 0;
  std::uint64_t sent_bytes = 0;                 ///< of this process since its start
  std::uint64_t logical_rank_computations = 0;  ///< of this process since its start
  /// What it has to compute of a step, in logical ranks with the whole model, as its graph
  /// foretells it; 0 where it has all of that.
  double part_ranks = 0;
  PartCounts part;                    ///< of a model that is split
  double turn_seconds = 0;            ///< of the computing, in its turns
  std::int64_t checkpoint_step = -1;  ///< newest complete one
  std::int64_t membership_epoch = 0;
  /// Blocks of the optimiser's state with fewer copies than there are to be, before this step; what
  /// this process was given of copies while it was made.
  std::int64_t blocks_short = 0;
  std::uint64_t copied_bytes = 0;
  int members = 1;  ///< processes that made this step
  int rank = 0;     ///< own place among them
  /// By rank, how long this process has waited for it since the membership began, or for all of its
  /// host where that sends as one (hosts.h); empty where it does not wait for all itself, or nobody
  /// measures it.
  std::vector<double> waited_seconds;
  /// By rank, what has come from it over a network since the report before; empty where it has the
  /// whole model, or nobody measures it.
  std::vector<comm::Arrivals> arrivals;
};

struct TrainingSummary {
  std::int64_t step = -1;  ///< -1 = it has no state, and knows nothing of how far training is
  std::int64_t total_steps = 0;
  bool complete = false;            ///< false: stopped on request after a checkpoint, or left
  bool left = false;                ///< the others go on without this process, as was agreed
  std::int64_t restored_step = -1;  ///< step of the checkpoint it started from, -1 = from the start
  std::int64_t checkpoint_step = -1;  ///< newest complete one that it knows of
  float loss = 0;
  double accuracy = -1;
  std::int64_t model_parameters = 0;
  std::string model_sha256;  ///< block hash of the parameters (docs/numerics.md)
  std::string data_sha256;
  std::uint64_t sent_bytes = 0;
  std::uint64_t logical_rank_computations = 0;
  std::string model_path;  ///< written by slot 0 when complete and checkpoint_path is set
};

/// Places where tests let a process fail. Parts of a step are named in this order.
namespace point {
inline constexpr std::string_view kConnect = "connect", kEnter = "enter", kTransfer = "transfer",
                                  kIdle = "idle", kLayer = "layer", kForward = "forward",
                                  kBucket = "bucket", kBackward = "backward", kScatter = "scatter",
                                  kReduced = "reduced", kGather = "gather", kUpdate = "update",
                                  kHalfUpdated = "half updated", kUpdated = "updated",
                                  kCompare = "compare", kEvaluate = "evaluate",
                                  kCheckpoint = "checkpoint", kFinish = "finish";
// Before each piece of what the process with the files writes while all others wait.
inline constexpr std::string_view kPiece = "piece";
// Between two tokens of what a finished model of text writes, on the process with the files.
inline constexpr std::string_view kSample = "sample";
// Only where the optimiser's state is sharded: before the update, which is before the gather then.
inline constexpr std::string_view kLog = "log", kLogged = "logged";
// Before the first of them, while copies are made.
inline constexpr std::string_view kCopy = "copy";
}  // namespace point

/// After step `step`, as one process sees it.
struct DivisionChange {
  std::int64_t step = 0;
  int ranks_before = 0, ranks_now = 0;  ///< logical ranks that it computes
  /// By rank: how much of the sum each adds up.
  std::span<const std::uint8_t> weights_before, weights_now;
};

struct TrainingHooks {
  /// What computes the passes of a model that is not split; nullptr: the processor. The same bits.
  /// Of the products that the job has (is_bfloat16), used by the training thread alone, and
  /// outlives the training.
  kernels::Context* device = nullptr;
  std::function<void(const StepReport&)> on_step;
  /// Told once before the first step, after data and checkpoint are loaded.
  std::function<void(const TrainingSummary&)> on_start;
  /// After each step that this process has come to, by making it or by taking the state over.
  /// `optimizer` is what this process holds of it.
  std::function<void(std::int64_t step, std::span<const float> parameters,
                     const OptimizerState& optimizer)>
      on_state;
  /// What this process has read for logical ranks of step `step`: the samples' indices, rank by
  /// rank. Told again where what was computed of them is lost, and read anew.
  std::function<void(std::int64_t step, data::RankRange ranks,
                     std::span<const std::uint64_t> samples)>
      on_batch;
  /// All have taken another division because of how fast they are.
  std::function<void(const DivisionChange&)> on_division;
  /// Called often by the training thread, unless it is waiting for others or works on files.
  std::function<void()> on_alive;
  /// Around work on files, which may take any time: where they are before, empty after.
  std::function<void(std::string_view path)> on_files;
  /// Called at the points above; an error ends this process' training with it. At kLayer, which is
  /// between the layers of a forward pass, often; in the middle of an update, at kHalfUpdated, an
  /// error must be one that ends it: nobody can go on from half an update.
  std::function<Status(std::string_view point, std::int64_t step)> at;
  /// Checkpoints and the record are written by the training thread, and it waits; else on threads
  /// of their own.
  bool saves_in_place = false;
  /// With it: whether lines of the record are to wait as if the disk gave no answer.
  std::function<bool()> is_record_held;
  /// Called by the thread that writes the record, before it writes lines and after.
  std::function<void()> on_record, on_recorded;
  /// Called by the thread that writes a checkpoint, before it does and after.
  std::function<void(std::int64_t step)> on_save, on_saved;
  /// Set from any thread: every rank stops after the same step, with a checkpoint. The flag rides
  /// with the gradients, so one rank's request stops all.
  const std::atomic<bool>* stop = nullptr;
};

/// Trains to the end, or until stopped or not a member any more. Members come and go; the bits stay
/// the same, and no step is made twice by a process that lives. Errors carry the exit code the
/// process ends with (contract::exit_code: kData, kCheckpoint, kNumerics, kPeerLost, kDisk ...).
/// Blocks: for the whole training. Threads: one.
Result<TrainingSummary> run_training(const TrainingConfig& config, Membership& membership,
                                     const Clock& clock, const TrainingHooks& hooks);

/// The same among the ranks of one communicator, until the first of them fails.
Result<TrainingSummary> run_training(const TrainingConfig& config, comm::Communicator& communicator,
                                     const Clock& clock, const TrainingHooks& hooks);

}  // namespace muster::engine
