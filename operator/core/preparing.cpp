#include "operator/core/preparing.h"

#include <algorithm>

#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/plan.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

constexpr std::string_view kInPreparation = " waits: its pod has been in preparation on node ";
constexpr std::string_view kInContainer = " waits for its init container ";

bool is_said_in(const std::string& message) {
  return message.find(kInPreparation) != std::string::npos ||
         message.find(kInContainer) != std::string::npos;
}

bool is_starting(const Member& member) {
  return member.state == MemberState::kPending && !member.pod->node_name.empty();
}

bool is_preparing(const Member& member) {
  return is_starting(member) && member.pod->reason.empty();
}

/// Without how long it has taken: words that change would be a write each time.
std::string text_of(const Member& member) {
  const api::Pod& pod = *member.pod;
  const std::string worker = "worker " + std::to_string(member.placement.slot);
  if (!pod.initializing.empty()) {
    return worker + std::string(kInContainer) + head_of(pod.initializing, 63) +
           ", which runs on node " + pod.node_name;
  }
  return worker + std::string(kInPreparation) + pod.node_name + " for " +
         std::to_string(words::kPreparingMost.count()) + " s and more; kubectl describe pod " +
         pod.meta.name + " says why";
}

/// Not while it runs what the job itself has its workers do first: that takes as long as it takes,
/// like the workers.
bool waits_to_start(const Member& member, const api::TrainingJob& job) {
  return is_starting(member) && !api::has_init_container(job.spec.worker, member.pod->initializing);
}

}  // namespace

const Member* last_preparing(const GangView& gang) {
  const auto last = std::find_if(gang.members.rbegin(), gang.members.rend(), is_preparing);
  return last == gang.members.rend() ? nullptr : &*last;
}

std::string preparing_text(const JobSnapshot& snapshot, const GangView& gang,
                           const api::Condition* said) {
  if (said != nullptr && is_said_in(said->message)) {
    for (const auto& member : gang.members) {
      if (!is_preparing(member)) continue;
      std::string text = text_of(member);
      if (said->message.find(text) != std::string::npos) return text;
    }
  }
  const Member* last = last_preparing(gang);
  const bool is_long =
      last != nullptr && lasted(snapshot, facts::preparing(*last->pod)) >= words::kPreparingMost;
  return is_long ? text_of(*last) : "";
}

std::optional<seconds> until_preparing(const JobSnapshot& snapshot, const GangView& gang) {
  const Member* last = last_preparing(gang);
  if (last == nullptr) return std::nullopt;
  const seconds left = words::kPreparingMost - lasted(snapshot, facts::preparing(*last->pod));
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

std::optional<seconds> starting_for(const JobSnapshot& snapshot, const Member& member) {
  const api::TrainingJob& job = snapshot.job;
  if (!waits_to_start(member, job)) return std::nullopt;
  // When the last of them ended is not told.
  if (!job.spec.worker.init_containers.empty()) return seconds(0);
  return told_to_last(snapshot, member.pod->bound_at);
}

std::optional<seconds> until_given_up(const JobSnapshot& snapshot, const Member& member) {
  if (!waits_to_start(member, snapshot.job) || is_in_kueue(snapshot.job)) return std::nullopt;
  return snapshot.start_timeout - lasted(snapshot, facts::starting(*member.pod));
}

std::string not_started_text(const JobSnapshot& snapshot, const Member& member) {
  const api::Pod& pod = *member.pod;
  const std::string& image = snapshot.job.spec.worker.image;
  const std::string what = image.empty() ? "its image" : "image " + head_of(image, 256);
  return "worker " + std::to_string(member.placement.slot) + " on node " + pod.node_name +
         " did not start in " + std::to_string(snapshot.start_timeout.count()) + " s (" +
         (pod.reason.empty() ? what + " is being pulled, or a volume attached"
                             : head_of(pod.reason, 128) + ": " + head_of(pod.message, 512)) +
         ")";
}

bool awaits_start(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  if (is_in_kueue(job) || trains_on(snapshot, gang)) return false;
  const bool starts =
      std::any_of(gang.members.begin(), gang.members.end(),
                  [&](const Member& member) { return waits_to_start(member, job); });
  if (!starts || gang.count(MemberState::kSucceeded) > 0) return false;
  // torchrun begins with the least number of its range; our own workers wait for all of a start.
  const bool begins_with_less = !job.spec.training && job.spec.worker.min < job.spec.worker.max;
  return !begins_with_less || gang.count(MemberState::kRunning) < job.spec.worker.min;
}

std::optional<seconds> until_not_started(const JobSnapshot& snapshot, const GangView& gang) {
  if (!awaits_start(snapshot, gang)) return std::nullopt;
  return snapshot.start_timeout - lasted(snapshot, facts::starting(snapshot.job.status));
}

std::optional<NotStarted> not_started(const JobSnapshot& snapshot, const GangView& gang) {
  const auto left = until_not_started(snapshot, gang);
  if (!left || left->count() > 0) return std::nullopt;
  NotStarted found;
  for (const auto& member : gang.members) {
    if (!waits_to_start(member, snapshot.job)) continue;
    const api::SlotPlacement& place = member.placement;
    if (!place.node.empty()) leave_out(found.nodes, place.node, place.attempt);
    if (!found.message.empty()) continue;
    found.message = not_started_text(snapshot, member) +
                    "; the gang lets go of its nodes, so that others can have them, and is tried "
                    "again after " +
                    std::to_string(words::kLetGoPause.count()) +
                    " s, on other nodes where there are some";
  }
  return found;
}

}  // namespace muster::core
