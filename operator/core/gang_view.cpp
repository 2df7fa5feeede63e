#include "operator/core/gang_view.h"

#include <algorithm>
#include <charconv>

#include "common/contract.h"
#include "common/json.h"
#include "operator/core/facts.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

MemberState state_of(const api::Pod& pod, const JobSnapshot& snapshot) {
  if (pod.phase == api::PodPhase::kSucceeded) {
    return pod.termination && pod.termination->exit_code != 0 ? MemberState::kFailed
                                                              : MemberState::kSucceeded;
  }
  if (pod.phase == api::PodPhase::kFailed) return MemberState::kFailed;
  // A pod whose container has ended, while its phase lags behind, has ended.
  if (pod.termination) {
    return pod.termination->exit_code == 0 ? MemberState::kSucceeded : MemberState::kFailed;
  }
  if (pod.meta.deletion_time) return MemberState::kLost;
  if (is_lost_node(snapshot, pod.node_name)) return MemberState::kLost;
  return pod.phase == api::PodPhase::kRunning ? MemberState::kRunning : MemberState::kPending;
}

bool by_name(const api::Pod* a, const api::Pod* b) {
  return std::tie(a->meta.name, a->meta.uid) < std::tie(b->meta.name, b->meta.uid);
}

/// Attempts are ints on the wire; a status that somebody else wrote must not overflow them.
constexpr std::int64_t kMostEpoch = 2'000'000'000;

/// Slot and attempt of a pod of the job, from its name: labels can be edited, names cannot.
struct Seat {
  int slot = -1, attempt = -1;
};

std::optional<Seat> seat_of(const api::Pod& pod, const std::string& stem) {
  const std::string& name = pod.meta.name;
  if (!name.starts_with(stem)) return std::nullopt;
  Seat seat;
  const char* end = name.data() + name.size();
  const auto [dash, error] = std::from_chars(name.data() + stem.size(), end, seat.slot);
  if (error != std::errc() || dash == end || *dash != '-') return std::nullopt;
  const auto [stop, wrong] = std::from_chars(dash + 1, end, seat.attempt);
  const bool is_number = wrong == std::errc() && stop == end && seat.slot >= 0;
  // Nobody gives out more: whoever made it did not take its number from an epoch.
  if (!is_number || seat.attempt < 0 || seat.attempt > kMostEpoch) return std::nullopt;
  return seat;
}

int slot_of_member(const Member& member) { return member.placement.slot; }

/// Attempts before this one are leftovers; without a placement, all attempts given out so far.
std::int64_t first_live_attempt(const GangView& view, std::int64_t epoch) {
  std::int64_t least = epoch;
  for (const auto& member : view.members) {
    least = std::min<std::int64_t>(least, member.placement.attempt);
  }
  return least;
}

}  // namespace

int GangView::count(MemberState state) const {
  return static_cast<int>(std::count_if(members.begin(), members.end(),
                                        [&](const Member& m) { return m.state == state; }));
}

const Member* GangView::find(int slot) const {
  const auto found = std::ranges::lower_bound(members, slot, {}, slot_of_member);
  return found == members.end() || found->placement.slot != slot ? nullptr : &*found;
}

bool GangView::all(MemberState state) const {
  return !members.empty() && count(state) == static_cast<int>(members.size());
}

bool is_lost_node(const JobSnapshot& snapshot, const std::string& node) {
  if (node.empty()) return false;
  if (snapshot.gone_nodes.contains(node)) return true;
  return snapshot.not_ready_nodes.contains(node) &&
         lasted(snapshot, facts::not_ready(node)) >= words::kNodeLostAfter;
}

seconds until_overdue(const api::Pod& pod, const JobSnapshot& snapshot) {
  const seconds grace(std::clamp<std::int64_t>(pod.meta.deletion_grace_seconds, 0, 1LL << 31));
  return grace + words::kOverdue - lasted(snapshot, facts::leaving(pod));
}

bool must_wait_for(const api::Pod& pod, const JobSnapshot& snapshot) {
  if (is_lost_node(snapshot, pod.node_name)) return false;
  // It never ran and never will; it may be long until those who have to have let it go.
  if (pod.held_by_kueue && pod.meta.deletion_time) return false;
  return !pod.meta.deletion_time || until_overdue(pod, snapshot).count() > 0;
}

int slot_of(const api::Pod& pod, const api::TrainingJob& job) {
  const auto seat = seat_of(pod, api::service_name(job) + "-");
  return seat ? seat->slot : -1;
}

bool is_owned(const api::Pod& pod, const api::TrainingJob& job) {
  return pod.is_of_job() && !job.meta.uid.empty() && pod.meta.controller()->uid == job.meta.uid &&
         pod.meta.namespace_name == job.meta.namespace_name;
}

bool may_have_pod(const api::TrainingJob& job, const api::SlotPlacement& place) {
  const api::WorkerSpec& worker = job.spec.worker;
  const int most = std::clamp(std::max(worker.count, worker.max), 1, kMaxWorkers);
  // The pod of an attempt that no epoch gave out would never be known again.
  return place.slot < most && place.attempt <= kMostEpoch;
}

GangView view_gang(const JobSnapshot& snapshot) {
  const api::TrainingJobStatus& status = snapshot.job.status;
  GangView view;
  std::set<int> slots;
  for (const auto& placement : status.placement) {
    // Status may hold anything: a slot is a member once, and only if pods can carry its number.
    if (placement.slot < 0 || placement.attempt < 0 || !slots.insert(placement.slot).second) {
      continue;
    }
    const MemberState without_pod =
        placement.ended ? MemberState::kSucceeded : MemberState::kMissing;
    view.members.push_back({placement, without_pod, nullptr});
  }
  std::ranges::sort(view.members, {}, slot_of_member);
  const std::int64_t live_attempt = first_live_attempt(view, status.membership_epoch);
  const std::string stem = api::service_name(snapshot.job) + "-";
  for (const auto& pod : snapshot.pods) {
    if (!is_owned(pod, snapshot.job)) continue;
    if (!pod.ended()) view.owned.push_back(&pod);
    const auto seat = seat_of(pod, stem);
    if (!seat) continue;
    const auto [slot, attempt] = *seat;
    view.newest_attempt = std::max(view.newest_attempt, attempt);
    const auto at = std::ranges::lower_bound(view.members, slot, {}, slot_of_member);
    Member* const member = at == view.members.end() || at->placement.slot != slot ? nullptr : &*at;
    if (member != nullptr && member->placement.attempt == attempt) {
      const bool first = member->pod == nullptr || by_name(&pod, member->pod);
      if (!first) continue;
      member->pod = &pod;
      member->state = state_of(pod, snapshot);
    } else if (attempt < (member != nullptr ? member->placement.attempt : live_attempt)) {
      view.stale.push_back(&pod);
    } else if (attempt >= status.membership_epoch) {
      view.job_is_old = true;
    } else {
      view.stale.push_back(&pod);
    }
  }
  // Worker 0 last: asked to stop before the others, it would leave them, and its files, alone.
  std::sort(view.stale.begin(), view.stale.end(), [](const api::Pod* a, const api::Pod* b) {
    const bool is_a_last = a->slot() == 0, is_b_last = b->slot() == 0;
    return is_a_last != is_b_last ? is_b_last : by_name(a, b);
  });
  std::sort(view.owned.begin(), view.owned.end(), by_name);
  return view;
}

std::set<std::string> unwanted_pods(const JobSnapshot& snapshot) {
  const GangView gang = view_gang(snapshot);
  std::set<std::string> uids;
  const auto add = [&](const std::vector<const api::Pod*>& pods) {
    for (const api::Pod* pod : pods) {
      if (!pod->meta.deletion_time) uids.insert(pod->meta.uid);
    }
  };
  add(gang.stale);
  if (snapshot.job.status.finished()) add(gang.owned);
  return uids;
}

std::int64_t next_epoch(const api::TrainingJobStatus& status) {
  return std::clamp<std::int64_t>(status.membership_epoch, 0, kMostEpoch) + 1;
}

const api::Termination* failed_init_container(const api::Pod& pod) {
  // Where the cluster ended the pod it says why, and the container's own code is no verdict.
  const bool failed = pod.phase == api::PodPhase::kFailed && !pod.termination && pod.init_failure &&
                      pod.reason.empty();
  return failed ? &*pod.init_failure : nullptr;
}

namespace {

std::string text_in(const Json& line, const char* field) {
  if (!line.is_object()) return {};
  const auto found = line.find(field);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The last word of a worker of ours. Where it could leave none, the cluster gives the end of its
/// log in its place: the newest error there says why.
std::string engine_words(const std::string& message) {
  std::string_view rest = message;
  while (!rest.empty()) {
    const std::size_t begin = rest.rfind('\n') + 1;  // without one, npos + 1 is 0
    const auto line = parse_json(rest.substr(begin));
    rest = rest.substr(0, begin == 0 ? 0 : begin - 1);
    if (!line || text_in(*line, "level") != "error") continue;
    std::string why = text_in(*line, "error");
    if (why.empty()) why = text_in(*line, "message");
    if (!why.empty()) return why;
  }
  return message;
}

}  // namespace

api::FailureStatus failure_of(const Member& member, const api::TrainingJob& job) {
  api::FailureStatus failure;
  failure.slot = member.placement.slot;
  failure.attempt = member.placement.attempt;
  failure.node = member.placement.node;
  failure.exit_code = contract::exit_code::kInternal;
  failure.reason = std::string(words::kWorkerLost);
  if (member.pod == nullptr) return failure;
  const api::Pod& pod = *member.pod;
  if (!pod.node_name.empty()) failure.node = pod.node_name;
  if (member.state != MemberState::kFailed) {
    // Evicted, preempted: the cluster says why it took the pod away.
    if (pod.meta.deletion_time && is_reason(pod.reason)) {
      failure.reason = pod.reason;
      failure.log_tail = tail_of(pod.message, words::kMaxLogTailBytes);
    }
    return failure;
  }
  failure.reason = std::string(words::kError);
  const api::Termination* first = failed_init_container(pod);
  if (!pod.termination && first == nullptr) {
    if (is_reason(pod.reason)) failure.reason = pod.reason;
    failure.log_tail = tail_of(pod.message, words::kMaxLogTailBytes);
    return failure;
  }
  const api::Termination& end = first != nullptr ? *first : *pod.termination;
  failure.container = head_of(end.container, 63);
  failure.exit_code = end.exit_code;
  const bool is_engine = job.spec.training && first == nullptr;
  failure.log_tail =
      tail_of(is_engine ? engine_words(end.message) : end.message, words::kMaxLogTailBytes);
  if (is_engine) failure.reason = std::string(contract::reason_of_exit_code(end.exit_code));
  if (failure.reason == words::kError && (end.signal != 0 || end.exit_code > 128)) {
    failure.reason = std::string(words::kSignaled);
  }
  if (end.reason == "OOMKilled") failure.reason = std::string(words::kOutOfMemory);
  return failure;
}

}  // namespace muster::core
