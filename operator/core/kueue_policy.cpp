#include "operator/core/kueue_policy.h"

#include <algorithm>

#include "common/contract.h"
#include "operator/api/kueue.h"
#include "operator/core/facts.h"
#include "operator/core/preempt_policy.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

bool is_held(const Member& member) {
  return member.state == MemberState::kPending && member.pod->held_by_kueue;
}

struct Stop {
  std::string_view reason;
  std::string message;
};

std::optional<Stop> stop_of(const Member& member) {
  if (member.pod == nullptr) return std::nullopt;
  const api::Pod& pod = *member.pod;
  if (!pod.kueue_stop.empty() && member.state != MemberState::kSucceeded) {
    const bool is_off = pod.kueue_stop.starts_with(api::kueue::kDeactivated);
    return Stop{is_off ? words::kKueueDeactivated : contract::reason::kPreempted,
                "Kueue stopped the gang (" + head_of(pod.kueue_stop, 128) +
                    "): " + head_of(pod.kueue_stop_message, 512)};
  }
  if (member.state == MemberState::kLost && pod.held_by_kueue) {
    return Stop{contract::reason::kGangWaiting, "the pod of worker " +
                                                    std::to_string(member.placement.slot) +
                                                    " was deleted while Kueue held it back"};
  }
  return std::nullopt;
}

}  // namespace

bool is_in_kueue(const api::TrainingJob& job) {
  return !job.status.kueue_queue.empty() && !job.status.placement.empty();
}

bool is_held_by_kueue(const GangView& gang) {
  return std::any_of(gang.members.begin(), gang.members.end(), is_held);
}

std::optional<Plan> decide_kueue_stop(const JobSnapshot& snapshot, const GangView& gang) {
  if (!is_in_kueue(snapshot.job)) return std::nullopt;
  std::optional<Stop> stop;
  for (const auto& member : gang.members) {
    if (!stop) stop = stop_of(member);
  }
  if (!stop) return std::nullopt;
  const bool is_off = stop->reason == words::kKueueDeactivated;
  const std::string message =
      stop->message + (is_off ? "; it starts again when spec.suspend was true and is false again"
                              : "; it waits for Kueue anew");
  Plan plan =
      write_status(snapshot, waiting_anew(snapshot, gang, stop->reason, message), Pass::kDecision);
  add_event(plan, snapshot, is_off ? "Warning" : "Normal",
            is_off ? contract::reason::kGangWaiting : stop->reason, message);
  plan.reason = message;
  return plan;
}

std::string why_deactivated(const api::TrainingJob& job) {
  const auto* admitted = job.status.condition(std::string(words::kAdmitted));
  const bool is_off = admitted != nullptr && admitted->status == "False" &&
                      admitted->reason == words::kKueueDeactivated;
  return is_off ? admitted->message : "";
}

std::optional<seconds> say_held(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  std::string message = "the gang waits for Kueue: queue " +
                        head_of(status.kueue_queue, api::kueue::kMaxQueueBytes) +
                        " has not admitted it yet";
  if (!snapshot.kueue_says.empty()) {
    message += " (" + first_line(snapshot.kueue_says, api::kueue::kMaxSaysBytes) + ")";
  }
  status.phase = words::kPhaseWaiting;
  const auto* before = status.condition(std::string(words::kRunning));
  std::optional<seconds> later;
  if (before != nullptr && before->reason == words::kWaitingForKueue &&
      before->message != message) {
    const bool is_first_word = before->message.find('(') == std::string::npos;
    const seconds left = until_said_anew(snapshot, before->message, message);
    if (!is_first_word && left.count() > 0) {
      later = left;
      message = before->message;
    }
  }
  set_condition(status, snapshot, {words::kRunning, false, words::kWaitingForKueue, message, true});
  return later;
}

std::string held_text(const JobSnapshot& snapshot, const GangView& gang) {
  if (!is_in_kueue(snapshot.job)) return "";
  for (const auto& member : gang.members) {
    if (!is_held(member)) continue;
    return "; worker " + std::to_string(member.placement.slot) +
           " waits for Kueue to let its pod go";
  }
  return "";
}

}  // namespace muster::core
