// Whose the claims of checkpoints are, from event to event. One claim is one job's until that is
// over: it is mounted as a whole, so jobs with other paths write the same files. Each job is told
// when it changes; one without a claim costs nothing.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "operator/api/training_job.h"

namespace muster::core {

/// What keeps a claim for its job, the strongest first.
enum class ClaimHold {
  kWorkers,   ///< it has places, or pods that may still write
  kRestarts,  ///< it is between two attempts of one run
  kTrained,   ///< it has run, and goes on from what it saved: it was preempted, or suspended
  kWaits,     ///< it has never run: nothing does
};

/// A job and the claim that its checkpoints are on.
struct ClaimUse {
  api::ObjectKey job;
  std::string uid;
  std::string claim;
  ClaimHold hold = ClaimHold::kWaits;
  std::optional<WallTime> created{};
  bool is_suspended = false;
  /// It starts no gang on the claim any more: the job is over, gone, or names another one.
  bool is_over = false;
  bool operator==(const ClaimUse&) const = default;
};

/// As its spec and status tell; nothing: it names no claim, or another controller runs it.
std::optional<ClaimUse> claim_use_of(const api::TrainingJob& job);

/// Why a job does not start whose claim that one has, and what helps.
std::string in_use_text(const ClaimUse& other);

/// Threads: one.
class ClaimUses {
 public:
  /// Of one claim so many jobs are looked at again when another's use of it changes. The others say
  /// what they said, and are looked at when all jobs are.
  static constexpr std::size_t kToldMost = 64;

  /// The uses of all jobs that have, or had, this name; one for each uid and claim. Returns the
  /// jobs that must hear of it.
  std::vector<api::ObjectKey> take(const api::ObjectKey& job, std::vector<ClaimUse> uses);
  /// As taken last.
  const std::vector<ClaimUse>& of(const api::ObjectKey& job) const;
  /// Whom a job that has no places waits for; nullptr: nobody. Of those that have run and have no
  /// places the first is let start: by what it has on the claim, then by its age. Those that have
  /// never run wait for none of each other: whoever is placed first has the claim. Holds until the
  /// next take().
  const ClaimUse* before(const api::TrainingJob& job) const;

 private:
  struct Earlier {
    bool operator()(const ClaimUse& a, const ClaimUse& b) const;
  };
  using Claim = std::pair<std::string, std::string>;  ///< namespace and name

  std::map<Claim, std::set<ClaimUse, Earlier>> by_claim_;
  std::map<api::ObjectKey, std::vector<ClaimUse>> by_job_;
};

}  // namespace muster::core
