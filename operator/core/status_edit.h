// Small edits of a job's status, and the merge patch between two statuses.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/core/reconcile.h"

namespace muster::core {

struct ConditionEdit {
  std::string_view type;
  bool value = false;
  std::string_view reason;
  std::string message;
  bool even_if_new = false;  ///< write False although the condition was never there
};

/// Sets a condition; its transition time moves only when the value flips. A condition that is not
/// there and would be False is left out, so that status says only what happened.
void set_condition(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                   const ConditionEdit& edit);

/// What a condition that is True says from `head` on, where it is said last: what workers say
/// stands before it, and may be the same. Empty: it says nothing of the kind, or had more to say
/// than there is room for, and does not end as it would have.
std::string said_from(const api::Condition* condition, const std::string& head);

/// Kubernetes stores whole seconds; anything finer would never compare equal again.
WallTime whole_seconds(WallTime time);

/// "running/target".
std::string workers_text(int running, int target);

/// RFC 7386: what turns `from` into `to`; null deletes.
Json merge_patch(const Json& from, const Json& to);

/// A plan that writes `status` and says `events` about it; empty when nothing differs.
Plan write_status(const JobSnapshot& snapshot, api::TrainingJobStatus status, Pass pass);

/// Adds an event about the job. The name is a function of the job and of what is said, so that the
/// same news meets the event that told of it before.
void add_event(Plan& plan, const JobSnapshot& snapshot, std::string_view type,
               std::string_view reason, const std::string& note);

/// What is left of spec.activeDeadlineSeconds: what the job has run since its start, and before it
/// in runs that others put an end to, is gone. Absent: it has no deadline.
std::optional<seconds> deadline_left(const api::TrainingJob& job, WallTime now);

/// The gang gives its places up to start again, and holds none of them; status remembers where it
/// stood.
void give_up_places(api::TrainingJobStatus& status);

/// The gang gives its places up, for others and not for good: its deadline stands still and counts
/// on with the next start.
void stop_clock(api::TrainingJobStatus& status, WallTime now);

}  // namespace muster::core
