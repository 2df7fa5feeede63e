#include "operator/core/ended_workers.h"

#include <algorithm>

#include "operator/core/facts.h"
#include "operator/core/words.h"

namespace muster::core {

bool is_end_untold(const JobSnapshot& snapshot, const Member& member) {
  return !snapshot.job.spec.training && member.state == MemberState::kSucceeded &&
         !member.placement.ended;
}

std::optional<seconds> until_ends_stored(const JobSnapshot& snapshot, const GangView& gang) {
  std::optional<seconds> least;
  for (const Member& member : gang.members) {
    if (!is_end_untold(snapshot, member)) continue;
    const seconds left = words::kEndStoredAfter - lasted(snapshot, facts::ended(member.placement));
    least = std::min(least.value_or(left), left);
  }
  return least;
}

void store_ends(api::TrainingJobStatus& status, const JobSnapshot& snapshot, const GangView& gang) {
  const auto left = until_ends_stored(snapshot, gang);
  if (!left || left->count() > 0) return;
  for (auto& placement : status.placement) {
    const Member* member = gang.find(placement.slot);
    if (member != nullptr && is_end_untold(snapshot, *member)) placement.ended = true;
  }
}

}  // namespace muster::core
