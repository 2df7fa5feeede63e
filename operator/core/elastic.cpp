#include "operator/core/elastic.h"

#include <algorithm>
#include <array>

#include "common/contract.h"
#include "common/list_text.h"
#include "operator/core/copies.h"
#include "operator/core/drain_policy.h"
#include "operator/core/end_policy.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/preparing.h"
#include "operator/core/progress.h"
#include "operator/core/replace_policy.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

std::string workers_that(int count, const char* one, const char* more) {
  return std::to_string(count) + (count == 1 ? " worker " : " workers ") +
         (count == 1 ? one : more);
}

/// What was said first stays said while as many wait for the same: how much room there is changes
/// with every pod of every other job, and each change would be a write. Of a message's last words.
std::string kept_or(const api::Condition* before, const std::string& head,
                    const std::string& text) {
  if (std::string said = said_from(before, head); !said.empty()) return said;
  return text.empty() ? "" : head + text;
}

/// What this one has ended with, or where it is on its way in the attempt before it: it takes a
/// while to end alike.
std::optional<api::FailureStatus> last_end_of(const JobSnapshot& snapshot, const Member& member) {
  if (member.state == MemberState::kFailed) return read_failure(member, snapshot).facts;
  const auto& last = snapshot.job.status.failure;
  const bool is_its = last && last->slot == member.placement.slot &&
                      member.placement.replacements > 0 && !is_member(snapshot, member);
  return is_its ? last : std::nullopt;
}

/// Why the training did not let this one in; null where that is not so.
std::optional<api::FailureStatus> why_not_let_in(const JobSnapshot& snapshot,
                                                 const Member& member) {
  if (is_member(snapshot, member)) return std::nullopt;
  auto why = last_end_of(snapshot, member);
  return why && is_unfit(snapshot.job, *why) ? why : std::nullopt;
}

/// Of those whom the training does not let in, the first, and why: trying again does not help them.
std::string not_let_in_text(const JobSnapshot& snapshot, const GangView& gang) {
  for (const auto& member : gang.members) {
    const auto why = why_not_let_in(snapshot, member);
    if (!why) continue;
    return "; worker " + std::to_string(member.placement.slot) + " was not let in: " + why->reason +
           " " + last_line(why->log_tail, 512);
  }
  return "";
}

/// Of those that have ended more than once in a row, the first, and why: its next attempt waits the
/// longer, and where it is the one with the files the others wait for it in the end.
std::string ends_again_text(const JobSnapshot& snapshot, const GangView& gang) {
  for (const auto& member : gang.members) {
    const bool is_again = member.state == MemberState::kFailed
                              ? until_replacement(snapshot, member).has_value()
                              : member.placement.replacements > 1;
    const auto why = is_again ? last_end_of(snapshot, member) : std::nullopt;
    if (!why || why_not_let_in(snapshot, member)) continue;
    const std::string said = last_line(why->log_tail, 512);
    return "; worker " + std::to_string(member.placement.slot) +
           " ends again and again: " + why->reason + (said.empty() ? "" : " " + said);
  }
  return "";
}

/// Those that run and make no steps, because a stage of their model runs nowhere.
std::string copies_text(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<int> running;
  for (const auto& member : gang.members) {
    if (member.state == MemberState::kRunning) running.push_back(member.placement.slot);
  }
  const std::vector<int> waiting = waiting_for_their_copy(snapshot.job, running);
  if (waiting.empty()) return "";
  return "; " + slots_text(waiting) + (waiting.size() == 1 ? " waits" : " wait") +
         " for the others that have stages of the same copy of the model";
}

/// A kubelet that cannot pull an image says so in two ways in turn.
std::string reason_word(const std::string& reason) {
  return reason == "ErrImagePull" ? "ImagePullBackOff" : head_of(reason, 128);
}

/// Those that have no place, or no pod, and why.
std::string waiting_text(const JobSnapshot& snapshot, const GangView& gang) {
  const auto* before = snapshot.job.status.condition(std::string(words::kRunning));
  const std::vector<int> homeless = slots_to_place(snapshot, gang);
  if (!homeless.empty() && homeless.front() < wished_workers(snapshot.job)) {
    const GangVerdict* verdict = verdict_for(snapshot, homeless);
    const std::string head =
        "; " + workers_that(static_cast<int>(homeless.size()), "waits", "wait") + " for a place: ";
    return kept_or(before, head, verdict != nullptr ? why_homeless(snapshot.job, *verdict) : "");
  }
  for (const auto& member : gang.members) {
    if (fate_of(snapshot, member) != Fate::kStays) continue;
    const std::string head = "; worker " + std::to_string(member.placement.slot) + " waits: ";
    if (member.state == MemberState::kMissing) {
      // Between two tries nothing is said anew.
      const auto& failure = snapshot.create_failure;
      const std::string text =
          failure ? kept_or(before, head + failure->reason + " ", head_of(failure->message, 512))
                  : kept_or(before, head, "");
      if (!text.empty()) return text;
    }
    // Of a place that Muster has found and the cluster's scheduler refuses another is looked for.
    const bool is_its_place = member.placement.node.empty() && !is_in_kueue(snapshot.job);
    const bool says_why = member.state == MemberState::kPending && !member.pod->reason.empty() &&
                          (is_its_place || !is_unbound(*member.pod));
    if (!says_why) continue;
    return kept_or(before, head + reason_word(member.pod->reason) + " ",
                   head_of(member.pod->message, 512));
  }
  const std::string preparing = preparing_text(snapshot, gang, before);
  return preparing.empty() ? "" : "; " + preparing;
}

}  // namespace

std::string why_homeless(const api::TrainingJob& job, const GangVerdict& verdict) {
  if (!verdict.placement) return head_of(verdict.why_not, 512);
  const int together = workers_together(job);
  const std::size_t room = verdict.placement->node_of_slot.size();
  if (room >= static_cast<std::size_t>(together)) return "";
  return "there is room for " + std::to_string(room) + ", and a copy of the model is in " +
         std::to_string(together) + " workers";
}

std::string slots_text(const std::vector<int>& slots) {
  constexpr std::size_t kNamedMost = 8;
  return (slots.size() == 1 ? "worker " : "workers ") +
         list_text(slots, kNamedMost, [](int slot) { return std::to_string(slot); });
}

Fate fate_of(const JobSnapshot& snapshot, const Member& member) {
  const bool was_member = is_member(snapshot, member);
  switch (member.state) {
    case MemberState::kRunning:
    case MemberState::kSucceeded:
      return Fate::kStays;
    case MemberState::kPending: {
      const bool refused = !member.placement.node.empty() && is_unbound(*member.pod) &&
                           lasted(snapshot, facts::unbound(*member.pod)) >= words::kUnboundMost;
      if (refused) return Fate::kRefused;
      const auto left = until_given_up(snapshot, member);
      return left && left->count() <= 0 ? Fate::kGivenUp : Fate::kStays;
    }
    case MemberState::kMissing:
      // Whoever was a member had a pod; of others it is only not made yet.
      return was_member ? Fate::kDown : Fate::kStays;
    case MemberState::kFailed:
      return Fate::kDown;
    case MemberState::kLost:
      break;
  }
  const bool hands_over = was_member && must_wait_for(*member.pod, snapshot);
  return hands_over ? Fate::kLeaving : Fate::kDown;
}

namespace {

/// Clamped twice, because core is total on whatever it is given.
int within_bounds(const api::WorkerSpec& worker, int workers) {
  const int least = std::clamp(worker.min, 1, kMaxWorkers);
  return std::clamp(workers, least, std::clamp(worker.max, least, kMaxWorkers));
}

bool grows_to_max(const api::TrainingJob& job) {
  return job.spec.worker.grows_to == "Max" && !job.spec.queue_name.empty() && !is_in_kueue(job);
}

}  // namespace

int counted_workers(const api::TrainingJob& job) {
  if (is_in_kueue(job)) {
    // Nobody is admitted with more, whatever somebody writes there.
    const int most = std::clamp(job.spec.worker.max, 1, kMaxWorkers);
    return std::clamp(job.status.target_workers, 1, most);
  }
  return within_bounds(job.spec.worker, job.spec.worker.count);
}

int wished_workers(const api::TrainingJob& job) {
  const int counted = counted_workers(job);
  if (!grows_to_max(job)) return counted;
  return std::max(counted, within_bounds(job.spec.worker, job.status.target_workers));
}

int most_workers(const api::TrainingJob& job) {
  return grows_to_max(job) ? within_bounds(job.spec.worker, kMaxWorkers) : wished_workers(job);
}

bool is_ending(const JobSnapshot& snapshot, const GangView& gang) {
  return gang.count(MemberState::kSucceeded) > 0 && trains_on(snapshot, gang);
}

bool is_elastic(const JobSnapshot& snapshot, const GangView& gang) {
  if (!trains_on(snapshot, gang) || is_ending(snapshot, gang)) return false;
  return std::none_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
    return fate_of(snapshot, member) == Fate::kDown && fails_job(snapshot, member);
  });
}

std::vector<int> slots_to_place(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<int> slots;
  const int wish = wished_workers(snapshot.job);
  const int with_spare = wish + spare_slots(snapshot, gang);
  for (const auto& member : gang.members) {
    const bool down =
        member.placement.slot < with_spare && fate_of(snapshot, member) == Fate::kDown;
    if (down && !until_replacement(snapshot, member)) slots.push_back(member.placement.slot);
  }
  const auto add_new = [&](int first, int last) {
    for (int slot = first; slot < last; ++slot) {
      if (gang.find(slot) == nullptr) slots.push_back(slot);
    }
  };
  // One kind at a time: each has another turn, and other rights.
  if (slots.empty()) add_new(0, wish);
  if (slots.empty()) add_new(wish, std::max(with_spare, most_workers(snapshot.job)));
  std::sort(slots.begin(), slots.end());
  return slots;
}

const GangVerdict* verdict_for(const JobSnapshot& snapshot, const std::vector<int>& slots) {
  return snapshot.gang && snapshot.gang->slots == slots ? &*snapshot.gang : nullptr;
}

std::vector<int> slots_to_grow_into(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<int> slots = slots_to_place(snapshot, gang);
  const GangVerdict* verdict = verdict_for(snapshot, slots);
  if (verdict == nullptr || !verdict->placement) return {};
  slots.resize(std::min(slots.size(), verdict->placement->node_of_slot.size()));
  const auto is_placed = [&](int slot) {
    return gang.find(slot) != nullptr || std::binary_search(slots.begin(), slots.end(), slot);
  };
  const int together = workers_together(snapshot.job);
  std::vector<int> whole;
  for (const int slot : slots) {
    const int first = slot - slot % together;
    bool all = gang.find(slot) == nullptr;
    for (int other = first; all && other < first + together; ++other) all = is_placed(other);
    if (all) whole.push_back(slot);
  }
  return whole;
}

std::optional<seconds> until_growth(const JobSnapshot& snapshot, const GangView& gang) {
  if (are_spare(snapshot, slots_to_place(snapshot, gang))) return std::nullopt;
  if (wished_workers(snapshot.job) != snapshot.job.status.target_workers) return std::nullopt;
  const seconds left = words::kGrowAfter - lasted(snapshot, facts::room());
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

bool is_forgiven(const JobSnapshot& snapshot, const Member& member) {
  if (member.pod == nullptr || !member.pod->meta.creation_time) return false;
  return snapshot.now - *member.pod->meta.creation_time >= words::kForgivenAfter;
}

std::optional<seconds> until_replacement(const JobSnapshot& snapshot, const Member& member) {
  const int before = member.placement.replacements;
  if (before == 0 || is_forgiven(snapshot, member)) return std::nullopt;
  const Failure failure = read_failure(member, snapshot);
  if (failure.planned || failure.node_lost || failure.pod_lost) return std::nullopt;
  api::RestartSpec restart = snapshot.job.spec.restart;
  // Who cannot be let in will not fit a moment later either, whatever the job says of restarts.
  if (failure.unfit) restart.backoff_seconds = std::max<int>(restart.backoff_seconds, 1);
  const seconds left =
      restart_backoff(restart, before - 1) - lasted(snapshot, facts::down(member.placement));
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

std::string restored_text(const JobSnapshot& snapshot, const GangView& gang,
                          const api::Condition* running) {
  const auto* report = newest_report(snapshot, gang);
  if (report != nullptr && report->restored_step >= 0) {
    return std::string(kRestored) + std::to_string(report->restored_step);
  }
  if (running == nullptr || running->status != "True") return "";
  const auto at = running->message.find(kRestored);
  if (at == std::string::npos) return "";
  const auto end = running->message.find_first_not_of("0123456789", at + kRestored.size());
  return running->message.substr(at, end == std::string::npos ? end : end - at);
}

std::string workers_wait_text(const JobSnapshot& snapshot, const GangView& gang) {
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr || report->waiting.empty()) continue;
    if (member.state != MemberState::kRunning) continue;
    return "; the workers wait: " + first_line(report->waiting, 256);
  }
  return "";
}

std::string busy_text(const JobSnapshot& snapshot, const GangView& gang) {
  constexpr int kNamedMost = 3;
  std::string text;
  int named = 0;
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr || member.state != MemberState::kRunning) continue;
    if (report->busy_seconds <= 0 || named++ >= kNamedMost) continue;
    // Nobody waits for who is not a member yet, and reads what it will train on, nor for who is
    // none any more, and saves what it has left with.
    const bool stands = !report->busy_checkpoint &&
                        std::ranges::binary_search(report->members, member.placement.slot);
    text += stands ? "; training stands: " : "; ";
    text += "worker " + std::to_string(member.placement.slot) + " has been busy with " +
            (report->busy_checkpoint ? "a checkpoint or the record in " : "files in ") +
            first_line(report->busy_path, 256) + " for more than " +
            std::to_string(report->busy_seconds) + " s";
  }
  return text;
}

std::string undeleted_text(const JobSnapshot& snapshot) {
  if (snapshot.deletion_refused.empty()) return "";
  return "; a pod that is to go may not be deleted (" + head_of(snapshot.deletion_refused, 512) +
         "): let the operator delete it, or delete it yourself";
}

std::string slow_text(const JobSnapshot& snapshot, const GangView& gang) {
  constexpr int kNamedMost = 3;
  constexpr std::array kCauses = {contract::slow_cause::kCompute, contract::slow_cause::kData,
                                  contract::slow_cause::kFiles, contract::slow_cause::kNetwork};
  std::string text;
  int named = 0;
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr || member.state != MemberState::kRunning) continue;
    const bool is_known =
        std::find(kCauses.begin(), kCauses.end(), report->slow_cause) != kCauses.end();
    if (!is_known || report->slow_percent <= 0 || named++ >= kNamedMost) continue;
    const int percent = std::max(10, (std::min(report->slow_percent, 10'000) + 5) / 10 * 10);
    text += "; worker " + std::to_string(member.placement.slot) + " slows the gang by " +
            std::to_string(percent) + " %: " + report->slow_cause;
    if (report->slow_process < 0 || report->slow_rank < 0) continue;
    text += " (process " + std::to_string(report->slow_process) + ", rank " +
            std::to_string(report->slow_rank) + ")";
  }
  return text;
}

void observe_members(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                     const GangView& gang, const std::string& more) {
  int training = 0;
  for (const auto& member : gang.members) {
    const bool here = member.state == MemberState::kRunning ||
                      member.state == MemberState::kSucceeded ||
                      fate_of(snapshot, member) == Fate::kLeaving;
    if (!here) continue;
    if (!is_member(snapshot, member)) {
      training += is_named(snapshot, gang, member) ? 1 : 0;
      continue;
    }
    ++training;
    for (auto& placement : status.placement) {
      if (placement.slot == member.placement.slot) placement.member = true;
    }
    const bool is_first = member.placement.slot == 0 && member.pod != nullptr;
    if (is_first && !member.pod->image_id.empty()) {
      status.image_digest = head_of(member.pod->image_id, 512);
    }
  }
  const int target = status.target_workers;
  status.phase = words::kPhaseRunning;
  status.replicas = training;
  status.workers = workers_text(training, target);
  status.restart_at.reset();
  const auto* before = snapshot.job.status.condition(std::string(words::kRunning));
  const std::string message =
      std::to_string(training) + " of " + std::to_string(target) +
      (target == 1 ? " worker runs" : " workers run") + more + slow_text(snapshot, gang) +
      not_let_in_text(snapshot, gang) + ends_again_text(snapshot, gang) +
      workers_wait_text(snapshot, gang) + busy_text(snapshot, gang) + copies_text(snapshot, gang) +
      undeleted_text(snapshot) + held_text(snapshot, gang) + drain_text(snapshot, gang, before) +
      resize_text(snapshot, gang) + waiting_text(snapshot, gang);
  set_condition(status, snapshot, {words::kRunning, true, words::kGangRunning, message});
  set_condition(status, snapshot, {words::kRestarting, false, words::kGangRunning, message});
}

}  // namespace muster::core
