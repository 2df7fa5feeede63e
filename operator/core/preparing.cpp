#include "operator/core/preparing.h"

#include <algorithm>

#include "operator/core/facts.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

constexpr std::string_view kInPreparation = " waits: its pod has been in preparation on node ";

bool is_preparing(const Member& member) {
  return member.state == MemberState::kPending && !member.pod->node_name.empty() &&
         member.pod->reason.empty();
}

/// Without how long it has taken: words that change would be a write each time.
std::string text_of(const Member& member) {
  return "worker " + std::to_string(member.placement.slot) + std::string(kInPreparation) +
         member.pod->node_name + " for " + std::to_string(words::kPreparingMost.count()) +
         " s and more; kubectl describe pod " + member.pod->meta.name + " says why";
}

}  // namespace

const Member* last_preparing(const GangView& gang) {
  const auto last = std::find_if(gang.members.rbegin(), gang.members.rend(), is_preparing);
  return last == gang.members.rend() ? nullptr : &*last;
}

std::string preparing_text(const JobSnapshot& snapshot, const GangView& gang,
                           const api::Condition* said) {
  if (said != nullptr && said->message.find(kInPreparation) != std::string::npos) {
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

}  // namespace muster::core
