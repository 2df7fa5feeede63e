#include "operator/core/elastic_policy.h"

#include <algorithm>
#include <climits>

#include "common/contract.h"
#include "operator/core/copies.h"
#include "operator/core/drain_policy.h"
#include "operator/core/elastic.h"
#include "operator/core/end_policy.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/preparing.h"
#include "operator/core/progress.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

constexpr std::size_t kMostEvents = 8;

/// What is decided, while it is put together.
struct Draft {
  api::TrainingJobStatus status;
  int attempt = 0;
  std::map<std::string, int> avoid;                       ///< as Plan's
  std::vector<std::pair<Failure, std::string>> replaced;  ///< with its new node
  std::vector<int> added, left, refused, given_back;
  bool spare_left = false;  ///< those who left were there while nodes were emptied
  std::vector<int> given_up;
  std::string why_given_up;  ///< of the first of them
  bool is_change() const {
    return !replaced.empty() || !added.empty() || !left.empty() || !refused.empty() ||
           !given_back.empty() || !given_up.empty();
  }
};

void add_shrink(api::TrainingJobStatus& status) {
  status.taken_back.shrinks = std::min(status.taken_back.shrinks, INT_MAX - 1) + 1;
}

void drop(api::TrainingJobStatus& status, int slot) {
  std::erase_if(status.placement, [&](const auto& one) { return one.slot == slot; });
}

/// Whether those in the slots below that number could train on alone: one copy of the model is
/// whole among them, which may take several.
bool can_go_on(const JobSnapshot& snapshot, const GangView& gang, int slots) {
  std::vector<int> training;
  for (const Member& member : gang.members) {
    const bool trains = member.state == MemberState::kRunning && is_member(snapshot, member);
    if (trains && member.placement.slot < slots) training.push_back(member.placement.slot);
  }
  return waiting_for_their_copy(snapshot.job, training).size() < training.size();
}

/// The first slot that is taken back for another job.
int first_taken(const JobSnapshot& snapshot) {
  const auto& taken = snapshot.take_back;
  return taken && taken->workers > 0 ? taken->slots_below : kMaxWorkers;
}

/// So many slots, the first ones, are of use.
int slots_of_use(const JobSnapshot& snapshot, const GangView& gang) {
  return wished_workers(snapshot.job) + spare_slots(snapshot, gang);
}

/// The highest slots leave, unless those that stay could not train on without them.
void shrink(Draft& draft, const JobSnapshot& snapshot, const GangView& gang) {
  const int most = slots_of_use(snapshot, gang);
  const int taken = std::min(most, first_taken(snapshot));
  const int stay = can_go_on(snapshot, gang, taken) ? taken : most;
  if (!can_go_on(snapshot, gang, stay)) return;
  for (const auto& member : gang.members) {
    const int slot = member.placement.slot;
    if (slot < stay) continue;
    drop(draft.status, slot);
    (slot < most ? draft.given_back : draft.left).push_back(slot);
  }
  draft.spare_left = !draft.left.empty() && has_spare(snapshot, gang);
  if (!draft.given_back.empty()) add_shrink(draft.status);
}

/// Places that the cluster's scheduler refuses are given back, one by one, and so are those whose
/// nodes start nothing.
void give_back_refused(Draft& draft, const JobSnapshot& snapshot, const GangView& gang) {
  for (const auto& member : gang.members) {
    const int slot = member.placement.slot;
    const Fate fate = fate_of(snapshot, member);
    const bool refused = fate == Fate::kRefused || fate == Fate::kGivenUp;
    if (!refused || slot >= slots_of_use(snapshot, gang)) continue;
    drop(draft.status, slot);
    const api::SlotPlacement& place = member.placement;
    if (!place.node.empty()) leave_out(draft.avoid, place.node, place.attempt);
    (fate == Fate::kRefused ? draft.refused : draft.given_up).push_back(slot);
    if (fate != Fate::kGivenUp || !draft.why_given_up.empty()) continue;
    draft.why_given_up = not_started_text(snapshot, member);
  }
}

/// How often the slot has failed in a row, once this failure is counted.
int failures_in_a_row(const JobSnapshot& snapshot, const Member& member, const Failure& failure) {
  if (failure.planned || failure.node_lost || failure.pod_lost) return 0;
  return (is_forgiven(snapshot, member) ? 0 : member.placement.replacements) + 1;
}

/// Whether it may have ended for data that differ from the others', as such of which nobody knew it
/// when it was let in: its successor would only disturb those who train once more.
bool is_of_data(const api::TrainingJob& job, const api::FailureStatus& facts) {
  const bool is_engine = job.spec.training.has_value() && facts.container.empty();
  return is_engine && (facts.exit_code == contract::exit_code::kData ||
                       facts.exit_code == contract::exit_code::kDisk);
}

/// Whether who gets the place of `member` has to know all its data before it is let in; null: one
/// that the slot does not have, as where it was given back before the successor was let in.
bool must_check_data(const JobSnapshot& snapshot, int slot, const Member* member) {
  if (member == nullptr) {
    const auto& last = snapshot.job.status.failure;
    return last && last->slot == slot && is_of_data(snapshot.job, *last);
  }
  if (member->placement.checks_data && !is_member(snapshot, *member)) return true;
  const Failure failure = read_failure(*member, snapshot);
  return !failure.node_lost && !failure.pod_lost && is_of_data(snapshot.job, failure.facts);
}

/// Gives the slots the places that schedule has found for them, as far as they go.
void place(Draft& draft, const JobSnapshot& snapshot, const GangView& gang) {
  const std::vector<int> slots = slots_to_place(snapshot, gang);
  const GangVerdict* verdict = verdict_for(snapshot, slots);
  if (verdict == nullptr || !verdict->placement) return;
  const auto& nodes = verdict->placement->node_of_slot;
  const std::vector<int> grown =
      until_growth(snapshot, gang) ? std::vector<int>() : slots_to_grow_into(snapshot, gang);
  for (std::size_t i = 0; i < std::min(slots.size(), nodes.size()); ++i) {
    const bool is_new = gang.find(slots[i]) == nullptr;
    if (is_new && !std::binary_search(grown.begin(), grown.end(), slots[i])) continue;
    if (slots[i] >= first_taken(snapshot)) continue;
    api::SlotPlacement placed{slots[i], draft.attempt, nodes[i], domain_of(*verdict->placement, i)};
    const Member* member = gang.find(slots[i]);
    placed.checks_data = must_check_data(snapshot, slots[i], member);
    if (member != nullptr) {
      Failure failure = read_failure(*member, snapshot);
      placed.replacements = failures_in_a_row(snapshot, *member, failure);
      draft.replaced.emplace_back(std::move(failure), nodes[i]);
      drop(draft.status, slots[i]);
    } else {
      draft.added.push_back(slots[i]);
    }
    draft.status.placement.push_back(std::move(placed));
  }
  std::sort(draft.status.placement.begin(), draft.status.placement.end(),
            [](const auto& a, const auto& b) { return a.slot < b.slot; });
}

/// What only follows from the loss of a peer is not acted on before the peer's own end is known.
bool settles(const JobSnapshot& snapshot, const GangView& gang) {
  return is_settling(snapshot, gang) &&
         lasted(snapshot, facts::settling(snapshot.job.status)) < words::kSettle;
}

std::string resize_sentence(const Draft& draft, const JobSnapshot& snapshot) {
  constexpr const char* kTheOthers = "; the others train on";
  if (are_spare(snapshot, draft.added)) {
    return why_spare_comes(snapshot, view_gang(snapshot)) + ": " + slots_text(draft.added) +
           " to join" + kTheOthers;
  }
  if (draft.spare_left) {
    return why_spare_leaves(snapshot, view_gang(snapshot)) + ": " + slots_text(draft.left) +
           " to leave" + kTheOthers;
  }
  if (!draft.added.empty() && draft.added.front() >= wished_workers(snapshot.job)) {
    return "there is room that nobody waits for: " + slots_text(draft.added) + " to join" +
           kTheOthers;
  }
  std::string text =
      "spec.worker.count is " + std::to_string(counted_workers(snapshot.job)) + " now";
  if (!draft.added.empty()) text += "; " + slots_text(draft.added) + " to join";
  if (!draft.left.empty()) text += "; " + slots_text(draft.left) + " to leave";
  return text + (draft.added.empty() && draft.left.empty() ? "; no room yet for more" : "") +
         kTheOthers;
}

void tell(Plan& plan, const Draft& draft, const JobSnapshot& snapshot, bool resized) {
  std::size_t told = 0;
  for (const auto& [failure, node] : draft.replaced) {
    if (++told > kMostEvents) break;
    const std::string where = node.empty() ? "" : " on node " + node;
    add_event(plan, snapshot, failure.planned ? "Normal" : "Warning", contract::reason::kWorkerLost,
              sentence_of(failure) + "; attempt " + std::to_string(draft.attempt) +
                  " takes its place" + where + " while the others train on");
  }
  if (!draft.refused.empty()) {
    add_event(plan, snapshot, "Warning", contract::reason::kGangWaiting,
              slots_text(draft.refused) + " not let onto its node in " +
                  std::to_string(words::kUnboundMost.count()) + " s; another place is looked for");
  }
  if (!draft.given_up.empty()) {
    add_event(plan, snapshot, "Warning", contract::reason::kGangWaiting,
              draft.why_given_up + "; " + slots_text(draft.given_up) +
                  " to let go of that room and to be tried again, on another node where there is "
                  "one; the others train on");
  }
  if (!draft.given_back.empty()) {
    add_event(plan, snapshot, "Normal", contract::reason::kShrunk,
              slots_text(draft.given_back) + " to leave: " + snapshot.take_back->why +
                  "; the others train on");
  }
  if (resized || !draft.added.empty() || draft.spare_left) {
    add_event(plan, snapshot, "Normal", contract::reason::kResized,
              resize_sentence(draft, snapshot));
  }
}

/// How many workers there are to be: `target`, with what it grows to beyond, without what is taken
/// back of that.
void set_target(Draft& draft, const JobSnapshot& snapshot, int target) {
  if (!draft.given_back.empty()) {
    target = std::max(std::min(target, first_taken(snapshot)),
                      std::min(target, counted_workers(snapshot.job)));
  }
  // Who is there for a while is no part of the size.
  const bool grows = !draft.added.empty() && !are_spare(snapshot, draft.added);
  if (grows) target = std::max(target, draft.added.back() + 1);
  draft.status.target_workers = target;
}

std::string reason_of(const Draft& draft) {
  std::string text;
  if (!draft.replaced.empty()) {
    text = "replacing " + std::to_string(draft.replaced.size()) + " of the workers";
  }
  if (!draft.added.empty()) text += " adding " + slots_text(draft.added);
  if (!draft.left.empty()) text += " sending away " + slots_text(draft.left);
  if (!draft.given_back.empty()) text += " giving back " + slots_text(draft.given_back);
  if (!draft.refused.empty()) text += " giving back the place of " + slots_text(draft.refused);
  if (!draft.given_up.empty()) text += " giving up the place of " + slots_text(draft.given_up);
  return text.empty() ? "another size is wished for" : text;
}

/// The pods whose absence was taken for a loss; the cache may only be late.
void confirm_lost(Plan& plan, const Draft& draft, const JobSnapshot& snapshot,
                  const GangView& gang) {
  auto* patch = plan.actions.empty() ? nullptr : std::get_if<PatchStatus>(&plan.actions.front());
  if (patch == nullptr) return;
  for (const auto& [failure, node] : draft.replaced) {
    const Member* member = gang.find(failure.facts.slot);
    if (member == nullptr || member->state != MemberState::kMissing) continue;
    patch->confirm_absent.push_back(
        {snapshot.job.meta.namespace_name,
         api::pod_name(snapshot.job, member->placement.slot, member->placement.attempt)});
  }
}

Plan write(Draft draft, const JobSnapshot& snapshot, const GangView& gang, bool resized) {
  api::TrainingJobStatus& status = draft.status;
  const bool gives_attempts = !draft.replaced.empty() || !draft.added.empty();
  status.membership_epoch =
      gives_attempts ? next_epoch(snapshot, gang) : newest_epoch(snapshot, gang);
  const int replaced = static_cast<int>(draft.replaced.size());
  status.replacements = std::min(status.replacements, INT_MAX - replaced) + replaced;
  for (const auto& [failure, node] : draft.replaced) {
    if (!failure.planned) status.failure = failure.facts;
  }
  // Said as it will be seen right after this write, so that it need not be written again.
  JobSnapshot after = snapshot;
  after.job.status = status;
  if (gives_attempts) after.gang.reset();
  const GangView gang_after = view_gang(after);
  const auto* running = status.condition(std::string(words::kRunning));
  observe_members(status, after, gang_after, restored_text(after, gang_after, running));
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  tell(plan, draft, snapshot, resized);
  confirm_lost(plan, draft, snapshot, gang);
  plan.avoid = std::move(draft.avoid);
  plan.reason = reason_of(draft);
  return plan;
}

std::string sentence_of_change(const MembershipChange& change) {
  const std::string who = "worker " + std::to_string(change.slot);
  if (change.kind == contract::change::kSlow) {
    return who + " slows the gang " + first_line(change.reason, 256) + "; seen at step " +
           std::to_string(change.step);
  }
  if (change.kind == contract::change::kStranger) {
    return "refused " + first_line(change.reason, 256) + "; membership epoch " +
           std::to_string(change.epoch);
  }
  std::string text;
  if (change.kind == contract::change::kJoined) text = who + " joined";
  if (change.kind == contract::change::kLost) text = who + " was lost";
  if (change.kind == contract::change::kLeft) text = who + " left";
  if (change.kind == contract::change::kRespawned)
    text = "the trainer of " + who + " was respawned";
  if (change.kind == contract::change::kReturned) text = "training went back to a checkpoint";
  const std::string why = first_line(change.reason, 256);
  const std::string because = why.empty() ? "" : " (" + why + ")";
  const std::string epoch = "; membership epoch " + std::to_string(change.epoch);
  // Nobody went on from anywhere, nor stood still, for one that never was a member.
  if (change.kind == contract::change::kRefused) return who + " was not let in" + because + epoch;
  text += " at step " + std::to_string(change.step) + because + "; training stood still for " +
          std::to_string(change.stall_ms) + " ms";
  if (change.delay_ms >= 0) {
    text += ", the step took " + std::to_string(change.delay_ms) + " ms longer than usual";
  }
  return text + epoch;
}

struct Shown {
  std::string_view type, reason;
};

/// How a change is shown; nothing for a kind that this build does not know.
std::optional<Shown> shown_as(const std::string& kind) {
  if (kind == contract::change::kJoined) return Shown{"Normal", contract::reason::kWorkerJoined};
  if (kind == contract::change::kLost) return Shown{"Warning", contract::reason::kWorkerLost};
  if (kind == contract::change::kLeft) return Shown{"Normal", contract::reason::kWorkerLost};
  if (kind == contract::change::kRefused) return Shown{"Warning", contract::reason::kWorkerLost};
  if (kind == contract::change::kStranger) return Shown{"Warning", contract::reason::kWorkerLost};
  if (kind == contract::change::kSlow) return Shown{"Warning", contract::reason::kWorkerSlow};
  if (kind == contract::change::kReturned) {
    return Shown{"Warning", contract::reason::kTrainingReturned};
  }
  if (kind == contract::change::kRespawned) {
    return Shown{"Warning", contract::reason::kWorkerRespawned};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Plan> decide_elastic(const JobSnapshot& snapshot, const GangView& gang) {
  if (settles(snapshot, gang)) {
    Plan plan;
    plan.requeue_after = words::kSettle;
    plan.reason = "a worker lost its peer; waiting for the peer's own end";
    return plan;
  }
  Draft draft;
  draft.status = snapshot.job.status;
  draft.attempt = static_cast<int>(next_epoch(snapshot, gang) - 1);
  // Entries that are no member's (damaged, doubled) go with the first decision.
  draft.status.placement.clear();
  for (const auto& member : gang.members) draft.status.placement.push_back(member.placement);
  shrink(draft, snapshot, gang);
  give_back_refused(draft, snapshot, gang);
  place(draft, snapshot, gang);
  const int wish = wished_workers(snapshot.job);
  // Whom a larger wish adds is asked for once all stand.
  const bool replaces = !draft.replaced.empty() && wish > snapshot.job.status.target_workers;
  const bool waits = awaits_verdict(snapshot, gang) || replaces;
  const bool cannot_shrink = wish < snapshot.job.status.target_workers && draft.left.empty() &&
                             static_cast<int>(gang.members.size()) > wish;
  const bool resized = wish != snapshot.job.status.target_workers && !waits && !cannot_shrink;
  if (!draft.is_change() && !resized) return std::nullopt;
  set_target(draft, snapshot, resized ? wish : draft.status.target_workers);
  return write(std::move(draft), snapshot, gang, resized);
}

int shrinks_to(const JobSnapshot& snapshot) {
  const GangView gang = view_gang(snapshot);
  // A group of Kueue's counts whoever left, and its size stays the target.
  const bool is_fixed = snapshot.job.spec.suspend || is_in_kueue(snapshot.job);
  if (is_fixed || !is_elastic(snapshot, gang)) return 0;
  const int least = std::max(1, snapshot.job.spec.worker.min);
  if (static_cast<int>(gang.members.size()) <= least) return 0;
  const int slots = gang.members[static_cast<std::size_t>(least - 1)].placement.slot + 1;
  return can_go_on(snapshot, gang, slots) ? least : 0;
}

std::optional<seconds> until_elastic(const JobSnapshot& snapshot, const GangView& gang) {
  std::optional<seconds> least;
  const auto at_most = [&](seconds left) { least = std::min(least.value_or(left), left); };
  for (const auto& member : gang.members) {
    const Fate fate = fate_of(snapshot, member);
    if (fate == Fate::kLeaving) at_most(until_overdue(*member.pod, snapshot));
    const auto starts = until_given_up(snapshot, member);
    if (starts && starts->count() > 0) at_most(*starts);
    if (fate != Fate::kDown) continue;
    if (const auto left = until_replacement(snapshot, member)) at_most(*left);
  }
  if (!slots_to_grow_into(snapshot, gang).empty()) {
    if (const auto left = until_growth(snapshot, gang)) at_most(*left);
  }
  return least;
}

bool awaits_verdict(const JobSnapshot& snapshot, const GangView& gang) {
  const std::vector<int> slots = slots_to_place(snapshot, gang);
  return !slots.empty() && !snapshot.create_failure && verdict_for(snapshot, slots) == nullptr;
}

void tell_changes(Plan& plan, const JobSnapshot& snapshot) {
  std::size_t told = 0;
  for (const auto& change : snapshot.changes) {
    const auto shown = shown_as(change.kind);
    if (!shown) continue;
    if (++told > kMostEvents) continue;
    add_event(plan, snapshot, shown->type, shown->reason, sentence_of_change(change));
  }
  const std::size_t more = snapshot.changes_untold + (told > kMostEvents ? told - kMostEvents : 0);
  if (more == 0) return;
  add_event(plan, snapshot, "Normal", contract::reason::kResized,
            std::to_string(more) + (more == 1 ? " more change" : " more changes") +
                " of the workers' membership");
}

}  // namespace muster::core
