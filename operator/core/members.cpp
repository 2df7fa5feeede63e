#include "operator/core/members.h"

#include <algorithm>

namespace muster::core {
namespace {

/// A change of membership every second would take twelve days to come so far.
constexpr std::int64_t kEpochLeapMost = 1'000'000;

}  // namespace

bool is_among(const std::vector<int>& slots, int slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

const ProgressReport* report_of(const JobSnapshot& snapshot, const Member& member) {
  const auto found = snapshot.reports.find(member.placement.slot);
  if (found == snapshot.reports.end()) return nullptr;
  return found->second.attempt == member.placement.attempt ? &found->second : nullptr;
}

bool is_member(const JobSnapshot& snapshot, const Member& member) {
  if (member.placement.member) return true;
  const ProgressReport* report = report_of(snapshot, member);
  return report != nullptr && report->membership_epoch > 0 &&
         is_among(report->members, member.placement.slot);
}

bool is_named(const JobSnapshot& snapshot, const GangView& gang, const Member& member) {
  const ProgressReport* own = report_of(snapshot, member);
  const bool has_said = own != nullptr && own->membership_epoch > 0;
  if (has_said || member.placement.replacements > 0) return false;
  const std::int64_t newest = newest_epoch(snapshot, gang);
  return std::any_of(gang.members.begin(), gang.members.end(), [&](const Member& other) {
    const ProgressReport* report = report_of(snapshot, other);
    return report != nullptr && is_member(snapshot, other) && report->membership_epoch == newest &&
           is_among(report->members, member.placement.slot);
  });
}

bool trains_on(const JobSnapshot& snapshot, const GangView& gang) {
  return snapshot.job.spec.training &&
         std::any_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
           return member.state == MemberState::kRunning && is_member(snapshot, member);
         });
}

bool is_credible(const JobSnapshot& snapshot, std::int64_t epoch) {
  return epoch - snapshot.job.status.membership_epoch <= kEpochLeapMost;
}

std::int64_t newest_epoch(const JobSnapshot& snapshot, const GangView& gang) {
  std::int64_t newest = snapshot.job.status.membership_epoch;
  for (const auto& member : gang.members) {
    const ProgressReport* report = report_of(snapshot, member);
    if (report == nullptr || !is_credible(snapshot, report->membership_epoch)) continue;
    newest = std::max(newest, report->membership_epoch);
  }
  return newest;
}

std::int64_t next_epoch(const JobSnapshot& snapshot, const GangView& gang) {
  api::TrainingJobStatus status;
  status.membership_epoch = newest_epoch(snapshot, gang);
  return next_epoch(status);
}

}  // namespace muster::core
