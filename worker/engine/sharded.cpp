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
#include "worker/engine/schedule.h"
#include "worker/engine/sharded_exchange.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

double lap(MonoTime& from, MonoTime to) {
  return std::chrono::duration<double>(to - std::exchange(from, to)).count();
}

}  // namespace

Shards Trainer::shards_among(Ownership ownership) const {
  return make_shards(view_.slots,
                     {std::move(ownership), shape_.parameters(), config_.buddies, view_.domains});
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
  MUSTER_RETURN_IF_ERROR(named(confirm(*communicator_, stamp, deadline(), point)));
  report_.communicate_seconds += lap(mark, clock_.mono_now());
  MUSTER_RETURN_IF_ERROR(at(point::kUpdate));
  apply();
  report_.update_seconds = lap(mark, clock_.mono_now());
  MUSTER_RETURN_IF_ERROR(
      named(gather_parameters(*communicator_, shards_, stamp, parameters_, deadline(), point)));
  is_whole_ = has_state_ = true;
  is_learning_ = false;
  MUSTER_RETURN_IF_ERROR(commit());
  report_.communicate_seconds += lap(mark, clock_.mono_now());
  return {};
}

/// The update that has been logged, of what this process keeps. It is not interrupted.
void Trainer::apply() {
  const std::size_t trained = shape_.parameters();
  optimizer_->set_learning_rate(learning_rate_at(config_, logged_->step - 1, total_steps_));
  optimizer_->update(context_, exchange_->gradients(), scale_,
                     std::span(parameters_).first(trained));
  update_running(shape_, config_.logical_ranks, exchange_->tail(), parameters_);
  standing_ = *logged_;
  logged_.reset();
  is_whole_ = size_of(optimizer_->state().held) == trained;
  sums_->forget();
}

/// Makes `moves`; what is received of the optimiser's state goes `into` another layout. With a
/// `plan`, what is not cut in shards goes to those who have nothing yet.
Result<std::uint64_t> Trainer::move_shards(const std::vector<Move>& moves, const EntryPlan* plan,
                                           OptimizerState& into) {
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  OptimizerState& own = optimizer_->state();
  const auto transfer = [&](int from, int to, void* mine, void* theirs, std::size_t bytes) {
    if (bytes == 0) return;
    if (from == rank()) sends.push_back({to, mine, bytes});
    if (to == rank()) receives.push_back({from, theirs, bytes});
  };
  for (const Move& move : moves) {
    if (move.from != rank() && move.to != rank()) continue;
    const std::size_t bytes = move.range.size() * sizeof(float);
    for (std::size_t b = 0; move.is_state && b < own.buffers.size(); ++b) {
      OptimizerState& end = move.from == rank() ? own : into;
      float* const values = end.buffers[b].values.data() + offset_of(end.held, move.range);
      transfer(move.from, move.to, values, values, bytes);
    }
    float* const values = parameters_.data() + move.range.begin;
    if (move.is_parameters) transfer(move.from, move.to, values, values, bytes);
  }
  const std::span<float> running = std::span(parameters_).subspan(shape_.parameters());
  for (std::size_t r = 0; plan != nullptr && r < plan->source.size(); ++r) {
    const int to = static_cast<int>(r);
    const int from = plan->source[r];
    if (from == to) continue;
    transfer(from, to, running.data(), running.data(), running.size_bytes());
    for (std::size_t i = 0; i < own.scalars.size(); ++i) {
      transfer(from, to, &own.scalars[i].value, &into.scalars[i].value, sizeof(double));
    }
  }
  // Those who enter do not all stand at the same step yet.
  const std::uint64_t stamp = plan != nullptr ? 0 : step_stamp();
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator_->start(stamp, comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline()));
  MUSTER_RETURN_IF_ERROR(at(point::kTransfer));
  std::uint64_t received = 0;
  for (const comm::ReceiveBuffer& part : receives) received += part.bytes;
  return received;
}

/// Those who leave give what they keep to those who stay, before they go: an owner and its buddies
/// may leave together. Who hears of its leaving later than this goes like one who dies.
Status Trainer::hand_over_shards() {
  MUSTER_ASSIGN_OR_RETURN(const auto stays, gather_flags(*communicator_, membership_.is_staying(),
                                                         step_stamp(), deadline()));
  const auto staying = std::count(stays.begin(), stays.end(), 1);
  if (staying == 0 || staying == std::ssize(stays)) return {};
  const Shards target = shards_among(Ownership(*buckets_, stays));
  const auto received = take_shards(target, keepers_now(), nullptr);
  return received ? Status() : received.error();
}

/// Takes what this membership gives to this process. Who learns keeps nothing of the first step,
/// and has all parameters after it.
Status Trainer::receive_shards(const std::vector<Greeting>& greetings, const EntryPlan& plan,
                               Entry& entry) {
  const Greeting& own = greetings[static_cast<std::size_t>(rank())];
  const bool was_there = has_state_ && is_whole_ && standing_.step == plan.standing.step;
  if (own.has_state && standing_.step < own.standing.step) apply();
  logged_.reset();
  has_state_ = own.has_state;  // any other cannot be completed by anybody
  if (!has_state_) optimizer_->hold({});
  std::vector<Keeper> keepers = keepers_of(greetings);
  for (std::size_t r = 0; r < keepers.size(); ++r) {
    if (plan.learns[r] != 0) keepers[r].has_parameters = true;  // it needs none before that
  }
  shards_ = shards_among(ownership());
  MUSTER_ASSIGN_OR_RETURN(entry.state_bytes, take_shards(shards_, keepers, &plan));
  take_over(plan);
  is_whole_ = !is_learning_;
  if (!was_there && !is_learning_ && hooks_.on_state) {
    hooks_.on_state(standing_.step, parameters_, optimizer_->state());
  }
  return let_go_of_shards(0);
}

/// What `shards` gives to this process, beside all that it has: until all have what they are to
/// keep, somebody may need that again. Returns the bytes that were received.
Result<std::uint64_t> Trainer::take_shards(const Shards& shards, const std::vector<Keeper>& keepers,
                                           const EntryPlan* plan) {
  OptimizerState& own = optimizer_->state();
  OptimizerState next = laid_out(own, united(own.held, shards.held(rank())));
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t received,
                          move_shards(plan_moves(shards, keepers), plan, next));
  own = std::move(next);
  return received;
}

/// All have theirs: what this process had beside its own goes.
Status Trainer::let_go_of_shards(std::uint64_t stamp) {
  if (view_.size() > 1) MUSTER_RETURN_IF_ERROR(comm::barrier(*communicator_, stamp, deadline()));
  optimizer_->hold(shards_.held(rank()));
  return {};
}

/// Those who have learned keep their shares from now on.
Status Trainer::deal_shards() {
  Shards even = shards_among(ownership());
  const auto received = take_shards(even, keepers_now(), nullptr);
  if (!received) return received.error();
  shards_ = std::move(even);
  return let_go_of_shards(step_stamp());
}

/// What all members keep between two steps.
std::vector<Keeper> Trainer::keepers_now() const {
  std::vector<Keeper> keepers;
  for (int r = 0; r < view_.size(); ++r) keepers.push_back({shards_.held(r), true});
  return keepers;
}

/// Nobody has all of a state. At a start that is nothing to speak of.
Status Trainer::say_what_is_lost() const {
  if (lost_step_ < 0) return {};
  if (!keeps_files()) {
    return Error(ErrorCode::kUnavailable,
                 "step " + std::to_string(lost_step_) +
                     ": blocks of the optimiser's state are lost with the process that owned them "
                     "and those that kept their copies, and this job keeps no checkpoints; use "
                     "spec.training.checkpoint, buddies: 2 or optimizerState: Replicated")
        .with_exit_code(contract::exit_code::kCheckpoint);
  }
  log_warning(
      "blocks of the optimiser's state are lost with the process that owned them and those that "
      "kept their copies; training goes on from the newest checkpoint",
      {{"step", lost_step_}});
  return {};
}

/// The whole state of the optimiser on the process with the files, from the owners of the blocks;
/// on all others nothing.
Result<OptimizerState> Trainer::collect_state() {
  OptimizerState& own = optimizer_->state();
  OptimizerState whole;
  if (is_owner()) whole = laid_out(own, {{0, shape_.parameters()}});
  const Ranges there = shards_.held(owner());
  std::vector<comm::SendBuffer> sends;
  std::vector<comm::ReceiveBuffer> receives;
  for (int from = 0; from < view_.size(); ++from) {
    const Ranges& owned = shards_.owned[static_cast<std::size_t>(from)];
    for (const ElementRange part : without(owned, there)) {
      for (std::size_t b = 0; b < own.buffers.size(); ++b) {
        const std::size_t bytes = part.size() * sizeof(float);
        if (from == rank()) {
          const float* values = own.buffers[b].values.data() + offset_of(own.held, part);
          sends.push_back({owner(), values, bytes});
        } else if (is_owner()) {
          receives.push_back({from, whole.buffers[b].values.data() + part.begin, bytes});
        }
      }
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          communicator_->start(step_stamp(), comm::Memory::kHost, sends, receives));
  MUSTER_RETURN_IF_ERROR(work->wait(deadline()));
  return whole;
}

}  // namespace muster::engine
