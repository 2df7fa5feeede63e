#include "operator/core/drain_policy.h"

#include <algorithm>

#include "common/contract.h"
#include "common/list_text.h"
#include "operator/core/copies.h"
#include "operator/core/elastic.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

constexpr std::string_view kWaits =
    "and the disruption budget lets no drain take a worker from there";
constexpr std::string_view kHelps = "; to have it emptied now, ";

/// Nodes that have been cordoned for so long under workers of the gang that run, other than spares:
/// others hold up no drain. Of a taint nobody has to guess what it is followed by.
std::set<std::string> emptied_for(const JobSnapshot& snapshot, const GangView& gang,
                                  seconds least) {
  std::set<std::string> nodes;
  const int wish = wished_workers(snapshot.job);
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kRunning || member.placement.slot >= wish) continue;
    const std::string& node = member.pod->node_name;
    if (!snapshot.unschedulable_nodes.contains(node)) continue;
    const bool is_certain = snapshot.emptied_by.contains(node);
    if (is_certain || lasted(snapshot, facts::cordoned(node)) >= least) nodes.insert(node);
  }
  return nodes;
}

bool has_budget(const api::TrainingJob& job) { return job.spec.worker.min < job.spec.worker.max; }

/// Whether one more worker would help, and may be: the gang changes while it trains, in a size that
/// is nobody else's, and grows by itself to no more than its least.
bool may_have_spare(const api::TrainingJob& job) {
  const int wish = wished_workers(job);
  return job.spec.training && has_budget(job) && !is_in_kueue(job) && wish == job.spec.worker.min &&
         wish == most_workers(job) && wish == job.status.target_workers &&
         wish + workers_together(job) <= std::min(job.spec.worker.max, kMaxWorkers);
}

std::vector<int> slots_beyond(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<int> slots;
  for (const auto& member : gang.members) {
    if (member.placement.slot >= wished_workers(snapshot.job)) {
      slots.push_back(member.placement.slot);
    }
  }
  return slots;
}

bool trains(const JobSnapshot& snapshot, const Member& member) {
  return member.state == MemberState::kRunning && is_member(snapshot, member) &&
         fate_of(snapshot, member) == Fate::kStays;
}

/// Whether all train that are wished for.
bool all_train(const JobSnapshot& snapshot, const GangView& gang) {
  const auto training =
      std::count_if(gang.members.begin(), gang.members.end(), [&](const Member& member) {
        return member.placement.slot < wished_workers(snapshot.job) && trains(snapshot, member);
      });
  return training >= wished_workers(snapshot.job);
}

/// Slot 0 has the files, and nobody stands in for it: where there is no other room for it than the
/// spare's, or no quota for its pod, the spare lets go of it. Room that its volumes are away from
/// is no use to it.
bool is_in_the_way(const JobSnapshot& snapshot, const GangView& gang) {
  const Member* first = gang.find(0);
  if (first == nullptr || fate_of(snapshot, *first) == Fate::kDown) {
    const auto& verdict = snapshot.gang;
    return verdict && !verdict->placement && !verdict->lacks_volumes && !verdict->slots.empty() &&
           verdict->slots.front() == 0;
  }
  if (first->state == MemberState::kMissing) {
    return snapshot.create_failure && snapshot.create_failure->reason == words::kQuotaExceeded;
  }
  // A place that was found for it would be looked for anew.
  return first->state == MemberState::kPending && first->placement.node.empty() &&
         is_unbound(*first->pod) &&
         lasted(snapshot, facts::unbound(*first->pod)) >= words::kUnboundMost;
}

bool runs_first(const GangView& gang) {
  const Member* first = gang.find(0);
  return first != nullptr && first->state == MemberState::kRunning;
}

/// "nodes a, b are cordoned": those of emptied_for; empty for none.
std::string emptied_text(const JobSnapshot& snapshot, const std::set<std::string>& nodes) {
  constexpr std::size_t kNamedMost = 3;
  std::map<std::string, std::vector<std::string>> by_way;
  for (const auto& node : nodes) {
    const auto by = snapshot.emptied_by.find(node);
    by_way[by == snapshot.emptied_by.end() ? "cordoned" : "being emptied by " + by->second]
        .push_back(node);
  }
  std::string text;
  for (const auto& [way, those] : by_way) {
    const bool is_one = those.size() == 1;
    text += (text.empty() ? "" : " and ") + std::string(is_one ? "node " : "nodes ") +
            list_text(those, kNamedMost) + (is_one ? " is " : " are ") + way;
  }
  return text;
}

/// Why no spare comes; empty where that is not known yet.
std::string why_no_spare(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  if (!job.spec.training) {
    return "workers of one's own program cannot join while it runs";
  }
  if (is_in_kueue(job)) return "Kueue holds the job to the size that it admitted";
  if (!is_elastic(snapshot, gang)) return "";
  if (snapshot.create_failure) return head_of(snapshot.create_failure->message, 512);
  const std::vector<int> slots = slots_to_place(snapshot, gang);
  if (!slots.empty() && slots.front() < wished_workers(job)) {
    return "it waits for workers that it wishes for";
  }
  const GangVerdict* verdict = verdict_for(snapshot, slots);
  if (verdict == nullptr) return "";
  const std::string why = why_homeless(job, *verdict);
  return why.empty() ? "" : "there is no room for one more: " + why;
}

/// What was said before of the same nodes, to where it ends.
std::string said_before(const api::Condition* before, const std::string& head) {
  std::string said = said_from(before, head);
  const auto helps = said.find(kHelps);
  if (helps != std::string::npos) said.resize(std::min(said.find(';', helps + 1), said.size()));
  return said;
}

}  // namespace

bool is_spare(const JobSnapshot& snapshot, const Member& member) {
  const int wish = wished_workers(snapshot.job);
  return snapshot.job.spec.training && wish == snapshot.job.status.target_workers &&
         member.placement.slot >= wish;
}

bool has_spare(const JobSnapshot& snapshot, const GangView& gang) {
  // By slot.
  return !gang.members.empty() && is_spare(snapshot, gang.members.back());
}

bool are_spare(const JobSnapshot& snapshot, const std::vector<int>& slots) {
  return !slots.empty() && slots.front() >= most_workers(snapshot.job);
}

bool is_spare_idle(const JobSnapshot& snapshot, const GangView& gang) {
  return has_spare(snapshot, gang) && all_train(snapshot, gang) &&
         emptied_for(snapshot, gang, seconds(0)).empty();
}

int spare_slots(const JobSnapshot& snapshot, const GangView& gang) {
  if (!may_have_spare(snapshot.job) || is_in_the_way(snapshot, gang)) return 0;
  const int together = workers_together(snapshot.job);
  const bool is_there = has_spare(snapshot, gang);
  // Before worker 0 has what it needs nobody comes who might take it.
  if (!is_there && !runs_first(gang)) return 0;
  if (!emptied_for(snapshot, gang, words::kCordonedFor).empty()) return together;
  if (!is_there) return 0;
  const bool is_over =
      is_spare_idle(snapshot, gang) && lasted(snapshot, facts::spare_idle()) >= words::kSpareFor;
  return is_over ? 0 : together;
}

int not_yet_members(const JobSnapshot& snapshot, const GangView& gang) {
  if (!trains_on(snapshot, gang)) return 0;
  const bool is_early = has_spare(snapshot, gang);
  return static_cast<int>(
      std::count_if(gang.members.begin(), gang.members.end(), [&](const Member& member) {
        return (is_early || member.state == MemberState::kRunning) &&
               fate_of(snapshot, member) == Fate::kStays && !is_member(snapshot, member);
      }));
}

std::optional<seconds> until_spared(const JobSnapshot& snapshot, const GangView& gang) {
  std::optional<seconds> least;
  const auto at_most = [&](seconds left) {
    if (left.count() > 0) least = std::min(least.value_or(left), left);
  };
  if (!has_budget(snapshot.job)) return least;
  for (const auto& node : emptied_for(snapshot, gang, seconds(0))) {
    if (snapshot.emptied_by.contains(node)) continue;
    at_most(words::kCordonedFor - lasted(snapshot, facts::cordoned(node)));
  }
  if (is_spare_idle(snapshot, gang)) {
    at_most(words::kSpareFor - lasted(snapshot, facts::spare_idle()));
  }
  return least;
}

std::string why_spare_comes(const JobSnapshot& snapshot, const GangView& gang) {
  const std::string emptied =
      emptied_text(snapshot, emptied_for(snapshot, gang, words::kCordonedFor));
  // A copy of the model may be filled up that came before.
  if (emptied.empty()) return "nodes were being emptied a moment ago";
  return emptied + " and nobody can be spared there";
}

std::string why_spare_leaves(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  const auto& worker = job.spec.worker;
  const int wish = wished_workers(job);
  if (is_in_the_way(snapshot, gang)) return "worker 0 has no other room";
  if (wish > worker.min) {
    return "spec.worker.min is " + std::to_string(worker.min) + " now, and needs nobody beyond";
  }
  if (wish + workers_together(job) > std::min(worker.max, kMaxWorkers)) {
    return "spec.worker.max is " + std::to_string(worker.max) + " now";
  }
  return "no node with workers of the job is being emptied any more";
}

std::string drain_text(const JobSnapshot& snapshot, const GangView& gang,
                       const api::Condition* before) {
  const auto& worker = snapshot.job.spec.worker;
  if (has_spare(snapshot, gang)) {
    const std::string emptied = emptied_text(snapshot, emptied_for(snapshot, gang, seconds(0)));
    const char* until =
        is_spare_idle(snapshot, gang) ? "for a moment longer" : "until all others train";
    return "; " + slots_text(slots_beyond(snapshot, gang)) + " beyond spec.worker.count " +
           (emptied.empty() ? until : "while " + emptied);
  }
  // A new leader counts anew; it need not say anew what is said.
  const bool is_said = before != nullptr && before->message.find(kWaits) != std::string::npos;
  const std::string emptied = emptied_text(
      snapshot, emptied_for(snapshot, gang, is_said ? seconds(0) : words::kCordonedFor));
  const bool waits =
      has_budget(snapshot.job) && !emptied.empty() &&
      gang.count(MemberState::kRunning) <= worker.min + not_yet_members(snapshot, gang);
  if (!waits) return "";
  const std::string head = "; " + emptied + ", " + std::string(kWaits) +
                           ", because no more than spec.worker.min (" + std::to_string(worker.min) +
                           ") run: ";
  if (std::string said = said_before(before, head); !said.empty()) return said;
  const std::string why = why_no_spare(snapshot, gang);
  if (why.empty()) return "";
  const bool can_be_less = worker.min > workers_together(snapshot.job);
  return head + why + std::string(kHelps) +
         (can_be_less ? "set spec.worker.min lower or spec.suspend to true"
                      : "set spec.suspend to true");
}

void tell_drain(Plan& plan, const JobSnapshot& snapshot) {
  const auto text_of = [](const api::TrainingJobStatus& status) {
    const auto* running = status.condition(std::string(words::kRunning));
    const auto at = running == nullptr ? std::string::npos : running->message.find(kWaits);
    if (at == std::string::npos) return std::string();
    // From the node's name on.
    const auto begin = running->message.rfind("; ", at);
    return running->message.substr(begin == std::string::npos ? 0 : begin + 2);
  };
  for (const auto& action : plan.actions) {
    const auto* patch = std::get_if<PatchStatus>(&action);
    if (patch == nullptr) continue;
    const std::string text = text_of(patch->status);
    if (text.empty() || !text_of(snapshot.job.status).empty()) return;
    add_event(plan, snapshot, "Warning", contract::reason::kDrainWaits, text);
    return;
  }
}

}  // namespace muster::core
