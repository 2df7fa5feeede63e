// Gangs that change while they train: who is down, who is on the way out, how many members there
// are, and in which words status says so. Which of it is acted on is decided in elastic_policy.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// What becomes of a slot while the others train on.
enum class Fate {
  kStays,    ///< trains, or is on its way in
  kLeaving,  ///< a member that somebody asked to leave: it hands its work over
  kDown,     ///< ended, lost or gone: another worker takes the slot
  kRefused,  ///< the cluster's scheduler does not let it onto its node
  kGivenUp,  ///< it came to those who train, and its node did not get its pod started in time
};

Fate fate_of(const JobSnapshot& snapshot, const Member& member);

/// spec.worker.count within min and max.
int counted_workers(const api::TrainingJob& job);

/// So many, and with growsTo: Max those that it has grown to beyond them.
int wished_workers(const api::TrainingJob& job);

/// To so many it may grow where there is room that nobody waits for; at least the wish.
int most_workers(const api::TrainingJob& job);

/// Whether the gang can be changed member by member now: the engine's workers train, none has ended
/// its work, and none has failed in a way that fails the job.
bool is_elastic(const JobSnapshot& snapshot, const GangView& gang);

/// Some members have ended with 0 and others still train: they end within moments, and nothing else
/// is decided until they have.
bool is_ending(const JobSnapshot& snapshot, const GangView& gang);

/// Slots that need a place now, ascending: those to be replaced; where there are none the new ones
/// up to the wish, and where there are none those up to the most, or a spare's, which could use
/// one.
std::vector<int> slots_to_place(const JobSnapshot& snapshot, const GangView& gang);

/// schedule's places for exactly these slots; nullptr when it was asked something else, or nothing.
const GangVerdict* verdict_for(const JobSnapshot& snapshot, const std::vector<int>& slots);

/// Slots that nobody has had yet and that have a place in schedule's verdict, ascending; only those
/// that do not leave a copy of the model without a part.
std::vector<int> slots_to_grow_into(const JobSnapshot& snapshot, const GangView& gang);

/// How long until the gang may grow into the room there is; absent when it may now. A changed count
/// is followed at once, and so is a cordon; room that opens later only when it lasts.
std::optional<seconds> until_growth(const JobSnapshot& snapshot, const GangView& gang);

/// Why those have no place that asked for one; empty where it is on its way to them.
std::string why_homeless(const api::TrainingJob& job, const GangVerdict& verdict);

/// "workers 2, 3".
std::string slots_text(const std::vector<int>& slots);

/// How long until a slot that failed again may have its next attempt; absent when it may now.
std::optional<seconds> until_replacement(const JobSnapshot& snapshot, const Member& member);

/// A replacement that ran so long is forgotten: the next failure counts as the first.
bool is_forgiven(const JobSnapshot& snapshot, const Member& member);

/// Writes who is a member, how many there are, `more` and what the others wait for into `status`,
/// whose placement is that of `gang`.
void observe_members(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                     const GangView& gang, const std::string& more);

/// What the workers themselves wait for; empty = nothing.
std::string workers_wait_text(const JobSnapshot& snapshot, const GangView& gang);

/// Who holds the others up in every step, by how much and why; empty = nobody. Rounded, so that
/// figures that change a little are no news.
std::string slow_text(const JobSnapshot& snapshot, const GangView& gang);

/// Who has been busy with files for long, and where they are; empty = nobody.
std::string busy_text(const JobSnapshot& snapshot, const GangView& gang);

/// Why a pod that is to go is still there; empty = none was refused.
std::string undeleted_text(const JobSnapshot& snapshot);

/// Whether and from which checkpoint this gang went on, as it is said in a message; once it is said
/// it stays said, though the report that told it is a thing of memory.
inline constexpr std::string_view kRestored = "; training went on from the checkpoint of step ";
std::string restored_text(const JobSnapshot& snapshot, const GangView& gang,
                          const api::Condition* running);

}  // namespace muster::core
