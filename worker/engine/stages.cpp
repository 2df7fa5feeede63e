// The trainer where several processes have a copy of the model together: it is cut into the stages
// of a pipeline, and their layers are divided between slices. The processes of one copy are a
// group, which is one member: it has a state where all its processes have their part of it, of the
// same step. So nobody updates before all stages of its copy have what they need for it: what one
// process of a group has come to, each of the others can come to by itself.
#include <algorithm>
#include <cmath>
#include <utility>

#include "worker/engine/agreement.h"
#include "worker/engine/on_files.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

enum Channel : int { kMembersChannel = 1, kGroupChannel, kCopiesChannel, kTeamChannel };

}  // namespace

/// From all who are connected to those that this process has to do with.
void Trainer::join_group() {
  everyone_ = std::move(communicator_);
  const auto group = static_cast<std::size_t>(mesh_.group);
  members_ = comm::make_subset(*everyone_, mesh_.members(), kMembersChannel);
  const std::vector<int>& of_group = mesh_.groups[group];
  group_ = comm::make_subset(*everyone_, of_group, kGroupChannel);
  const auto first_of_team = of_group.begin() + config_.place / config_.slices * config_.slices;
  team_ =
      comm::make_subset(*everyone_, {first_of_team, first_of_team + config_.slices}, kTeamChannel);
  communicator_ = comm::make_subset(*everyone_, mesh_.copies_of(config_.place), kCopiesChannel);
}

void Trainer::leave_group() {
  team_.reset();
  group_.reset();
  members_.reset();
  everyone_.reset();
}

/// What a group has no use for, none of its processes keeps.
Result<std::vector<Greeting>> Trainer::as_groups(const std::vector<Greeting>& greetings) {
  const Status alike = check_group(greetings, config_.group_size(), rank());
  if (!alike) return of_joiner(alike.error());
  auto groups = greetings_of_groups(greetings, config_.group_size());
  const auto own = static_cast<std::size_t>(rank());
  if (has_state_ && !groups[own].has_state) {
    dropped_step_ = standing_.step;
    drop_state(standing_.lineage);
  }
  if (is_sharded()) {
    MUSTER_ASSIGN_OR_RETURN(groups, as_sharded_groups(greetings));
  }
  // All stages compute the same nodes again.
  sums_->forget_all_but(groups[own].computed);
  return groups;
}

Result<std::vector<Greeting>> Trainer::as_sharded_groups(const std::vector<Greeting>& greetings) {
  std::vector<std::size_t> trained;
  for (int place = 0; place < plan_->places(); ++place) {
    trained.push_back(plan_->part(place).parameters());
  }
  for (std::size_t i = 0; i < greetings.size(); ++i) {
    if (are_ranges(greetings[i].held, trained[i % trained.size()])) continue;
    return Error(ErrorCode::kCorrupt, "a member's greeting names blocks that its part has not");
  }
  return greetings_of_sharded_groups(trained, config_.place, greetings);
}

/// Up to where lines of the record are kept is known to the first stage alone; all stages make the
/// hashes that stand in them.
Status Trainer::share_recorded() {
  std::array<std::int64_t, 2> recorded{recorded_step_, recorded_evaluation_};
  MUSTER_RETURN_IF_ERROR(
      comm::broadcast(*group_, 0, 0, std::as_writable_bytes(std::span(recorded)), deadline()));
  recorded_step_ = recorded[0];
  recorded_evaluation_ = recorded[1];
  return {};
}

/// For the nodes that are missing. Micro-batches are as large as the group's poorest process bears.
Status Trainer::build_stage() {
  StageWork work;
  for (const std::size_t k : missing_) {
    work.nodes.push_back(sums_->node(k));
    work.sums.push_back(k);
  }
  if (stage_ && stage_nodes_ == work.nodes) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto fit,
                          gather_sums(*group_, {static_cast<std::uint64_t>(ranks_at_once_)},
                                      step_stamp() + 1, deadline()));
  for (const auto& one : fit) {
    ranks_at_once_ = static_cast<int>(std::min<std::uint64_t>(
        static_cast<std::uint64_t>(ranks_at_once_), std::max<std::uint64_t>(1, one[0])));
  }
  work.ranks_at_once = ranks_at_once_;
  work.rows_per_rank = rows_per_rank();
  work.targets = train_.targets;
  work.activations = activations();
  stage_nodes_ = work.nodes;
  stage_.reset();  // before the next one takes its memory
  stage_.emplace(*plan_, config_.place, std::move(work), context_);
  return {};
}

/// As compute(); the sums go their way when the pipeline has run empty.
Status Trainer::compute_stage() {
  if (!missing_.empty()) {
    MUSTER_RETURN_IF_ERROR(build_stage());
    MUSTER_RETURN_IF_ERROR(at(point::kForward));
    PipelineStage::Step step{config_.seed,
                             standing_.step,
                             standing_.step + 1 == total_steps_,
                             1.0f / batch_targets(),
                             train_,
                             *loader_,
                             {},
                             hooks_.on_alive,
                             when_at(point::kLayer)};
    if (hooks_.on_batch) {
      step.on_batch = [&](RankRange ranks, std::span<const std::uint64_t> samples) {
        hooks_.on_batch(standing_.step + 1, ranks, samples);
      };
    }
    MUSTER_RETURN_IF_ERROR(
        stage_->compute(step, parameters_, *sums_, *group_, *team_, clock_, long_wait()));
    report_.data_seconds += stage_->spent().reading;
    report_.communicate_seconds += stage_->spent().waiting;
    report_.turn_seconds = stage_->spent().in_turns;
    report_.part = stage_->counts();
    report_.part.parameters = static_cast<std::int64_t>(shape_.parameters());
    MUSTER_RETURN_IF_ERROR(at(point::kBackward));
    // Of one copy's processes one counts.
    if (is_first_in_group()) {
      computations_ += static_cast<std::uint64_t>(count_ranks(stage_nodes_));
    }
  }
  return begin_sum();
}

/// What this process has to compute of a step, in logical ranks with the whole model.
double Trainer::part_ranks() const {
  double all = 0;
  for (const Stage& one : plan_->stages) all += static_cast<double>(one.cost);
  const Stage& own = plan_->stages[static_cast<std::size_t>(config_.place / config_.slices)];
  const double share = all > 0 ? static_cast<double>(own.cost) / all / config_.slices : 0;
  return share * count_ranks(assignment_.nodes[static_cast<std::size_t>(rank())]);
}

/// Who makes the squares of which blocks. With shards nobody has the gradients of all of its part,
/// and all copies make them together.
void Trainer::plan_squares() {
  auto parts = block_parts(*plan_, whole_, whole_.parameters());
  if (is_sharded()) {
    std::vector<Ownership> by_place;
    for (int place = 0; place < plan_->places(); ++place) {
      by_place.emplace_back(buckets_of(plan_->part(place)), weights_);
    }
    parts = owned_parts(parts, by_place);
  }
  squared_blocks_ = plan_blocks(std::move(parts), (is_sharded() ? members_ : group_)->rank());
}

Result<std::vector<float>> Trainer::squares_of_model(std::uint64_t stamp) {
  return is_sharded() ? squares_of_parts(squared_blocks_, *members_, context_,
                                         exchange_->owned_gradients(), meeting(stamp))
                      : squares_of_parts(squared_blocks_, *group_, context_, exchange_->gradients(),
                                         meeting(stamp));
}

/// Of what all stages have summed, what is of the whole model: the norm of the gradient, and then
/// what is behind it. Who has that knows that all of its group can make the update.
Status Trainer::share_sums() {
  const std::uint64_t stamp = step_stamp() + 1;
  bool is_finite = true;
  if (config_.gradient_norm_max > 0) {
    MUSTER_ASSIGN_OR_RETURN(block_squares_, squares_of_model(stamp));
    const float norm = norm_of(block_squares_);
    is_finite = std::isfinite(norm);
    scale_ = is_finite ? clip_scale(norm, config_.gradient_norm_max) : 1;
  } else {
    scale_ = 1;
  }
  // With shards all tell each other.
  const bool is_logging = is_finite && !is_sharded();
  const auto log = [this] {
    logged_ = standing_;
    ++logged_->step;
  };
  // A group comes to no step by itself before its first process has kept the lines of the one
  // before: those of others may be lost with the owner, and nobody could make them any more.
  if (is_logging && !(is_first_in_group() && are_lines_to_keep())) log();
  MUSTER_RETURN_IF_ERROR(at(point::kLog));
  std::vector<std::array<float, kTailSize>> tails(static_cast<std::size_t>(config_.group_size()));
  tails[static_cast<std::size_t>(config_.place)] = tail_;
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i <= tails.size(); ++i) offsets.push_back(i * sizeof tail_);
  MUSTER_RETURN_IF_ERROR(comm::all_gather(*group_, stamp, std::as_writable_bytes(std::span(tails)),
                                          offsets, long_deadline()));
  for (const std::size_t sum :
       {kTailLoss, kTailCorrect, kTailStop, kTailRecorded, kTailFilesLeave}) {
    tail_[sum] = 0;
    for (const auto& one : tails) tail_[sum] += one[sum];
  }
  // All are prepared for the same view where the copies of each stage are, and for that one.
  const bool is_same = std::ranges::all_of(tails, [&](const auto& one) {
    return one[kTailAhead] == tails[0][kTailAhead] &&
           one[kTailAheadSquared] == tails[0][kTailAheadSquared];
  });
  if (!is_same) tail_[kTailAhead] = tail_[kTailAheadSquared] = 0;
  const bool are_lines_kept = are_lines_to_keep();  // all hear it from the first by now
  MUSTER_RETURN_IF_ERROR(keep_record());
  if (is_logging && are_lines_kept) {
    log();
    MUSTER_RETURN_IF_ERROR(comm::barrier(*group_, stamp, long_deadline()));
  }
  return is_sharded() ? Status() : at(point::kLogged);
}

/// The newest checkpoint, read by the process with the files and dealt out to its group; where
/// training stands with it, where there is one.
Result<std::optional<Standing>> Trainer::load_whole() {
  std::optional<SavedState> whole;
  Standing found;
  if (store_) {
    const OnFiles files(hooks_, config_.checkpoint_path);
    MUSTER_ASSIGN_OR_RETURN(whole, store_->find(optimizer_->state()));
    if (whole) {
      MUSTER_ASSIGN_OR_RETURN(found, standing_of(whole->step));
    }
  }
  MUSTER_RETURN_IF_ERROR(comm::broadcast(
      *group_, 0, 0, std::as_writable_bytes(std::span(&found, 1)), long_deadline()));
  if (found.restored_step < 0) return std::optional<Standing>();
  MUSTER_RETURN_IF_ERROR(deal_stages(stage_group(), parameters_, optimizer_->state(),
                                     whole ? &*whole : nullptr, {0, long_deadline()}));
  return std::optional(found);
}

StateParts Trainer::parts_of_group(bool has_optimizer) {
  StateParts parts{*group_, 0, {parameters_.data()}, {}};
  if (has_optimizer) {
    for (const auto& buffer : optimizer_->state().buffers) {
      parts.own.push_back(buffer.values.data());
    }
  }
  for (int place = 0; place < plan_->places(); ++place) {
    const bool is_needed = is_first_in_group() || place == config_.place;
    parts.by_process.push_back(is_needed
                                   ? state_parts(plan_->part(place), whole_, parts.own.size() - 1)
                                   : std::vector<StatePart>());
  }
  return parts;
}

/// What `work` on the process with the files does with the state of the whole model, which all of
/// its group have together, or with shards those of all groups.
Status Trainer::with_whole(bool has_optimizer, const std::function<Status(StateSource&)>& work) {
  const bool is_of_all = has_optimizer && is_sharded();
  MUSTER_ASSIGN_OR_RETURN(
      const StateParts parts,
      is_of_all ? parts_of_shards() : Result<StateParts>(parts_of_group(has_optimizer)));
  PartsSource source(whole_, parts, step_stamp(), [this] { return long_deadline(); });
  const Status own = is_owner() ? work(source) : Status();
  MUSTER_RETURN_IF_ERROR(source.finish());
  return own;
}

/// Whether it is so on any process of the group, `own` being what it is here.
Result<bool> Trainer::any_in_group(bool own) {
  MUSTER_ASSIGN_OR_RETURN(const auto flags, gather_flags(*group_, own, step_stamp(), deadline()));
  return std::find(flags.begin(), flags.end(), 1) != flags.end();
}

/// What the process with the files `says`, on all others.
Status Trainer::hear_owner(std::span<std::byte> says) {
  // To the first stages, and from each of them to its group.
  Status heard;
  if (is_first_in_group()) {
    heard = comm::broadcast(*communicator_, step_stamp(), owner(), says, long_deadline());
  }
  if (heard && is_split()) {
    heard = comm::broadcast(*group_, step_stamp(), 0, says, long_deadline());
  }
  return heard ? Status() : peer_error(heard.error());
}

/// The process with the files tells all others how its `own` work went.
Status Trainer::follow_owner(const Status& own, const char* what, MonoTime deadline) {
  if (!is_split()) return follow(*communicator_, owner(), own, what, step_stamp(), deadline);
  // To the first stages, and from each of them to its group.
  Status known = own;
  if (is_first_in_group()) {
    known = follow(*communicator_, owner(), own, what, step_stamp(), deadline);
  }
  return follow(*group_, 0, known, what, step_stamp(), deadline);
}

}  // namespace muster::engine
