// The trainer where the optimiser's state is sharded. A step is summed, then logged: each process
// has the gradients of all it keeps. When all have logged, and not before, each updates what it
// keeps in place and gives the parameters to the others. So an update that anybody has made, all
// survivors can make, and one that nobody has made can be made anew from the node sums: there is no
// undoing, and no second copy of anything.
#include <algorithm>
#include <utility>

#include "common/contract.h"
#include "common/log.h"
#include "worker/engine/agreement.h"
#include "worker/engine/handover.h"
#include "worker/engine/schedule.h"
#include "worker/engine/sharded_exchange.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

/// Whether nobody has made a step from this state yet.
bool is_beginning(const EntryPlan& plan) {
  return plan.standing.step <= std::max<std::int64_t>(plan.standing.restored_step, 0);
}

double lap(MonoTime& from, MonoTime to) {
  return std::chrono::duration<double>(to - std::exchange(from, to)).count();
}

}  // namespace

Shards Trainer::shards_among(Ownership ownership) const {
  ShardPlan plan{std::move(ownership), shape_.parameters(), config_.buddies};
  std::vector<int> slots;
  for (const int rank : mesh_.copies_of(config_.place)) {
    const auto of_copy = static_cast<std::size_t>(rank);
    slots.push_back(view_.slots[of_copy]);
    if (!view_.domains.empty()) plan.domains.push_back(view_.domains[of_copy]);
  }
  return make_shards(slots, plan);
}

/// Among those who have a weight, but for those who are to leave, unless nobody else is there.
Shards Trainer::shards_to_keep(const std::vector<std::uint8_t>& weights) const {
  std::vector<std::uint8_t> staying = weights;
  for (std::size_t r = 0; r < staying.size(); ++r) {
    if (leaves_[r] != 0) staying[r] = 0;
  }
  const bool is_anybody = std::ranges::any_of(staying, [](std::uint8_t one) { return one > 0; });
  return shards_among(Ownership(*buckets_, is_anybody ? staying : weights));
}

Status Trainer::make_sharded_step(MonoTime& mark) {
  const std::uint64_t stamp = step_stamp() + 1;
  const auto point = [this](std::string_view name) { return at(name); };
  const auto named = [&](const Status& status) -> Status {
    if (status) return status;
    return status.error().with("step " + std::to_string(stamp));
  };
  logged_ = standing_;
  ++logged_->step;
  logged_->loss = summed_tail()[kTailLoss] / batch_targets();
  if (summed_tail()[kTailStop] > 0) logged_->is_stopping = 1;
  std::vector<std::uint8_t> words(static_cast<std::size_t>(all_processes().size()));
  words[static_cast<std::size_t>(all_processes().rank())] = own_word();
  MUSTER_RETURN_IF_ERROR(named(confirm(all_processes(), words, stamp, deadline(), point)));
  report_.communicate_seconds += lap(mark, clock_.mono_now());
  MUSTER_RETURN_IF_ERROR(at(point::kUpdate));
  MUSTER_RETURN_IF_ERROR(apply());
  report_.update_seconds = lap(mark, clock_.mono_now());
  MUSTER_RETURN_IF_ERROR(
      named(gather_parameters(*communicator_, gifts_, stamp, parameters_, deadline(), point)));
  is_whole_ = has_state_ = true;
  is_learning_ = false;
  end_copying();
  relieve(words);
  MUSTER_RETURN_IF_ERROR(commit());
  report_.communicate_seconds += lap(mark, clock_.mono_now());
  return {};
}

/// What has been logged: the update of what this process keeps, or a state that others gave. It is
/// not interrupted, but by the end of the process.
Status Trainer::apply() {
  if (!newer_.empty()) {
    const auto own = state_bytes();
    for (std::size_t i = 0; i < newer_.size(); ++i) std::ranges::copy(newer_[i], own[i].begin());
    newer_.clear();
    standing_ = *std::exchange(logged_, std::nullopt);
    sums_->forget();
    return {};
  }
  const std::size_t trained = shape_.parameters();
  optimizer_->set_learning_rate(learning_rate_at(config_, logged_->step - 1, total_steps_));
  MUSTER_RETURN_IF_ERROR(optimizer_->update(context_, exchange_->gradients(), scale_,
                                            std::span(parameters_).first(trained),
                                            when_at(point::kHalfUpdated)));
  update_running(shape_, config_.logical_ranks, exchange_->tail(), parameters_);
  standing_ = *logged_;
  logged_.reset();
  is_whole_ = size_of(optimizer_->state().held) == trained;
  sums_->forget();
  return {};
}

/// Makes `moves`; there is room for what is received. With a `plan`, what is not cut in shards goes
/// to those who have nothing yet.
Result<std::uint64_t> Trainer::move_shards(const std::vector<Move>& moves, const EntryPlan* plan) {
  Handover handover(*communicator_);
  OptimizerState& own = optimizer_->state();
  for (const Move& move : moves) {
    if (move.is_state) handover.add_state(move.from, move.to, own, move.range);
    if (!move.is_parameters) continue;
    handover.add(move.from, move.to, parameters_.data() + move.range.begin,
                 move.range.size() * sizeof(float));
  }
  const std::span<float> running = std::span(parameters_).subspan(shape_.parameters());
  for (std::size_t r = 0; plan != nullptr && r < plan->source.size(); ++r) {
    const int to = static_cast<int>(r);
    const int from = plan->source[r];
    if (from == to) continue;
    handover.add(from, to, running.data(), running.size_bytes());
    for (auto& scalar : own.scalars) handover.add(from, to, &scalar.value, sizeof(double));
  }
  // Those who enter do not all stand at the same step yet.
  const std::uint64_t stamp = plan != nullptr ? 0 : step_stamp();
  MUSTER_ASSIGN_OR_RETURN(const auto work, handover.start(stamp));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline()));
  MUSTER_RETURN_IF_ERROR(at(point::kTransfer));
  return handover.received_bytes();
}

/// Those who leave give what they keep to those who stay, before they go: an owner and its buddies
/// may leave together. As a rule these have it by then (relieve()), and nothing is moved. So do
/// those whom the members to come have and a newer view has not: where that one is entered in place
/// of this, as when a joiner has passed this one over, no step is made together before they go. Who
/// hears of its leaving later than this goes like one who dies.
Status Trainer::hand_over_shards() {
  bool is_leaving = !membership_.will_stay();
  if (is_split()) {
    MUSTER_ASSIGN_OR_RETURN(is_leaving, any_in_group(is_leaving));
  }
  MUSTER_ASSIGN_OR_RETURN(const auto stays,
                          gather_flags(*communicator_, !is_leaving, step_stamp(), deadline()));
  const auto staying = std::count(stays.begin(), stays.end(), 1);
  if (staying == 0 || staying == std::ssize(stays)) return {};
  std::vector<Keeper> keepers;
  for (const Ranges& kept : keeping_.kept) keepers.push_back({kept, true});
  const auto received = take_shards(shards_to_keep(stays), keepers, nullptr);
  return received ? Status() : received.error();
}

/// Takes the parameters where they are not whole, and where training begins the shards, too: there
/// are no steps yet that they could be copied beside. All others go on with what they have. Who
/// learns keeps nothing of the first step, and has all parameters after it.
Status Trainer::receive_shards(const std::vector<Greeting>& greetings, const EntryPlan& plan,
                               Entry& entry) {
  const Greeting& own = greetings[static_cast<std::size_t>(rank())];
  const bool was_there = has_state_ && is_whole_ && standing_.step == plan.standing.step;
  if (own.has_state && standing_.step < own.standing.step) MUSTER_RETURN_IF_ERROR(apply());
  logged_.reset();
  has_state_ = own.has_state;  // any other cannot be completed by anybody
  if (!has_state_) optimizer_->hold({});
  std::vector<Keeper> keepers = keepers_of(greetings);
  std::vector<Ranges> kept;
  for (std::size_t r = 0; r < keepers.size(); ++r) {
    kept.push_back(keepers[r].held);
    if (plan.learns[r] != 0) keepers[r].has_parameters = true;  // it needs none before that
  }
  shards_ = shards_to_keep(weights_);
  if (is_beginning(plan)) {
    MUSTER_ASSIGN_OR_RETURN(entry.state_bytes, take_shards(shards_, keepers, &plan));
    // Whoever gives keeps what it gives until all have theirs.
    if (copies() > 1) MUSTER_RETURN_IF_ERROR(comm::barrier(all_processes(), 0, deadline()));
    kept = shards_.held();
  } else {
    const auto moves = plan_moves(shards_.trained, kept, keepers);
    MUSTER_ASSIGN_OR_RETURN(entry.state_bytes, move_shards(moves, &plan));
  }
  keep(std::move(kept));
  take_over(plan);
  is_whole_ = !is_learning_;
  if (!was_there && !is_learning_ && hooks_.on_state) {
    hooks_.on_state(standing_.step, parameters_, optimizer_->state());
  }
  return {};
}

/// What `shards` gives to this process, beside all that it has: until all have what they are to
/// keep, somebody may need that again. Returns the bytes that were received.
Result<std::uint64_t> Trainer::take_shards(const Shards& shards, const std::vector<Keeper>& keepers,
                                           const EntryPlan* plan) {
  const Ranges before = optimizer_->state().held;
  const Ranges all = united(before, shards.held(rank()));
  optimizer_->hold(before, all);
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t received,
                          move_shards(plan_moves(shards, keepers), plan));
  optimizer_->hold(all, all);  // with what was received
  return received;
}

/// Nobody has all of a state. At a start that is nothing to speak of.
Status Trainer::say_what_is_lost() const {
  if (lost_step_ < 0) return {};
  if (!keeps_files() && is_split() && !is_sharded()) {
    return Error(ErrorCode::kUnavailable,
                 "step " + std::to_string(lost_step_) + ": " + why_lost() +
                     ", and this job keeps no checkpoints; use spec.training.checkpoint or more "
                     "workers, so that there are more copies")
        .with_exit_code(contract::exit_code::kNoCheckpoint);
  }
  if (!keeps_files()) {
    return Error(ErrorCode::kUnavailable,
                 "step " + std::to_string(lost_step_) +
                     ": blocks of the optimiser's state are lost with the process that owned them "
                     "and those that kept their copies, and this job keeps no checkpoints; use "
                     "spec.training.checkpoint, buddies: 2 or optimizerState: Replicated")
        .with_exit_code(contract::exit_code::kNoCheckpoint);
  }
  log_warning("a part of the state is lost; training goes on from the newest checkpoint",
              {{"step", lost_step_}, {"reason", why_lost()}});
  return {};
}

/// For people, when training has gone back to a checkpoint.
std::string Trainer::why_lost() const {
  if (is_split() && !is_sharded()) return "a stage of every copy of the model was lost";
  std::string why = "blocks of the optimiser's state were lost with all that kept them";
  if (blocks_short_ > 0) why += ", before new copies of all blocks were made";
  return why;
}

/// Of the state of the optimiser what each gives the parameters of; these are all there in the
/// copy of the process with the files.
Result<StateParts> Trainer::parts_of_shards() {
  const OptimizerState& state = optimizer_->state();
  StateParts parts{all_processes(), owner() * config_.group_size(), {parameters_.data()}, {}};
  for (const auto& buffer : state.buffers) parts.own.push_back(buffer.values.data());
  MUSTER_ASSIGN_OR_RETURN(
      const auto given,
      gather_ranges(parts.processes, keeping_.given[static_cast<std::size_t>(rank())],
                    whole_.parameters(), step_stamp(), deadline()));
  for (int process = 0; process < parts.processes.size(); ++process) {
    auto& of_process = parts.by_process.emplace_back();
    const bool is_own = process == parts.processes.rank();
    if (!is_own && !is_owner()) continue;
    const int copy = process / config_.group_size(), place = process % config_.group_size();
    const ModelShape& shape = plan_ ? plan_->part(place) : whole_;
    for (const StatePart& part : state_parts(shape, whole_, state.buffers.size())) {
      if (part.buffer == 0 && copy == owner()) of_process.push_back(part);
      if (part.buffer == 0) continue;
      const ElementRange all{part.own, part.own + part.size};
      for (const ElementRange range : within(given[static_cast<std::size_t>(process)], all)) {
        const std::size_t own = is_own ? offset_of(state.room, range) : 0;
        of_process.push_back(
            {part.buffer, part.whole + (range.begin - all.begin), own, range.size()});
      }
    }
  }
  return parts;
}

}  // namespace muster::engine
