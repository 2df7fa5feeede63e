#include "tests/sim/crews.h"

#include <algorithm>

namespace muster::sim {
namespace {

const api::Pod* find(const api::TrainingJob& job, const std::vector<api::Pod>& pods, int slot,
                     int attempt) {
  const std::string name = api::pod_name(job, slot, attempt);
  for (const auto& pod : pods) {
    if (pod.meta.name == name && pod.phase == api::PodPhase::kRunning) return &pod;
  }
  return nullptr;
}

std::vector<int> slots_of(const std::map<int, int>& members) {
  std::vector<int> slots;
  for (const auto& [slot, attempt] : members) slots.push_back(slot);
  return slots;
}

}  // namespace

void Crews::advance(const api::TrainingJob& job, const std::vector<api::Pod>& pods,
                    const Reaches& reaches) {
  const api::TrainingJobStatus& status = job.status;
  Crew& crew = crews_[job.meta.uid];
  if (status.start_attempt >= 0 && status.start_attempt != crew.start) {
    crew = Crew{status.start_attempt, 0, false, {}, {}};
  }
  const std::size_t before = crew.members.size();
  std::map<int, int> seen;
  for (const auto& [slot, attempt] : crew.members) {
    const api::Pod* pod = find(job, pods, slot, attempt);
    if (pod == nullptr) {
      crew.changes.push_back({crew.epoch + 1, 1, "Lost", slot, "it ended", 3});
    } else if (reaches(*pod)) {
      seen.emplace(slot, attempt);
    }
  }
  std::map<int, int> there;
  for (const auto& [slot, attempt] : crew.members) {
    if (find(job, pods, slot, attempt) != nullptr) there.emplace(slot, attempt);
  }
  if (there != crew.members) ++crew.epoch;
  crew.members = there;
  // The silent ones are left behind by a majority; without one the witness is asked.
  if (seen.size() < there.size() && 2 * seen.size() > there.size()) {
    crew.members = seen;
    ++crew.epoch;
  }
  if (crew.members.empty() && before > 0) crew.lost = true;
  if (crew.lost || status.placement.empty()) return;
  if (crew.members.empty()) {
    for (const auto& placement : status.placement) {
      if (placement.attempt != crew.start) continue;
      if (find(job, pods, placement.slot, placement.attempt) == nullptr) return;
      crew.members.emplace(placement.slot, placement.attempt);
    }
    crew.epoch = status.membership_epoch;
    return;
  }
  for (const auto& placement : status.placement) {
    const api::Pod* pod = find(job, pods, placement.slot, placement.attempt);
    if (crew.members.contains(placement.slot) || pod == nullptr || !reaches(*pod)) continue;
    crew.members.emplace(placement.slot, placement.attempt);
    crew.changes.push_back({++crew.epoch, 1, "Joined", placement.slot, "", 3});
    ++joins_;
    return;
  }
}

bool Crews::is_member(const std::string& uid, const api::Pod& pod) const {
  const auto crew = crews_.find(uid);
  if (crew == crews_.end()) return false;
  const auto found = crew->second.members.find(pod.slot());
  return found != crew->second.members.end() && found->second == pod.attempt();
}

void Crews::tell(ProgressReport& report, const api::Pod& pod, const std::string& uid) {
  if (!is_member(uid, pod)) return;
  Crew& crew = crews_.at(uid);
  report.membership_epoch = crew.epoch;
  report.members = slots_of(crew.members);
  report.changes = crew.changes;
  if (crew.changes.size() > 4) crew.changes.erase(crew.changes.begin());
}

std::optional<WitnessRequest> Crews::question(const api::TrainingJob& job,
                                              const std::vector<api::Pod>& pods,
                                              const Reaches& reaches, bool other_side) {
  const auto found = crews_.find(job.meta.uid);
  if (found == crews_.end() || found->second.members.empty()) return std::nullopt;
  const Crew& crew = found->second;
  WitnessRequest request;
  request.job = job.meta.key().text();
  request.epoch = crew.epoch;
  request.next_epoch = crew.epoch + 1;
  request.from_members = slots_of(crew.members);
  for (const auto& [slot, attempt] : crew.members) {
    const api::Pod* pod = find(job, pods, slot, attempt);
    if (pod == nullptr || reaches(*pod) == other_side) continue;
    request.members.push_back(slot);
    request.slot = slot;
    request.attempt = attempt;
  }
  // Whoever sees a majority does not ask.
  if (request.members.empty() || 2 * request.members.size() > crew.members.size()) {
    return std::nullopt;
  }
  return request;
}

void Crews::go_on(const std::string& uid, const WitnessRequest& request) {
  Crew& crew = crews_[uid];
  if (crew.epoch != request.epoch) return;
  crew.epoch = request.next_epoch;
  std::erase_if(crew.members, [&](const auto& one) {
    return std::find(request.members.begin(), request.members.end(), one.first) ==
           request.members.end();
  });
}

}  // namespace muster::sim
