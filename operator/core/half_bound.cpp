#include "operator/core/half_bound.h"

#include "operator/core/copies.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

bool is_on_node(const Member& member) {
  return member.state == MemberState::kRunning ||
         (member.state == MemberState::kPending && !member.pod->node_name.empty());
}

bool is_refused_anywhere(const Member& member) {
  return member.state == MemberState::kPending && member.placement.node.empty() &&
         is_unbound(*member.pod);
}

seconds hold_most(const api::TrainingJob& job) {
  const std::uint64_t drawn =
      hash_text(job.meta.uid + "/" + std::to_string(job.status.start_attempt));
  const auto spread = static_cast<std::uint64_t>(words::kHalfBoundSpread.count());
  return words::kHalfBoundMost + seconds(static_cast<std::int64_t>(drawn % spread));
}

}  // namespace

std::optional<int> half_bound(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  if (is_in_kueue(job) || trains_on(snapshot, gang)) return std::nullopt;
  int on_nodes = 0, refused = 0;
  for (const auto& member : gang.members) {
    if (member.state == MemberState::kSucceeded) return std::nullopt;
    if (is_on_node(member)) ++on_nodes;
    if (is_refused_anywhere(member)) ++refused;
  }
  if (on_nodes == 0 || refused == 0) return std::nullopt;
  // torchrun begins with the least number of its range; our own workers wait for all of a start.
  const bool is_enough = !job.spec.training && job.spec.worker.min < job.spec.worker.max &&
                         on_nodes >= job.spec.worker.min;
  return is_enough ? std::nullopt : std::optional(on_nodes);
}

std::optional<LetGo> let_go(const JobSnapshot& snapshot, const GangView& gang) {
  const auto left = until_let_go(snapshot, gang);
  if (!left || left->count() > 0) return std::nullopt;
  const auto on_nodes = half_bound(snapshot, gang);
  const api::TrainingJob& job = snapshot.job;
  LetGo decided;
  const int fits = *on_nodes - *on_nodes % workers_together(job);
  if (job.spec.training && fits >= std::max(1, job.spec.worker.min)) decided.fits = fits;
  decided.message = "the cluster's scheduler found nodes for " + std::to_string(*on_nodes) +
                    " of " + std::to_string(gang.members.size()) + " workers in " +
                    std::to_string(words::kHalfBoundMost.count()) + " s and more";
  for (const auto& member : gang.members) {
    if (!is_refused_anywhere(member)) continue;
    decided.message += " (worker " + std::to_string(member.placement.slot) + ": " +
                       head_of(member.pod->reason, 128) + ": " + head_of(member.pod->message, 512) +
                       ")";
    break;
  }
  decided.message +=
      decided.fits > 0
          ? "; the gang starts with those"
          : "; they let go of these, so that others can have them, and the gang is tried again "
            "after " +
                std::to_string(words::kLetGoPause.count()) + " s";
  return decided;
}

std::optional<seconds> until_let_go(const JobSnapshot& snapshot, const GangView& gang) {
  if (!half_bound(snapshot, gang)) return std::nullopt;
  return hold_most(snapshot.job) - lasted(snapshot, facts::half_bound(snapshot.job.status));
}

std::optional<seconds> until_tried_again(const JobSnapshot& snapshot) {
  const auto* admitted = snapshot.job.status.condition(std::string(words::kAdmitted));
  const bool has_let_go =
      admitted != nullptr && admitted->status == "False" &&
      (admitted->reason == words::kHalfBound || admitted->reason == words::kNotStarted);
  if (!has_let_go) return std::nullopt;
  const seconds left =
      words::kLetGoPause - lasted(snapshot, facts::waiting_words(admitted->message));
  return left.count() > 0 ? std::optional(left) : std::nullopt;
}

}  // namespace muster::core
