// From start to end: load, enter a membership, train in it, enter the next.
#include "worker/engine/trainer.h"

#include <algorithm>
#include <utility>

#include "common/contract.h"
#include "common/log.h"
#include "worker/data/csv.h"
#include "worker/data/file.h"
#include "worker/data/image_folder.h"
#include "worker/data/picture_files.h"
#include "worker/data/text.h"
#include "worker/data/tokens.h"
#include "worker/engine/agreement.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/files.h"
#include "worker/engine/float_environment.h"
#include "worker/engine/identity.h"
#include "worker/engine/on_files.h"
#include "worker/engine/pretrained.h"
#include "worker/engine/sample.h"

namespace muster::engine {
namespace {

/// Of waits, as often as they are given in the configuration.
constexpr int kPatienceMax = 64;

/// The arithmetic that the numerics contract rests on: denormals kept, rounding to nearest even.
/// An object linked with -ffast-math breaks it for the whole process.
Status check_arithmetic() {
  volatile float denormal = 0x1p-140f;
  volatile float tie = 0x1.000002p0f;
  const bool keeps = denormal * 0.5f == 0x1p-141f;
  const bool rounds = 1.0f + 0x1p-24f * tie == 0x1.000002p0f && tie + 0x1p-24f == 0x1.000004p0f;
  if (keeps && rounds) return {};
  return Error(ErrorCode::kUnsupported,
               "the processor flushes denormals or does not round to nearest even; a library set "
               "it so, and this build cannot train by " +
                   std::string(contract::kNumericsContract))
      .with_exit_code(contract::exit_code::kCpuOrContract);
}

/// Whether others may go on where this error came up: it is about a membership, not about us.
bool is_of_membership(const Error& error) {
  return error.exit_code() == 0 || error.exit_code() == contract::exit_code::kPeerLost;
}

std::string size_of(const data::Dataset& set) {
  return std::to_string(set.height) + " x " + std::to_string(set.width);
}

Sha256Digest both(const Sha256Digest& a, const Sha256Digest& b) {
  return sha256(std::string_view(to_hex(a) + to_hex(b)));
}

}  // namespace

Trainer::Trainer(const TrainingConfig& config, Membership& membership, const Clock& clock,
                 const TrainingHooks& hooks)
    : config_(config),
      membership_(membership),
      clock_(clock),
      hooks_(hooks),
      context_(std::max(1, config.threads),
               config_.is_bfloat16 ? kernels::Products::kBfloat16 : kernels::Products::kFloat32) {
  context_.set_on_alive(hooks_.on_alive);
  if (hooks_.device == nullptr) return;
  MUSTER_CHECK(hooks_.device->products() == context_.products());
  hooks_.device->set_on_alive(hooks_.on_alive);
}

/// Who leaves while its checkpoint is still being written is no more to be taken for one that hangs
/// than who stays.
Trainer::~Trainer() {
  forget_save();
  end_record();
  if (hooks_.device != nullptr) hooks_.device->set_on_alive(nullptr);
}

Result<TrainingSummary> Trainer::run() {
  MUSTER_RETURN_IF_ERROR(check_arithmetic());
  MUSTER_RETURN_IF_ERROR(load_data());
  MUSTER_RETURN_IF_ERROR(prepare());
  tell_ready();
  last_work_ = clock_.mono_now();
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const View view, next_view());
    if (view.rank < 0) return leave();
    const auto outcome = live(view);
    if (communicator_) sent_before_ += communicator_->sent_bytes();
    if (outcome && *outcome == Outcome::kDone) return result_;
    if (!outcome) {
      agreed_epoch_ = 0;
      // Peers learn of it by the closed connections, whatever the reason is.
      if (communicator_) communicator_->abort();
      if (!is_of_membership(outcome.error())) return outcome.error();
      // A stop is near only to who has entered: one that was not connected may be the stop itself.
      if (communicator_ && membership_.is_stop_near()) {
        log_info("a stop ends what was under way",
                 {{"epoch", view.epoch}, {"error", outcome.error().message()}});
      } else {
        membership_.broken(view.epoch, peer_error(outcome.error()));
        is_broken_ = true;
      }
    }
    greetings_.reset();
    state_under_way_.reset();
    copies_work_.reset();
    communicator_.reset();
    leave_group();
    if (std::exchange(is_learning_, false)) forget_standing(standing_.lineage);
  }
}

/// What it says last knows of a checkpoint that it has begun, however long the disk takes.
Result<TrainingSummary> Trainer::leave() {
  await_save();
  if (const Status saved = saver_.result(); !saved) tell_unsaved(saved.error(), saver_.step());
  MUSTER_RETURN_IF_ERROR(save_agreed());
  result_ = summary();
  result_.left = true;
  return result_;
}

/// It may take minutes, which somebody should be told.
Result<data::Dataset> Trainer::load_all(const DataSource& source) const {
  const OnFiles reading(hooks_, absolute(source.first_path()));
  return load_set(source);
}

Result<data::Dataset> Trainer::load_set(const DataSource& source) const {
  // Of a test set what its training set has left.
  const auto room = [&](std::uint64_t held) {
    return config_.most_data_held - std::min(config_.most_data_held, held);
  };
  // For what cannot stay in its files, as an IDX file, a text, and where a table's rows begin, and
  // for what pictures take while they are decoded. None of the training set is decoded meanwhile;
  // whether what both take is there is known later (check_memory()).
  const std::uint64_t memory =
      config_.memory_bytes == 0
          ? data::kAnyMemory
          : config_.memory_bytes - std::min(config_.memory_bytes, train_.memory_at_rest());
  const auto context = [&] { return static_cast<std::size_t>(config_.gpt->context_length); };
  if (!source.text.empty()) return data::load_text(absolute(source.text), context(), memory);
  if (!source.shards.empty()) {
    data::TokenSource tokens{
        {}, static_cast<std::uint32_t>(config_.gpt->vocabulary_size), context()};
    for (const std::string& path : source.shards) tokens.paths.push_back(absolute(path));
    tokens.on_read = hooks_.on_files;
    return data::load_tokens(tokens);
  }
  if (!source.csv.empty()) {
    const data::CsvSource table{absolute(source.csv),
                                source.label,
                                source.rules,
                                room(train_.values.size() * sizeof(float)),
                                std::max(1, config_.threads),
                                hooks_.on_files,
                                memory};
    return &source == &config_.train ? data::load_csv(table) : data::load_test_csv(table, train_);
  }
  if (!source.folder.empty()) {
    data::ImageFolder folder{absolute(source.folder), static_cast<std::size_t>(source.height),
                             static_cast<std::size_t>(source.width), source.is_gray,
                             std::max(1, config_.threads)};
    folder.is_checked_by_others = config_.is_joining;
    folder.most_held = room(train_.pictures ? train_.pictures->held_bytes() : 0);
    folder.most_memory = memory;
    folder.on_read = hooks_.on_files;
    folder.on_alive = hooks_.on_alive;
    return &source == &config_.train ? data::load_image_folder(folder)
                                     : data::load_test_image_folder(folder, train_);
  }
  const data::DatasetPaths paths{absolute(source.images), absolute(source.labels)};
  if (&source == &config_.train) return data::load_dataset(paths, memory);
  MUSTER_ASSIGN_OR_RETURN(data::Dataset test, data::load_test_dataset(paths, train_, memory));
  if (config_.cnn && (test.height != train_.height || test.width != train_.width)) {
    return Error(ErrorCode::kInvalid, paths.images + ": its images are " + size_of(test) +
                                          ", those of the training set " + size_of(train_) +
                                          "; they must be equal")
        .with_exit_code(contract::exit_code::kData);
  }
  return test;
}

/// Only the end of the training needs it, but what is wrong with it is better known at the start.
Status Trainer::load_vocabulary() {
  if (config_.vocabulary.empty()) return {};
  const std::string directory = absolute(config_.vocabulary);
  const auto read = [](const std::string& path, std::size_t most) -> Result<std::string> {
    MUSTER_ASSIGN_OR_RETURN(const auto bytes, data::read_file(path, most));
    return std::string(bytes.begin(), bytes.end());
  };
  MUSTER_ASSIGN_OR_RETURN(vocabulary_, bpe::Vocabulary::load(directory, read));
  const auto wanted = static_cast<std::size_t>(config_.gpt->vocabulary_size);
  if (vocabulary_->size() == wanted) return {};
  return Error(ErrorCode::kInvalid,
               directory + ": its vocabulary has " + std::to_string(vocabulary_->size()) +
                   " tokens; must have spec.training.model.gpt.vocabularySize (" +
                   std::to_string(wanted) + ")")
      .with_exit_code(contract::exit_code::kData);
}

Status Trainer::load_data() {
  MUSTER_RETURN_IF_ERROR(load_vocabulary());
  MUSTER_ASSIGN_OR_RETURN(train_, load_all(config_.train));
  if (config_.has_test) {
    MUSTER_ASSIGN_OR_RETURN(test_, load_all(config_.test));
  }
  find_digests();
  if (train_.count < static_cast<std::size_t>(config_.batch_size)) {
    const DataSource& source = config_.train;
    const std::string has = " has only " + std::to_string(train_.count);
    const std::string samples =
        !source.text.empty()  ? source.text + has + " samples of contextLength bytes"
        : !source.csv.empty() ? source.csv + has + " rows"
        : config_.gpt         ? "data.train.tokens" + has + " samples of contextLength tokens"
                              : source.path_of_images() + has + " images";
    return Error(ErrorCode::kInvalid, "spec.training.batchSize: is " +
                                          std::to_string(config_.batch_size) + ", but " + samples +
                                          "; must be at most their number")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  return {};
}

bool Trainer::is_data_checked() const {
  return data::is_checked(train_) && data::is_checked(test_);
}

/// What pictures look like from outside is told also by who has decoded them, so that others who
/// have not are known to be of the same training.
void Trainer::find_digests() {
  const auto outline = [](const data::Dataset& set, const Sha256Digest& hash) {
    return set.pictures ? set.pictures->outline() : hash;
  };
  const auto hash = [](const data::Dataset& set) {
    return data::is_checked(set) ? data::hash_of(set) : Sha256Digest{};
  };
  data_digest_ = read_digest_ = hash(train_);
  outline_ = outline(train_, data_digest_);
  if (!config_.has_test) return;
  const Sha256Digest of_test = hash(test_);
  read_digest_ = both(data_digest_, of_test);
  outline_ = both(outline_, outline(test_, of_test));
}

/// Who joins is let in before it knows its pictures: where they differ, the job goes on without it.
Error Trainer::of_joiner(const Error& error) const {
  const bool is_own = config_.is_joining && error.exit_code() == contract::exit_code::kData;
  return is_own ? Error(error).with_exit_code(contract::exit_code::kDisk) : error;
}

void Trainer::tell_ready() {
  Subject subject{both(spec_digest_, outline_), {}};
  if (is_data_checked()) subject.contents = both(spec_digest_, read_digest_);
  membership_.ready(subject);
}

/// What is wrong with any picture is known from here on, or told by those who know it: of `all`
/// greetings none is of unchecked data behind this.
Status Trainer::check_data(std::vector<Greeting>& all) {
  std::vector<data::PictureFiles*> sets;
  for (const data::Dataset* set : {&train_, &test_}) {
    if (set->pictures) sets.push_back(set->pictures.get());
  }
  const std::vector<Telling> tellings = plan_checks(all);
  const bool was_checked = is_data_checked();
  MUSTER_RETURN_IF_ERROR(tell_checks(all_processes(), tellings, sets, long_deadline()));
  if (!was_checked) {
    find_digests();
    tell_ready();
    MUSTER_RETURN_IF_ERROR(open_store_of_owner());
  }
  for (const Telling& one : tellings) {
    Greeting& told = all[static_cast<std::size_t>(one.to)];
    told.is_checked = true;
    told.data = all[static_cast<std::size_t>(one.from)].data;
  }
  return {};
}

/// Where all who could tell are gone. By now there is the model beside the pictures.
Status Trainer::check_pictures() {
  const OnFiles reading(hooks_, absolute(config_.train.first_path()));
  for (const data::Dataset* set : {&train_, &test_}) {
    if (data::is_checked(*set)) continue;
    MUSTER_ASSIGN_OR_RETURN(const std::uint64_t memory, memory_for_check(*set->pictures));
    MUSTER_RETURN_IF_ERROR(set->pictures->check_all(memory));
  }
  find_digests();
  tell_ready();
  return open_store_of_owner();
}

Status Trainer::prepare() {
  MUSTER_ASSIGN_OR_RETURN(
      whole_,
      ModelShape::of(config_, {train_.height, train_.width, train_.channels}, train_.classes));
  if (is_split()) {
    MUSTER_ASSIGN_OR_RETURN(plan_, plan_stages(whole_, config_.stages, config_.slices));
  }
  shape_ = plan_ ? plan_->part(config_.place) : whole_;
  loader_.emplace(
      data::LoaderOptions{config_.seed, train_.count, config_.logical_ranks, config_.batch_size});
  MUSTER_RETURN_IF_ERROR(check_memory());
  if (plan_) {
    hashed_blocks_ = plan_blocks(block_parts(*plan_, whole_, whole_.values()), config_.place);
  }
  parameters_.resize(shape_.values());
  // What is wrong with them is known before anybody waits for others.
  if (!config_.pretrained.empty()) MUSTER_RETURN_IF_ERROR(begin_parameters());
  spec_digest_ = configuration_digest(config_, whole_, pretrained_sha256_);
  total_steps_ = config_.steps > 0 ? config_.steps : config_.epochs * loader_->steps_per_epoch();
  if ((total_steps_ - 1) / loader_->steps_per_epoch() > std::int64_t{UINT32_MAX}) {
    return Error(ErrorCode::kInvalid, "spec.training.steps: is more than 2^32 passes over the data")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  if (config_.cosine && config_.cosine->warmup_steps > total_steps_) {
    return Error(ErrorCode::kInvalid, "spec.training.optimizer.schedule.cosine.warmupSteps: is " +
                                          std::to_string(config_.cosine->warmup_steps) +
                                          ", but the training has " + std::to_string(total_steps_) +
                                          " steps; must be at most their number")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  if (is_sharded()) {
    // What is kept depends on the members.
    optimizer_.emplace(config_, Ranges(), undecayed_of(config_, shape_));
  } else {
    optimizer_.emplace(config_, shape_.parameters(), undecayed_of(config_, shape_));
  }
  buckets_ = buckets_of(shape_);
  sums_.emplace(buckets_->elements());
  return {};
}

/// What others need to know to load the model from a file.
std::string Trainer::model_config() const {
  if (!config_.gpt) return "";
  const auto end = vocabulary_ ? vocabulary_->find(bpe::kEndOfText) : std::nullopt;
  return dump_json(gpt2_config(*config_.gpt, whole_.output().channels, end)) + "\n";
}

/// Whoever keeps the files, once it knows of what they are.
Status Trainer::open_store_of_owner() {
  if (!is_owner() || !keeps_files() || store_ || !is_data_checked()) return {};
  store_.emplace(CheckpointOptions{
      config_.checkpoint_path, config_.checkpoint_keep, whole_,
      identity_of(config_, whole_, {to_hex(data_digest_), pretrained_sha256_}), config_.job_uid,
      config_.is_bfloat16 ? contract::kBfloat16Contract : contract::kNumericsContract,
      model_config()});
  return make_directories(config_.checkpoint_path);
}

/// Those before the first step: drawn, or read and the same as the last time.
Status Trainer::begin_parameters() {
  if (config_.pretrained.empty()) {
    initialise(shape_, config_.seed, parameters_, hooks_.on_alive);
    return {};
  }
  const std::string directory = absolute(config_.pretrained);
  const OnFiles files(hooks_, directory);
  MUSTER_ASSIGN_OR_RETURN(const auto model, Pretrained::open(directory, *config_.gpt, whole_));
  const auto read = [&](ElementRange range, std::span<float> out) {
    return model.read(range, out);
  };
  MUSTER_RETURN_IF_ERROR(is_split() ? take_stage(whole_, shape_, read, parameters_)
                                    : read({0, whole_.values()}, parameters_));
  const std::string before = std::exchange(pretrained_sha256_, model.sha256());
  if (before.empty() || before == pretrained_sha256_) return {};
  return Error(ErrorCode::kConflict,
               directory + ": is not what it was at the start; leave it as it is while jobs train")
      .with_exit_code(contract::exit_code::kCheckpoint);
}

/// The newest checkpoint, where there is one, else the state before the first step.
Status Trainer::load_state() {
  std::optional<Standing> found;
  const std::int64_t lineage = standing_.lineage;
  logged_.reset();
  newer_.clear();
  is_whole_ = true;
  forget_save();  // what comes of it is found in the files
  forget_record();
  if (is_sharded()) {
    // What is read from files is read whole and dealt out then; what passes need is not there yet,
    // or is taken anew.
    model_.reset();
    stage_.reset();
    optimizer_->hold(keeps_files() ? Ranges{{0, shape_.parameters()}}
                                   : shards_among(ownership()).held(rank()));
  }
  if (keeps_files() && is_split()) {
    MUSTER_ASSIGN_OR_RETURN(found, load_whole());
  } else if (store_) {
    const OnFiles files(hooks_, config_.checkpoint_path);
    MUSTER_ASSIGN_OR_RETURN(const auto step, store_->load(parameters_, optimizer_->state()));
    if (step) {
      MUSTER_ASSIGN_OR_RETURN(found, standing_of(*step));
    }
  }
  if (found && found->step > total_steps_) {
    return Error(ErrorCode::kConflict,
                 config_.checkpoint_path + ": its newest checkpoint is of step " +
                     std::to_string(found->step) + ", but this job ends at step " +
                     std::to_string(total_steps_) + "; use more epochs or steps, or " +
                     kAnotherPlace)
        .with_exit_code(contract::exit_code::kCheckpoint);
  }
  standing_ = found.value_or(Standing());
  standing_.lineage = lineage;
  has_state_ = true;
  sums_->forget();  // what is left of them is of a later step that is lost
  if (found) return {};
  // Of a state that was given up the values are still there.
  MUSTER_RETURN_IF_ERROR(begin_parameters());
  optimizer_->reset();
  return {};
}

/// The one that all have agreed to enter, while it holds, else the newest.
Result<View> Trainer::next_view() {
  const std::int64_t agreed = std::exchange(agreed_epoch_, 0);
  is_agreed_ = false;
  if (agreed > 0) {
    if (auto view = membership_.prepared(agreed)) {
      is_agreed_ = true;
      return *std::move(view);
    }
  }
  // Who has nothing to lose may be started again, in the hope of others.
  std::optional<MonoTime> deadline;
  if (lacks_state_) deadline = long_deadline();
  return membership_.next(view_.epoch, deadline);
}

/// By rank of `next`; nothing where somebody else who comes from the present view may bring what
/// all have to look at, or where anything is due before the next step.
std::optional<std::vector<int>> Trainer::newcomers_of(const View& next) const {
  if (is_split() || is_sharded() || next.stop || !has_state_ || logged_) return std::nullopt;
  if (train_.pictures || test_.pictures) return std::nullopt;  // somebody may have to be told
  if (is_end(standing_) || is_evaluation_due(standing_) || is_comparison_due(standing_)) {
    return std::nullopt;
  }
  // Lines that others than the owner keep are told first.
  if (keeps_files() && (owner() < 0 || !(summed_tail()[kTailRecorded] > 0))) return std::nullopt;
  std::vector<int> newcomers;
  bool has_owner = false;
  for (int rank = 0; rank < next.size(); ++rank) {
    bool is_new = true;
    for (int before = 0; before < view_.size(); ++before) {
      is_new = is_new && view_.number_of(before) != next.number_of(rank);
    }
    if (is_new) newcomers.push_back(rank);
    has_owner = has_owner || (!is_new && next.slots[static_cast<std::size_t>(rank)] == 0);
  }
  if (keeps_files() && !has_owner) return std::nullopt;
  return newcomers;
}

Result<Trainer::Outcome> Trainer::live(const View& view) {
  newcomers_ = is_agreed_ ? newcomers_of(view) : std::nullopt;
  view_ = view;
  mesh_ = mesh_of(view_, config_.group_size());
  weights_.assign(static_cast<std::size_t>(copies()), kWeightMost);
  leaves_.assign(weights_.size(), 0);
  MUSTER_RETURN_IF_ERROR(open_store_of_owner());
  MUSTER_ASSIGN_OR_RETURN(communicator_, membership_.connect(view));
  MUSTER_RETURN_IF_ERROR(at(point::kConnect));
  if (mesh_.group < 0) {
    // The next view may have those who belong to this process.
    membership_.waits(view.epoch, Membership::Missing::kCopy);
    result_ = summary();
    return view.stop ? Outcome::kDone : Outcome::kNextView;
  }
  if (is_split()) join_group();
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const auto greetings, find_state());
    lacks_state_ = !has_any_state(greetings);
    if (lacks_state_) {
      result_ = summary();
      if (view.stop) return Outcome::kDone;
      membership_.waits(view.epoch, Membership::Missing::kState);
      return Outcome::kNextView;
    }
    MUSTER_RETURN_IF_ERROR(enter(greetings));
    if (!std::exchange(is_started_, true) && hooks_.on_start) hooks_.on_start(summary());
    auto outcome = train();
    if (!outcome && outcome.error().exit_code() == contract::exit_code::kNumerics) {
      outcome = doubt(outcome.error());
    }
    if (!outcome || *outcome != Outcome::kStateLost) return outcome;
    agreed_epoch_ = 0;  // first they make steps here again
  }
}

/// Where all who have trained with this process go over with it, what they say is known: it does
/// not stand still until the last of them has been given a processor to say it.
Result<std::vector<Greeting>> Trainer::hear(const Greeting& own) {
  MUSTER_ASSIGN_OR_RETURN(
      auto told,
      Greetings::begin(all_processes(), own, {config_.logical_ranks, whole_.parameters()}));
  if (own.foresees) {
    MUSTER_ASSIGN_OR_RETURN(auto foreseen, told.foresee(*newcomers_, long_deadline()));
    if (foreseen) {
      greetings_ = std::move(told);
      return *std::move(foreseen);
    }
  }
  return told.finish(long_deadline());
}

/// Before anything of the step is final: who has not come as it was foreseen has no part in it.
Status Trainer::confirm_greetings() {
  if (!greetings_) return {};
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t newest, greetings_->confirm(long_deadline()));
  greetings_.reset();
  standing_.checkpoint_step = std::max(standing_.checkpoint_step, newest);
  return {};
}

/// Others may be in the middle of a pass, and learn of this membership behind it, or read a
/// checkpoint.
Result<std::vector<Greeting>> Trainer::greet() {
  Greeting own;
  own.standing = standing_;
  own.standing.checkpoint_step = newest_checkpoint();
  own.spec = spec_digest_;
  own.is_checked = is_data_checked();
  own.data = read_digest_;
  own.has_state = has_state_;
  if (!is_owner()) give_up_record();
  // Of a record whose disk answers all have the last line, and the file the others.
  kept_lines_ = !record_.is_open() || record_waits_since_ ? record_.lines() : "";
  own.record_bytes = kept_lines_.size();
  own.record_lines = line_numbers(kept_lines_);
  own.computed = sums_->computed();
  own.logged = logged_;
  if (is_sharded()) {
    if (has_state_) own.held = optimizer_->state().held;
    own.is_whole = is_whole_;
    own.is_leaving = membership_.is_leaving();
  }
  own.trained_epoch = trained_epoch_;
  own.foresees = newcomers_ && own.record_bytes == 0 && own.computed.empty();
  auto heard = hear(own);
  newcomers_.reset();
  if (!heard) return heard.error();
  auto& greetings = *heard;
  const auto is_checked = [](const Greeting& one) { return one.is_checked; };
  if (std::ranges::none_of(greetings, is_checked)) {
    MUSTER_RETURN_IF_ERROR(check_pictures());
    return greet();
  }
  MUSTER_RETURN_IF_ERROR(check_data(greetings));
  const std::int64_t lineage = keep_newest_lineage(greetings);
  if (has_state_ && standing_.lineage < lineage) drop_state(lineage);
  standing_.lineage = lineage;
  if (!is_sharded() && !is_split()) return greetings;
  lost_step_ = dropped_step_;
  for (const Greeting& one : greetings) {
    if (one.has_state) lost_step_ = std::max(lost_step_, one.standing.step);
  }
  if (is_split()) return as_groups(greetings);
  return at_newest_whole_step(shape_.parameters(), std::move(greetings));
}

/// Where nobody has the state any more or yet, it comes from the files, and only their owner can
/// say where training stood: without it nobody has a state.
Result<std::vector<Greeting>> Trainer::find_state() {
  MUSTER_ASSIGN_OR_RETURN(auto greetings, greet());
  if (has_any_state(greetings) || !can_write()) return greetings;
  MUSTER_RETURN_IF_ERROR(say_what_is_lost());
  if (lost_step_ >= 0) {
    note_return(why_lost(), lost_step_);
  }
  if (owner() == rank() || !keeps_files()) MUSTER_RETURN_IF_ERROR(load_state());
  return greet();
}

/// All that the steps so far have left behind, for moving it from process to process.
std::vector<std::span<std::byte>> Trainer::state_bytes() {
  OptimizerState& optimizer = optimizer_->state();
  std::vector<std::span<std::byte>> parts{std::as_writable_bytes(std::span(parameters_))};
  for (auto& buffer : optimizer.buffers) {
    parts.push_back(std::as_writable_bytes(std::span(buffer.values)));
  }
  for (auto& scalar : optimizer.scalars) {
    parts.push_back(std::as_writable_bytes(std::span(&scalar.value, 1)));
  }
  return parts;
}

/// Who learns has the state before its first update, and who gives it leaves it as it is until
/// then.
Status Trainer::receive_state(const EntryPlan& plan, Entry& entry) {
  const bool had_state = plan.source[static_cast<std::size_t>(rank())] == rank();
  const bool is_logged = had_state && standing_.step < plan.standing.step;
  if (is_logged) MUSTER_RETURN_IF_ERROR(apply());
  const auto own = state_bytes();
  std::vector<std::vector<std::byte>> newer;
  auto into = own;
  if (!had_state && has_state_) {
    // Who gives the newer state may die in the middle of it; then the step is made from this one.
    for (auto& part : into) part = newer.emplace_back(part.size());
  }
  MUSTER_ASSIGN_OR_RETURN(auto transfer, transfer_state(*communicator_, plan, into));
  entry.state_bytes = transfer.received_bytes;
  if (has_learners()) {
    state_under_way_ = std::move(transfer.work);
    take_over(plan);
    if (is_logged && hooks_.on_state) {
      hooks_.on_state(standing_.step, parameters_, optimizer_->state());
    }
    return {};
  }
  MUSTER_RETURN_IF_ERROR(transfer.work->wait(deadline()));
  if (!newer.empty()) {
    newer_ = std::move(newer);
    logged_ = plan.standing;
    // Nor does a group give the older one up before all its processes have the newer.
    if (is_split()) MUSTER_RETURN_IF_ERROR(comm::barrier(*group_, 0, deadline()));
    MUSTER_RETURN_IF_ERROR(apply());
  }
  MUSTER_RETURN_IF_ERROR(at(point::kTransfer));
  take_over(plan);
  if ((!had_state || is_logged) && hooks_.on_state) {
    hooks_.on_state(standing_.step, parameters_, optimizer_->state());
  }
  return {};
}

/// Until what receive_state() began is there.
Status Trainer::complete_state() {
  if (!state_under_way_) return {};
  MUSTER_RETURN_IF_ERROR(state_under_way_->wait(deadline()));
  state_under_way_.reset();
  MUSTER_RETURN_IF_ERROR(at(point::kTransfer));
  if (!std::exchange(is_learning_, false)) return {};
  has_state_ = true;
  if (hooks_.on_state) hooks_.on_state(standing_.step, parameters_, optimizer_->state());
  return {};
}

Status Trainer::enter(const std::vector<Greeting>& greetings) {
  MUSTER_RETURN_IF_ERROR(at(point::kEnter));
  auto planned =
      plan_entry(config_.logical_ranks, greetings, rank(), Hosts(communicator_->hosts()));
  if (!planned) return of_joiner(planned.error());
  EntryPlan& plan = *planned;
  if (view_.stop) plan.standing.is_stopping = 1;
  if (may_learn(plan, greetings) && !is_state_wanted(plan)) {
    let_learn(plan, config_.logical_ranks, greetings);
  }
  for (std::size_t r = 0; r < weights_.size(); ++r) {
    weights_[r] = plan.learns[r] != 0 ? 0 : kWeightMost;
    leaves_[r] = greetings[r].is_leaving ? 1 : 0;
  }
  spared_.clear();
  is_summed_by_speed_ = false;
  // Another may have found it out before this one was heard. The last step of a copy that has lost
  // a stage may be made again by others.
  const std::int64_t before = std::max(standing_.step, dropped_step_ - 1);
  if (plan.standing.step < before && returned_.empty()) note_return(why_lost(), before);
  Entry entry;
  entry.epoch = view_.epoch;
  MUSTER_RETURN_IF_ERROR(share_record(greetings, plan));
  MUSTER_RETURN_IF_ERROR(is_sharded() ? receive_shards(greetings, plan, entry)
                                      : receive_state(plan, entry));
  entry.step = standing_.step;
  list_missing();
  for (const std::size_t k : missing_) {
    entry.recomputed += plan.is_fresh ? 0 : sums_->node(k).size();
  }
  entry.stall_seconds = std::chrono::duration<double>(clock_.mono_now() - last_work_).count();
  dropped_step_ = -1;
  entry.returned = std::exchange(returned_, {});
  entry.returned_from = returned_from_;
  trained_epoch_ = view_.epoch;
  membership_.entered(entry);
  return {};
}

/// What has ended the last membership of the same members, and brought them no further, may have
/// been a wait that was too short for what somebody computes: the next one may take longer.
void Trainer::choose_patience(std::int64_t step) {
  const bool is_again = std::exchange(is_broken_, false) && step == entered_step_ &&
                        view_.slots == entered_slots_ && view_.numbers == entered_numbers_;
  entered_step_ = step;
  entered_slots_ = view_.slots;
  entered_numbers_ = view_.numbers;
  patience_ = is_again ? std::min(2 * patience_, kPatienceMax) : 1;
  if (!is_again) return;
  log_warning(
      "the same members begin the same step again: their connections have broken, or somebody has "
      "computed for longer than the others wait, which wait longer now",
      {{"step", step + 1}, {"waitSeconds", std::chrono::duration<double>(long_wait()).count()}});
}

void Trainer::take_over(const EntryPlan& plan) {
  const bool is_behind = plan.standing.step != standing_.step;
  logged_.reset();
  newer_.clear();
  standing_ = plan.standing;
  saving_step_ = -1;
  is_learning_ = plan.learns[static_cast<std::size_t>(rank())] != 0;
  has_state_ = !is_learning_;
  choose_patience(standing_.step);
  is_compared_ = false;
  if (is_behind) sums_->forget();  // they are of a step that is done
  if (!std::exchange(has_entered_, true)) reported_step_ = standing_.step;
  set_assignment(plan.assignment);
  // After the first step with even shares: who stays in training knows how fast it is.
  look_step_ = standing_.step + 1;
  was_faster_ = true;
  is_dealt_ = plan.is_fresh && !has_learners();
}

Result<Trainer::Outcome> Trainer::train() {
  for (bool are_files_asked = false;;) {
    if (are_files_asked || is_comparison_due(standing_)) {
      MUSTER_ASSIGN_OR_RETURN(const bool is_sound, is_state_sound());
      if (!is_sound) return Outcome::kStateLost;
    }
    // From now on slot 0 has what it can save, whatever ends the step under way.
    if (are_files_asked && spared_.insert(0).second) membership_.spares(view_.epoch, {0});
    MUSTER_RETURN_IF_ERROR(settle());
    if (is_last_step() || standing_.is_stopping != 0) {
      // The model is written by the owner of the files; only a stop does not wait for it.
      if (!can_write() && standing_.is_stopping == 0) {
        membership_.waits(view_.epoch, Membership::Missing::kFiles);
        return Outcome::kNextView;
      }
      MUSTER_RETURN_IF_ERROR(finish());
      return Outcome::kDone;
    }
    MUSTER_ASSIGN_OR_RETURN(const bool is_flip_agreed, train_step());
    if (is_flip_agreed) return go_over();
    are_files_asked = summed_tail()[kTailFilesAsked] > 0;
    if (!is_dealt_) {
      MUSTER_RETURN_IF_ERROR(deal_evenly());
    } else if (is_look_due()) {
      MUSTER_RETURN_IF_ERROR(deal_by_speed());
    }
  }
}

/// All have agreed to enter another membership after the step just made. Where that one has nobody
/// who could save, the state is saved before, and as before any checkpoint all compare theirs.
Result<Trainer::Outcome> Trainer::go_over() {
  const bool are_files_leaving = summed_tail()[kTailFilesLeave] > 0;
  if (are_files_leaving) {
    MUSTER_ASSIGN_OR_RETURN(const bool is_sound, is_state_sound());
    if (!is_sound) return Outcome::kStateLost;
  }
  // Before the disk, which may take longer than who leaves has left.
  if (is_sharded()) MUSTER_RETURN_IF_ERROR(hand_over_shards());
  if (are_files_leaving) MUSTER_RETURN_IF_ERROR(save_before_leaving());
  return Outcome::kNextView;
}

/// After a step that somebody had begun before, or that somebody was a learner in.
Status Trainer::deal_evenly() {
  MUSTER_ASSIGN_OR_RETURN(const Assignment even, assign(config_.logical_ranks, copies()));
  if (has_learners()) {
    weights_.assign(weights_.size(), kWeightMost);
    if (is_sharded()) {
      // Those who have learned are to keep their shares from now on.
      shards_ = shards_to_keep(weights_);
      keep(keeping_.kept);
    }
  }
  set_assignment(even);
  is_dealt_ = true;
  return {};
}

bool Trainer::is_look_due() const {
  return config_.look_steps > 0 && !is_split() && copies() > 1 && standing_.step >= look_step_;
}

/// Another assignment, where all have found twice in a row that it would be faster: whoever is slow
/// for a moment is not worth it, and has been named as slow before (sentinel/pace.h). In a new
/// membership of processes that have trained, once is enough.
Status Trainer::deal_by_speed() {
  const Speed own = speeds_.usual();
  MUSTER_ASSIGN_OR_RETURN(const auto told,
                          gather_sums(*communicator_, {own.work_ns, own.exchange_ns, own.update_ns},
                                      step_stamp(), deadline()));
  std::vector<Speed> speeds;
  for (const auto& one : told) speeds.push_back({one[0], one[1], one[2]});
  const Division present{assignment_, weights_};
  look_step_ = standing_.step +
               steps_to_look(present, work(), speeds, config_.look_steps, exchange_->hosts());
  // Who owns a part of the sum of sharded state has that state, too.
  const Movable movable = is_sharded() ? Movable::kRanks : Movable::kRanksAndSums;
  const std::optional<Division> faster =
      faster_division(present, work(), speeds, movable, exchange_->hosts());
  if (!std::exchange(was_faster_, faster.has_value()) || !faster) return {};
  MemoryShare share = memory_share(faster->assignment, rank());
  if (!is_sharded()) share.weights = faster->weights;
  const bool fits = ranks_that_fit_all(share, 1).has_value();
  MUSTER_ASSIGN_OR_RETURN(const auto fit,
                          gather_flags(*communicator_, fits, step_stamp(), deadline()));
  if (std::ranges::find(fit, 0) != fit.end()) return {};
  const auto own_ranks = [this](const Assignment& of) {
    return count_ranks(of.nodes[static_cast<std::size_t>(rank())]);
  };
  if (hooks_.on_division) {
    hooks_.on_division({standing_.step, own_ranks(assignment_), own_ranks(faster->assignment),
                        weights_, faster->weights});
  }
  is_summed_by_speed_ = !is_sharded();
  weights_ = faster->weights;
  set_assignment(faster->assignment);
  was_faster_ = false;
  return {};
}

Result<TrainingSummary> run_training(const TrainingConfig& config, Membership& membership,
                                     const Clock& clock, const TrainingHooks& hooks) {
  MUSTER_RETURN_IF_ERROR(check_float_environment());
  Trainer trainer(config, membership, clock, hooks);
  return trainer.run();
}

Result<TrainingSummary> run_training(const TrainingConfig& config, comm::Communicator& communicator,
                                     const Clock& clock, const TrainingHooks& hooks) {
  FixedMembership membership(communicator);
  return run_training(config, membership, clock, hooks);
}

}  // namespace muster::engine
