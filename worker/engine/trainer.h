// The training of one process: its state, the steps, and the way from one membership into the next.
// Private to the engine.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/bpe/vocabulary.h"
#include "common/contract.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/data/read_ahead.h"
#include "worker/engine/buckets.h"
#include "worker/engine/checkpoint.h"
#include "worker/engine/copies.h"
#include "worker/engine/entry.h"
#include "worker/engine/evaluation.h"
#include "worker/engine/exchange.h"
#include "worker/engine/hosts.h"
#include "worker/engine/keeping.h"
#include "worker/engine/membership.h"
#include "worker/engine/memory_needs.h"
#include "worker/engine/mesh.h"
#include "worker/engine/model.h"
#include "worker/engine/node_sums.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/passes.h"
#include "worker/engine/pipeline_stage.h"
#include "worker/engine/record.h"
#include "worker/engine/saver.h"
#include "worker/engine/sharded_exchange.h"
#include "worker/engine/speeds.h"
#include "worker/engine/stage_state.h"
#include "worker/engine/tail.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Threads: one.
class Trainer {
 public:
  Trainer(const TrainingConfig& config, Membership& membership, const Clock& clock,
          const TrainingHooks& hooks);
  /// Blocks: for the disk, where a checkpoint is being written.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  Result<TrainingSummary> run();

 private:
  /// How the time in one membership ended, where it did not end with an error.
  enum class Outcome { kDone, kNextView, kStateLost };
  /// Where training stood, and with what parameters, when loss or state was not finite.
  struct Divergence {
    std::int64_t step = -1;
    std::uint64_t parameters = 0;  ///< a sum over their bits
    bool operator==(const Divergence&) const = default;
  };

  // trainer.cpp: from start to end
  std::string absolute(const std::string& path) const {
    return path.starts_with('/') ? path : config_.data_root + "/" + path;
  }
  Result<data::Dataset> load_all(const DataSource& source) const;
  Result<data::Dataset> load_set(const DataSource& source) const;
  Status load_vocabulary();
  Status load_data();
  bool is_data_checked() const;
  void tell_ready();
  Error of_joiner(const Error& error) const;
  void find_digests();
  Status check_data(std::vector<Greeting>& all);
  Status check_pictures();
  Status prepare();
  std::string model_config() const;
  Status open_store_of_owner();
  Status begin_parameters();
  Status load_state();
  Result<View> next_view();
  Result<Outcome> live(const View& view);
  std::optional<std::vector<int>> newcomers_of(const View& next) const;
  Result<std::vector<Greeting>> hear(const Greeting& own);
  Status confirm_greetings();
  Result<std::vector<Greeting>> greet();
  Result<std::vector<Greeting>> find_state();
  std::vector<std::span<std::byte>> state_bytes();
  Status receive_state(const EntryPlan& plan, Entry& entry);
  Status complete_state();
  Status enter(const std::vector<Greeting>& greetings);
  void take_over(const EntryPlan& plan);
  void choose_patience(std::int64_t step);
  Result<Outcome> train();
  Result<Outcome> go_over();
  Result<TrainingSummary> leave();
  Status deal_evenly();
  Work work() const {
    const auto products = static_cast<double>(rows_per_rank() * shape_.products());
    return Work(products / static_cast<double>(shape_.parameters()));
  }
  bool is_look_due() const;
  Status deal_by_speed();

  // step.cpp: one step
  void set_assignment(const Assignment& assignment);
  void plan_exchange();
  Result<bool> train_step();
  int ranks_most(int own) const;
  MemoryShare memory_share(const Assignment& assignment, int rank) const;
  Result<MemoryShare> even_share() const;
  Result<std::uint64_t> memory_for_check(const data::PictureFiles& pictures) const;
  Status check_memory() const;
  std::size_t device_memory() const;
  Status check_device_memory(const MemoryShare& share) const;
  int ranks_on_device(const MemoryShare& share, int most) const;
  std::size_t choose_passes(const Assignment& assignment);
  void give_up_surplus(std::size_t needs, const Assignment& assignment);
  void fit_passes();
  std::size_t rows_evaluated() const;
  std::optional<int> ranks_that_fit_all(const MemoryShare& share, int most) const;
  void list_missing();
  std::span<float> sum_in_slot(const Piece& piece, unsigned slot);
  Status read_batch(const ComputePass& pass);
  Status compute();
  Status begin_sum();
  Status compute_pass(const ComputePass& pass, bool is_last);
  void merge(const Piece& piece, std::size_t first, std::size_t end);
  void sum_losses(const Model::Node& node);
  Status set_flags();
  bool is_flip_agreed() const;
  Status sum_gradients();
  Status judge();
  Status make_step(MonoTime& mark);
  Status commit();
  Buckets buckets_of(const ModelShape& shape) const {
    return Buckets(shape.values() + kTailSize, shape.layer_starts(), config_.bucket_blocks);
  }
  Ownership ownership() const { return Ownership(*buckets_, weights_); }
  Hosts hosts() const;
  bool has_learners() const { return std::ranges::find(weights_, 0) != weights_.end(); }
  void reserve_model(const Assignment& assignment);
  void warm_up();
  std::span<const float> summed_tail() const { return tail_; }
  Error diverged(std::int64_t step, const std::string& what) const;

  // sharded.cpp: what is different where each keeps a part of the optimiser's state
  bool is_sharded() const { return config_.is_sharded; }
  Shards shards_among(Ownership ownership) const;
  Shards shards_to_keep(const std::vector<std::uint8_t>& weights) const;
  Status make_sharded_step(MonoTime& mark);
  Status apply();
  Status receive_shards(const std::vector<Greeting>& greetings, const EntryPlan& plan,
                        Entry& entry);
  Result<std::uint64_t> move_shards(const std::vector<Move>& moves, const EntryPlan* plan);
  Status hand_over_shards();
  Result<std::uint64_t> take_shards(const Shards& shards, const std::vector<Keeper>& keepers,
                                    const EntryPlan* plan);
  Status say_what_is_lost() const;
  std::string why_lost() const;
  Result<StateParts> parts_of_shards();

  // copying.cpp: what is lacking of shards is copied while steps are made
  void keep(std::vector<Ranges> kept);
  Status begin_copying();
  Status complete_copying();
  void end_copying();
  std::uint8_t own_word() const;
  bool is_any_leaving() const { return std::ranges::find(leaves_, 1) != leaves_.end(); }
  KeptParts kept_parts() const;
  void relieve(const std::vector<std::uint8_t>& words);

  // stages.cpp: what is different where several processes have one copy of the model
  bool is_split() const { return config_.group_size() > 1; }
  bool is_first_in_group() const { return config_.place == 0; }
  StageGroup stage_group() const { return {whole_, *plan_, *group_, hashed_blocks_}; }
  Meeting meeting(std::uint64_t stamp) const { return {stamp, long_deadline()}; }
  /// Of all copies.
  comm::Communicator& all_processes() { return is_split() ? *members_ : *communicator_; }
  void join_group();
  void leave_group();
  Result<std::vector<Greeting>> as_groups(const std::vector<Greeting>& greetings);
  Result<std::vector<Greeting>> as_sharded_groups(const std::vector<Greeting>& greetings);
  Status share_recorded();
  Status build_stage();
  double part_ranks() const;
  Status compute_stage();
  void plan_squares();
  Result<std::vector<float>> squares_of_model(std::uint64_t stamp);
  Status share_sums();
  Result<std::optional<Standing>> load_whole();
  StateParts parts_of_group(bool has_optimizer);
  Status with_whole(bool has_optimizer, const std::function<Status(StateSource&)>& work);
  Result<bool> any_in_group(bool own);
  Status hear_owner(std::span<std::byte> says);
  Status follow_owner(const Status& own, const char* what, MonoTime deadline);

  // compare.cpp: whether all still have the same state
  bool is_comparison_due(const Standing& standing) const;
  CopySums copy_sums() const;
  Result<CopyVerdict> compare_copies();
  Result<bool> is_state_sound();
  Status judge_state(const CopyVerdict& verdict);
  Result<Outcome> doubt(const Error& diverged);
  Error diverged_again(const Error& diverged) const;
  void note_return(std::string why, std::int64_t step);
  void drop_state(std::int64_t lineage);
  void forget_standing(std::int64_t lineage);

  // settle.cpp: what is due between two steps, and at the end
  bool is_end(const Standing& standing) const {
    return standing.step == total_steps_ || standing.is_stopping != 0;
  }
  bool is_evaluation_due(const Standing& standing) const;
  bool is_checkpoint_due(const Standing& standing) const;
  bool is_state_wanted(const EntryPlan& plan) const;
  Status settle();
  Status save_if_due(const std::function<double()>& lap);
  std::string record_path() const {
    return config_.checkpoint_path + "/" + std::string(contract::kRecordFile);
  }
  Result<Standing> standing_of(std::int64_t step) const;
  Status open_record(const Standing& standing);
  Status share_record(const std::vector<Greeting>& greetings, const EntryPlan& plan);
  Status tell_lines(const std::vector<Greeting>& greetings, const EntryPlan& plan);
  void end_record();
  void give_up_record();
  void forget_record();
  void describe_step();
  Status record_step();
  Result<bool> is_record_written();
  void note_record_waits(bool waits);
  void tell_missing_lines();
  bool are_lines_to_keep() const;
  Status keep_record();
  Status record_evaluation();
  void report_step();
  Status evaluate_now();
  Status save();
  Status save_before_leaving();
  Status save_with_others();
  Status save_alone();
  Status save_agreed();
  void tell_unsaved(const Error& error, std::int64_t step) const;
  Status begin_save();
  Status write_checkpoint(bool is_beside, const std::function<Status()>& write);
  /// What the owner says of the checkpoint that it has begun last, or of the model.
  enum class Saving : std::uint8_t {
    kDone,
    kUnderWay,
    kBegun,        ///< it is the one that is due: another membership has begun it
    kDoneInPlace,  ///< it is written, and while the one that is due is, the owner does nothing else
  };
  Result<Saving> ask_owner();
  Result<Saving> await_owner();
  Status conclude_save();
  void await_save();
  void forget_save();
  std::int64_t newest_checkpoint();
  Status check_finite();
  Result<Sha256Digest> parameters_digest();
  std::size_t copy_bytes() const;
  std::optional<std::uint64_t> agreed_sum() const;
  Status read_copy(StateSource& source, Saver::Copy& copy);
  Status save_copy(StateSource* source);
  Status save_in_place(StateSource* source, bool tells);
  Status tell_under_way(bool is_group_at_it);
  Status before_piece(bool tells);
  Status write_model();
  bool writes_sample() const;
  std::size_t sample_tokens() const;
  ModelShape sample_shape() const;
  bool has_room_for_whole() const;
  Status describe_model(std::span<const float> parameters);
  Status describe_whole();
  Status leave_model(const Sha256Digest& digest);
  Status finish();
  TrainingSummary summary();

  /// Own place among the copies of the model. Of a model that is not split each process has one,
  /// and in all that follows a member is a copy, of whose processes each has to do with those of
  /// the same place.
  int rank() const { return mesh_.group; }
  int copies() const { return mesh_.copies(); }
  /// The copy whose first process reads and writes files: that of slot 0; -1 while there is none.
  int owner() const { return mesh_.owner; }
  bool is_owner() const { return owner() == rank() && is_first_in_group(); }
  /// Writes the record, or keeps its lines for the owner: all do, because any of them may die
  /// before the owner is back.
  bool is_recorder() const { return owner() == rank() || owner() < 0; }
  bool keeps_files() const { return !config_.checkpoint_path.empty(); }
  bool can_save_alone() const {
    return keeps_files() && is_owner() && !is_sharded() && !is_split();
  }
  /// What computes passes.
  kernels::Context& device() { return hooks_.device != nullptr ? *hooks_.device : context_; }
  Activations activations() const {
    return config_.recomputes_activations ? Activations::kRecomputed : Activations::kKept;
  }
  bool can_write() const { return !keeps_files() || owner() >= 0; }
  bool is_last_step() const { return standing_.step == total_steps_; }
  MonoTime deadline() const { return clock_.mono_now() + patience_ * config_.peer_deadline; }
  /// Of a wait for others that may be at work alone; who dies or hangs over it is noticed
  /// elsewhere.
  milliseconds long_wait() const { return patience_ * config_.long_deadline; }
  MonoTime long_deadline() const { return clock_.mono_now() + long_wait(); }
  std::uint64_t step_stamp() const { return static_cast<std::uint64_t>(standing_.step); }
  std::size_t rows_per_rank() const { return static_cast<std::size_t>(loader_->rows_per_rank()); }
  /// Labels of the whole batch, of which losses are the mean.
  float batch_targets() const {
    return static_cast<float>(static_cast<std::size_t>(config_.batch_size) * train_.targets);
  }
  Status at(std::string_view point) const {
    if (hooks_.on_alive) hooks_.on_alive();
    return hooks_.at ? hooks_.at(point, standing_.step) : Status();
  }
  /// What calls at() in the midst of some work, where somebody wants to know.
  std::function<Status()> when_at(std::string_view point) const {
    const bool is_asked = hooks_.at || hooks_.on_alive;
    return is_asked ? [this, point] { return at(point); } : std::function<Status()>();
  }

  const TrainingConfig& config_;
  Membership& membership_;
  const Clock& clock_;
  const TrainingHooks& hooks_;
  kernels::cpu::Context context_;

  // What the training is made of; unchanged from prepare() on.
  data::Dataset train_, test_;
  std::optional<bpe::Vocabulary> vocabulary_;
  Sha256Digest spec_digest_{}, data_digest_{};  ///< data: of the training set
  Sha256Digest read_digest_{};                  ///< of all data that is read, also to test with
  Sha256Digest outline_{};         ///< the same as far as it is known before pictures are checked
  std::string pretrained_sha256_;  ///< of the first parameters, where they are read
  ModelShape whole_, shape_;       ///< of the model, and of what this process has of it
  std::optional<StagePlan> plan_;  ///< where it is split
  std::optional<Buckets> buckets_;
  std::optional<data::Loader> loader_;
  std::int64_t total_steps_ = 0;

  // The state after standing_.step steps: a function of spec, data and that number alone.
  bool has_state_ = false;
  /// This process has no state yet, and has it after the step under way.
  bool is_learning_ = false;
  Standing standing_;
  std::vector<float> parameters_;  ///< and behind them the running statistics of the model
  std::optional<Optimizer> optimizer_;

  // The step under way. Its node sums outlive a membership; all else is of the present one.
  std::optional<NodeSums> sums_;
  View view_;
  Mesh mesh_;
  /// By rank, how much each adds up of the sum; 0 for who learns in the step under way.
  std::vector<std::uint8_t> weights_;
  bool is_summed_by_speed_ = false;  ///< they may not be even
  /// By rank: 1 for who is to leave, as all have heard.
  std::vector<std::uint8_t> leaves_;
  std::set<int> spared_;             ///< slots, as Membership::spares() was told last
  std::int64_t prepared_epoch_ = 0;  ///< what Membership said in the step under way
  std::int64_t agreed_epoch_ = 0;    ///< of a view that all have agreed to enter now; 0: none
  bool is_agreed_ = false;           ///< the newest view was entered so
  /// Of it, until this process greets: those who have not made the last step with it, where what
  /// all others will say is known.
  std::optional<std::vector<int>> newcomers_;
  bool lacks_state_ = false;                      ///< as all others of the newest view
  std::unique_ptr<comm::Communicator> everyone_;  ///< of the view; only where the model is split
  std::unique_ptr<comm::Communicator> members_;   ///< of them those whose group is whole
  std::unique_ptr<comm::Communicator> group_;     ///< those who have one copy with this process
  std::unique_ptr<comm::Communicator> team_;      ///< of these those with the same stage
  std::unique_ptr<comm::Communicator> communicator_;  ///< the copies: those with the same place
  std::optional<Greetings> greetings_;                ///< foreseen, and not confirmed yet
  std::unique_ptr<comm::Work> state_under_way_;       ///< to or from this process
  std::vector<float> exchange_memory_;
  Assignment assignment_;
  std::optional<GradientExchange> exchange_;
  Gifts gifts_;            ///< of sharded state, planned with exchange_
  bool is_dealt_ = false;  ///< every member has its share, and no step is begun
  SpeedBook speeds_;
  std::int64_t look_step_ = 0;         ///< after it, all compare their speeds
  bool was_faster_ = false;            ///< another assignment, when they did so last
  std::size_t members_computing_ = 1;  ///< members that hold a node
  std::optional<Model> model_;
  int ranks_at_once_ = 1;                ///< most logical ranks of a pass
  std::vector<std::size_t> missing_;     ///< nodes of sums_ that are to be computed in this step
  std::vector<ComputePass> passes_;      ///< in which they are computed
  std::vector<Model::Node> pass_nodes_;  ///< of the pass under way, one a piece
  std::vector<std::uint64_t> indices_;   ///< the samples of a piece
  data::TakenSamples samples_taken_;     ///< of the passes, so far

  /// Parts of the evaluation of a state that is not complete yet, which may take several
  /// memberships.
  struct Evaluating {
    std::int64_t step = -1, lineage = 0;
    EvaluatedParts parts;
  } evaluating_;

  float scale_ = 1;                      ///< of the gradient that has been summed last
  std::array<float, kTailSize> tail_{};  ///< summed with it

  // Only where the model is split.
  std::optional<PipelineStage> stage_;  ///< what computes
  std::vector<RankRange> stage_nodes_;  ///< those that it was made for
  BlockPlan squared_blocks_;            ///< where the gradient is clipped
  std::vector<float> block_squares_;    ///< of the gradient of all stages
  BlockPlan hashed_blocks_;

  /// Only where the model is split or the optimiser's state is sharded: set while this process has
  /// all it needs for an update and does not know yet that the others have, too: where it stands
  /// after it.
  std::optional<Standing> logged_;
  /// What logged_ says, where it was given by others, by part of the state; else it is made from
  /// the gradients.
  std::vector<std::vector<std::byte>> newer_;
  std::int64_t lost_step_ = -1;  ///< of the last greetings, when nobody has all of a state
  /// Where the model is split, what this process has had a part of that was of no use to anybody,
  /// since the last entry.
  std::int64_t dropped_step_ = -1;

  // Only where the optimiser's state is sharded.
  Shards shards_;                            ///< who is to keep what
  Keeping keeping_;                          ///< who does, after the copies of the step under way
  std::size_t blocks_short_ = 0;             ///< with fewer copies than they are to have
  bool is_copied_ = true;                    ///< all have what they are to keep
  std::vector<Move> copies_;                 ///< of the step under way
  std::unique_ptr<comm::Work> copies_work_;  ///< to and from this process
  bool is_exchange_old_ = false;             ///< it is for those who kept what before
  bool is_whole_ = false;                    ///< all parameters are of standing_.step

  // Files, on the process of slot 0 alone.
  std::optional<CheckpointStore> store_;
  Record record_;
  Saver saver_;                ///< uses store_ while it writes
  bool saves_beside_ = false;  ///< there is room for a copy to save
  /// Of a checkpoint that the owner has begun in this membership; what became of it is not agreed
  /// yet. -1: none.
  std::int64_t saving_step_ = -1;
  MonoTime save_begun_{};         ///< the owner's
  MonoTime told_at_{};            ///< when it has last told the others that files get on
  Sha256Digest model_written_{};  ///< of the parameters of a model that this process has written
  std::string model_path_;        ///< where

  // For reports.
  StepReport report_;               ///< of the step made last, report_.step
  std::int64_t reported_step_ = 0;  ///< the last one that on_step was told of
  RecordedStep line_;               ///< of the step made last, without the hash
  std::int64_t recorded_step_ = 0, recorded_evaluation_ = 0;  ///< the last ones in the record
  std::optional<MonoTime> record_waits_since_;                ///< for its disk
  std::string kept_lines_;                                    ///< of what it has greeted with
  bool is_record_wait_told_ = false;
  std::int64_t trained_epoch_ = 0;                    ///< of the last membership that was entered
  std::int64_t entered_step_ = 0;                     ///< where the present membership began
  std::vector<int> entered_slots_, entered_numbers_;  ///< of its members
  bool is_broken_ = false;                            ///< it, or one that was not entered since
  int patience_ = 1;                                  ///< waits may take so many times as long
  bool is_compared_ = false;  ///< its members' copies were alike at least once
  /// The last comparison that found all alike: its step, and the sum of this process's state.
  struct Compared {
    std::int64_t step = -1;
    std::uint64_t sum = 0;
  } compared_;
  std::string returned_;  ///< why there was a return that was not told yet
  std::int64_t returned_from_ = 0;
  int returns_ = 0;      ///< to a checkpoint since the last one, with nobody found guilty
  Divergence diverged_;  ///< the last one that training went back from
  bool is_started_ = false;
  bool has_entered_ = false;
  MonoTime last_work_{};
  std::uint64_t sent_before_ = 0;  ///< over communicators that are gone
  std::uint64_t computations_ = 0;
  TrainingSummary result_;
};

}  // namespace muster::engine
