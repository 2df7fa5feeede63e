// The trainer where shards are copied while steps are made: after a change of members those who
// have the state of a block go on making its updates, whoever is to keep it, and in every step a
// bounded part of what is lacking goes to those who are to have it. It is the state before the
// step's update, which nobody touches meanwhile; who is given it is sent the gradient of the same
// step, too, and makes the update itself. So nothing is caught up later, a copy counts from the
// step on in which it is given, under the same rule as all others, and a step that is cut short
// loses no more than its own part.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/log.h"
#include "kernels/ops.h"
#include "worker/engine/handover.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

/// What a process says with the barrier of a step: that it is to leave, and that before this step
/// all of its place had what they are to keep.
constexpr std::uint8_t kLeavesWord = 1, kCopiedWord = 2;

bool is_to_leave(std::uint8_t word) { return (word & kLeavesWord) != 0; }

}  // namespace

/// From now on `kept` is who keeps what, by rank, less what nobody needs it for any more. Who is to
/// leave has what it keeps until it goes, in case that others are lost before.
void Trainer::keep(std::vector<Ranges> kept) {
  std::vector<Ranges> needed = without_surplus(shards_, kept);
  is_copied_ = needed == shards_.held();
  for (std::size_t r = 0; r < kept.size(); ++r) {
    if (leaves_[r] == 0) kept[r] = std::move(needed[r]);
  }
  const auto own = static_cast<std::size_t>(rank());
  optimizer_->hold(kept[own], united(kept[own], shards_.held(rank())));
  const std::size_t before = std::exchange(blocks_short_, engine::blocks_short(shards_, kept));
  keeping_ = keeping_of(shards_, std::move(kept));
  is_exchange_old_ = true;
  if (before == 0 && blocks_short_ > 0) {
    log_warning("blocks of the optimiser's state have too few copies; new ones are being made",
                {{"step", standing_.step}, {"blocks", std::int64_t(blocks_short_)}});
  } else if (before > 0 && blocks_short_ == 0) {
    log_info("all blocks of the optimiser's state have their copies again",
             {{"step", standing_.step}});
  }
}

/// Sends the next part ahead of the step's own messages. A step that somebody else had begun is
/// waited for already, and takes nothing along.
Status Trainer::begin_copying() {
  copies_.clear();
  report_.blocks_short = static_cast<std::int64_t>(blocks_short_);
  if (!is_copied_ && is_dealt_) {
    // Who is asked to leave is killed if it takes too long.
    const std::size_t most = is_any_leaving() ? blocks_of(shards_.trained) * kernels::kBlockElements
                                              : portion_most(shards_.trained, config_.copy_blocks);
    copies_ = next_portion(shards_, keeping_.kept, most);
    MUSTER_CHECK_MSG(!copies_.empty(), "something is lacking, and nobody is given it");
  }
  if (!copies_.empty()) {
    std::vector<Ranges> kept = keeping_.kept;
    for (const Move& copy : copies_) {
      Ranges& theirs = kept[static_cast<std::size_t>(copy.to)];
      theirs = united(theirs, {copy.range});
    }
    MUSTER_RETURN_IF_ERROR(at(point::kCopy));
    Handover handover(*communicator_);
    for (const Move& copy : copies_) {
      handover.add_state(copy.from, copy.to, optimizer_->state(), copy.range);
    }
    report_.copied_bytes += handover.received_bytes();
    MUSTER_ASSIGN_OR_RETURN(copies_work_, handover.start(step_stamp() + 1));
    copies_work_->proceed_alone();
    keeping_ = keeping_of(shards_, std::move(kept));
    is_exchange_old_ = true;
  }
  if (is_exchange_old_) plan_exchange();
  return {};
}

/// Before the update, which changes what is being given and wants what is being taken. The sums are
/// there by now, and they went behind the copies on the same connections.
Status Trainer::complete_copying() {
  if (!copies_work_) return {};
  MUSTER_RETURN_IF_ERROR(copies_work_->wait(deadline()));
  copies_work_.reset();
  const OptimizerState& own = optimizer_->state();
  optimizer_->hold(keeping_.kept[static_cast<std::size_t>(rank())], Ranges(own.room));
  return {};
}

/// All have made the update of what they were given.
void Trainer::end_copying() {
  if (!copies_.empty()) keep(keeping_.kept);
  copies_.clear();
}

std::uint8_t Trainer::own_word() const {
  const int leaves = membership_.is_leaving() ? kLeavesWord : 0;
  return static_cast<std::uint8_t>(leaves + (is_copied_ ? kCopiedWord : 0));
}

/// What this process keeps while others are to leave, and what it is given of theirs: in the step
/// that copies it, it has both.
KeptParts Trainer::kept_parts() const {
  const Ranges kept = united(keeping_.kept[static_cast<std::size_t>(rank())], shards_.held(rank()));
  const auto part = [&](const Ranges& ranges) {
    return static_cast<double>(size_of(ranges)) / static_cast<double>(shards_.trained);
  };
  return {part(kept), part(without(kept, ownership().of(rank())))};
}

/// All have heard which processes are to leave, before any view is without them. What those keep is
/// copied to the others, as after a death, so that they may be left out: a loss in the step after
/// which they go, when nobody can hand over any more, takes nothing that they alone had. A worker's
/// processes leave together, though one may hear of it a step before another.
void Trainer::relieve(const std::vector<std::uint8_t>& words) {
  if (std::ranges::none_of(words, is_to_leave)) return;
  const auto size = static_cast<std::size_t>(config_.group_size());
  const std::vector<int> members = mesh_.members();
  const auto slot_of = [&](std::size_t process) {
    return view_.slots[static_cast<std::size_t>(members[process])];
  };
  std::set<int> leavers;
  for (std::size_t p = 0; p < words.size(); ++p) {
    if (is_to_leave(words[p])) leavers.insert(slot_of(p));
  }
  std::vector<std::uint8_t> leaves(leaves_.size());
  for (std::size_t p = 0; p < words.size(); ++p) {
    if (leavers.contains(slot_of(p))) leaves[p / size] = 1;
  }
  const bool is_news = leaves != leaves_;
  if (is_news) {
    leaves_ = std::move(leaves);
    shards_ = shards_to_keep(weights_);
    fit_passes();  // before more is taken: a limit may have room for that or for the last model
    keep(keeping_.kept);
  }
  // Of the other parts of a split model only those who have them know, and say it a step later.
  const auto has_copied = [](std::uint8_t word) { return (word & kCopiedWord) != 0; };
  const bool are_parts_copied = !is_split() || (!is_news && std::ranges::all_of(words, has_copied));
  // Who learns is to keep something only after this step.
  const bool has_others = !has_learners() && std::ranges::find(leaves_, 0) != leaves_.end();
  if (!is_copied_ || !are_parts_copied || !has_others) leavers.clear();
  if (leavers == spared_) return;
  spared_ = std::move(leavers);
  membership_.spares(view_.epoch, {spared_.begin(), spared_.end()});
}

}  // namespace muster::engine
