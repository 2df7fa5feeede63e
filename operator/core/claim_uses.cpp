#include "operator/core/claim_uses.h"

#include <algorithm>
#include <tuple>

#include "common/contract.h"
#include "operator/core/volumes.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

/// Whether its workers ran, as far as anybody has seen. Of a gang whose pods were all refused, or
/// never came up, the claim has nothing.
bool workers_ran(const api::TrainingJobStatus& status) {
  return status.progress || status.checkpoint || !status.image_digest.empty();
}

ClaimHold hold_of(const api::TrainingJobStatus& status) {
  if (!status.placement.empty()) return ClaimHold::kWorkers;
  if (status.is_true(std::string(words::kRestarting))) return ClaimHold::kRestarts;
  return workers_ran(status) ? ClaimHold::kTrained : ClaimHold::kWaits;
}

}  // namespace

std::optional<ClaimUse> claim_use_of(const api::TrainingJob& job) {
  std::string claim = checkpoint_claim(job);
  if (claim.empty() || job.spec.managed_by != contract::kManagedBy) return std::nullopt;
  ClaimUse use{job.meta.key(), job.meta.uid, std::move(claim)};
  use.created = job.meta.creation_time;
  use.is_suspended = job.spec.suspend;
  use.is_over = job.status.finished() || job.meta.deletion_time;
  // The places of one that is over stay in its status.
  use.hold = use.is_over ? ClaimHold::kTrained : hold_of(job.status);
  return use;
}

std::string in_use_text(const ClaimUse& other) {
  const std::string job = "job " + other.job.name;
  if (other.is_over) {
    return "claim " + other.claim + " is still in use by workers of " + job +
           ", which is over, was deleted or names another claim now; this job starts when they "
           "have left";
  }
  // No more of what that one does: of words that change each is a write for all that wait.
  return "claim " + other.claim + " is for the checkpoints of " + job +
         (other.is_suspended ? ", which is suspended and not over" : ", which is not over") +
         "; two jobs would overwrite each other's there, so this one starts when that one is over "
         "or deleted, or once it names another claim (spec.training.checkpoint.volumeClaimName; "
         "another path on the same claim is no other place)";
}

bool ClaimUses::Earlier::operator()(const ClaimUse& a, const ClaimUse& b) const {
  return std::tie(a.hold, a.created, a.uid) < std::tie(b.hold, b.created, b.uid);
}

const std::vector<ClaimUse>& ClaimUses::of(const api::ObjectKey& job) const {
  static const std::vector<ClaimUse> kNone;
  const auto found = by_job_.find(job);
  return found == by_job_.end() ? kNone : found->second;
}

std::vector<api::ObjectKey> ClaimUses::take(const api::ObjectKey& job, std::vector<ClaimUse> uses) {
  const std::vector<ClaimUse>& before = of(job);
  if (before == uses) return {};
  std::set<Claim> touched;
  for (const ClaimUse& use : before) {
    const auto& claim = *touched.emplace(job.namespace_name, use.claim).first;
    by_claim_[claim].erase(use);
  }
  for (const ClaimUse& use : uses) {
    const auto& claim = *touched.emplace(job.namespace_name, use.claim).first;
    by_claim_[claim].insert(use);
  }
  if (uses.empty()) {
    by_job_.erase(job);
  } else {
    by_job_.insert_or_assign(job, std::move(uses));
  }
  std::vector<api::ObjectKey> told;
  for (const Claim& claim : touched) {
    const auto found = by_claim_.find(claim);
    std::size_t left = kToldMost;
    for (auto use = found->second.begin(); left > 0 && use != found->second.end(); ++use, --left) {
      if (use->job != job) told.push_back(use->job);
    }
    if (found->second.empty()) by_claim_.erase(found);
  }
  return told;
}

const ClaimUse* ClaimUses::before(const api::TrainingJob& job) const {
  const std::string claim = checkpoint_claim(job);
  if (claim.empty()) return nullptr;
  const auto found = by_claim_.find({job.meta.namespace_name, claim});
  if (found == by_claim_.end()) return nullptr;
  const auto& uses = found->second;
  const auto other = std::find_if(uses.begin(), uses.end(),
                                  [&](const ClaimUse& use) { return use.uid != job.meta.uid; });
  // Who waits may wait for good, suspended or refused: it keeps the claim from nobody.
  if (other == uses.end() || other->hold == ClaimHold::kWaits) return nullptr;
  // Its own last workers may still be leaving; others' are waited for all the same.
  const bool is_own_first = other != uses.begin();
  return is_own_first && other->hold != ClaimHold::kWorkers ? nullptr : &*other;
}

}  // namespace muster::core
