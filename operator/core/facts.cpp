#include "operator/core/facts.h"

#include <algorithm>
#include <utility>

#include "operator/core/drain_policy.h"
#include "operator/core/elastic.h"
#include "operator/core/end_policy.h"
#include "operator/core/ended_workers.h"
#include "operator/core/gang_view.h"
#include "operator/core/half_bound.h"
#include "operator/core/preparing.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {

namespace facts {
std::string unbound(const api::Pod& pod) { return "unbound/" + pod.meta.uid; }
std::string preparing(const api::Pod& pod) { return "preparing/" + pod.meta.uid; }
std::string half_bound(const api::TrainingJobStatus& status) {
  return "half bound/" + std::to_string(status.start_attempt);
}
std::string starting(const api::TrainingJobStatus& status) {
  return "starting/" + std::to_string(status.start_attempt);
}
std::string starting(const api::Pod& pod) { return "starting/" + pod.meta.uid; }
std::string leaving(const api::Pod& pod) { return "leaving/" + pod.meta.uid; }
std::string not_ready(const std::string& node) { return "not ready/" + node; }
std::string lingering(const api::Pod& pod) { return "lingering/" + pod.meta.uid; }
std::string backing_off(const api::TrainingJobStatus& status) {
  return "backing off/" + std::to_string(status.membership_epoch);
}
std::string settling(const api::TrainingJobStatus& status) {
  // Not by the epoch, which the workers move on.
  int newest = -1;
  for (const auto& placement : status.placement) newest = std::max(newest, placement.attempt);
  return "settling/" + std::to_string(newest);
}
std::string job_is_old() { return "job is old"; }
std::string down(const api::SlotPlacement& placement) {
  return "down/" + std::to_string(placement.slot) + "/" + std::to_string(placement.attempt);
}
std::string ended(const api::SlotPlacement& placement) {
  return "ended/" + std::to_string(placement.slot) + "/" + std::to_string(placement.attempt);
}
std::string has_model() { return "has model"; }
std::string room() { return "room"; }
std::string cordoned(const std::string& node) { return "cordoned/" + node; }
std::string spare_idle() { return "spare idle"; }
std::string lacks_volumes() { return "lacks volumes"; }
std::string waiting_words(const std::string& message) {
  return "words/" + hex_text(hash_text(message));
}
}  // namespace facts

seconds until_said_anew(const JobSnapshot& snapshot, const std::string& said,
                        const std::string& now) {
  const bool is_behind = snapshot.gang && snapshot.gang->is_behind;
  const seconds interval = is_behind || differs_in_numbers_alone(said, now)
                               ? words::kNumbersInterval
                               : words::kWordsInterval;
  return interval - lasted(snapshot, facts::waiting_words(said));
}

bool newly_lacks_volumes(const JobSnapshot& snapshot) {
  return snapshot.gang && snapshot.gang->lacks_volumes &&
         snapshot.job.status.condition(std::string(words::kAdmitted)) == nullptr;
}

bool is_unbound(const api::Pod& pod) {
  return pod.phase == api::PodPhase::kPending && pod.node_name.empty() && !pod.reason.empty() &&
         !pod.meta.deletion_time;
}

seconds told_to_last(const JobSnapshot& snapshot, const std::optional<WallTime>& since) {
  if (!since || *since > snapshot.now) return seconds(0);
  return std::min(words::kLookAgainMost, std::chrono::floor<seconds>(snapshot.now - *since));
}

seconds lasted(const JobSnapshot& snapshot, const std::string& fact) {
  const auto found = snapshot.lasted.find(fact);
  return found == snapshot.lasted.end() ? seconds(0) : found->second;
}

std::map<std::string, seconds> lasting_facts(const JobSnapshot& snapshot) {
  const api::TrainingJobStatus& status = snapshot.job.status;
  std::map<std::string, seconds> found;
  const auto add = [&](std::string fact, seconds already = seconds(0)) {
    found.emplace(std::move(fact), already);
  };
  for (const auto& pod : snapshot.pods) {
    if (!is_owned(pod, snapshot.job)) continue;
    if (is_unbound(pod)) add(facts::unbound(pod), told_to_last(snapshot, pod.unbound_since));
    if (pod.meta.deletion_time) add(facts::leaving(pod));
    const bool runs_on = status.finished() && pod.termination && !pod.ended();
    if (runs_on) add(facts::lingering(pod));
  }
  for (const auto& node : snapshot.not_ready_nodes) add(facts::not_ready(node));
  for (const auto& node : snapshot.unschedulable_nodes) add(facts::cordoned(node));
  if (status.restart_at) add(facts::backing_off(status));
  const GangView gang = view_gang(snapshot);
  if (gang.job_is_old) add(facts::job_is_old());
  if (const Member* last = last_preparing(gang)) add(facts::preparing(*last->pod));
  if (awaits_start(snapshot, gang)) {
    seconds longest(0);
    for (const auto& member : gang.members) {
      longest = std::max(longest, starting_for(snapshot, member).value_or(longest));
    }
    add(facts::starting(status), longest);
  }
  if (half_bound(snapshot, gang)) add(facts::half_bound(status));
  if (has_model(gang)) add(facts::has_model());
  for (const auto& member : gang.members) {
    if (is_end_untold(snapshot, member)) add(facts::ended(member.placement));
  }
  if (is_settling(snapshot, gang)) add(facts::settling(status));
  if (is_elastic(snapshot, gang)) {
    for (const auto& member : gang.members) {
      if (fate_of(snapshot, member) == Fate::kDown) add(facts::down(member.placement));
      const auto starting = starting_for(snapshot, member);
      if (starting) add(facts::starting(*member.pod), *starting);
    }
    if (!slots_to_grow_into(snapshot, gang).empty()) add(facts::room());
    if (is_spare_idle(snapshot, gang)) add(facts::spare_idle());
  }
  if (newly_lacks_volumes(snapshot)) add(facts::lacks_volumes());
  const auto* admitted = status.condition(std::string(words::kAdmitted));
  if (admitted != nullptr && admitted->status == "False") {
    add(facts::waiting_words(admitted->message));
  }
  const auto* running = status.condition(std::string(words::kRunning));
  if (running != nullptr && running->reason == words::kWaitingForKueue) {
    add(facts::waiting_words(running->message));
  }
  return found;
}

}  // namespace muster::core
