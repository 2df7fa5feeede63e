#include "cli/job_state.h"

#include "common/contract.h"

namespace muster::cli {
namespace {

using api::Condition;

const Condition* if_true(const api::TrainingJobStatus& status, const char* type) {
  const Condition* condition = status.condition(type);
  return condition != nullptr && condition->status == "True" ? condition : nullptr;
}

/// The failing worker's own code where it has one that this table knows.
int exit_code_of_failure(const api::TrainingJob& job, const Condition& failed) {
  if (failed.reason == contract::reason_of_exit_code(contract::exit_code::kDeadline)) {
    return contract::exit_code::kDeadline;
  }
  if (failed.reason == contract::reason::kInvalidSpec) return contract::exit_code::kInvalidSpec;
  if (job.spec.training && job.status.failure) {
    const int code = job.status.failure->exit_code;
    const bool is_typed = code > 0 && contract::reason_of_exit_code(code) != "Error";
    const bool is_of_run = code == contract::exit_code::kInterrupted;
    if (is_typed && !is_of_run) return code;
  }
  return contract::exit_code::kFailedJob;
}

/// Why the only job of a machine waits: nothing will ever make room.
const Condition* never_fits(const api::TrainingJobStatus& status) {
  const Condition* admitted = status.condition("Admitted");
  if (admitted == nullptr || admitted->status == "True") return nullptr;
  const bool waits = admitted->reason == contract::reason::kGangWaiting ||
                     admitted->reason == "NameConflict" || admitted->reason == "CreateFailed";
  return waits ? admitted : nullptr;
}

}  // namespace

std::optional<Ending> ending_of(const api::TrainingJob& job) {
  const api::TrainingJobStatus& status = job.status;
  if (const Condition* complete = if_true(status, "Complete")) {
    return Ending{"Complete", complete->message, contract::exit_code::kComplete};
  }
  if (const Condition* failed = if_true(status, "Failed")) {
    return Ending{"Failed", failed->message, exit_code_of_failure(job, *failed)};
  }
  if (if_true(status, "Suspended") != nullptr) {
    return Ending{"Interrupted", "stopped by an interrupt", contract::exit_code::kInterrupted};
  }
  if (const Condition* waiting = never_fits(status)) {
    return Ending{"Failed", "the job cannot start on this machine: " + waiting->message,
                  contract::exit_code::kFailedJob};
  }
  return std::nullopt;
}

std::vector<std::string> changes(const api::TrainingJobStatus& before,
                                 const api::TrainingJobStatus& now) {
  std::vector<std::string> lines;
  for (const char* type : {"Admitted", "Restarting", "Running"}) {
    const Condition* is = now.condition(type);
    const Condition* was = before.condition(type);
    if (is == nullptr || is->message.empty() || is->status != "True") continue;
    if (was != nullptr && was->status == is->status && was->message == is->message) continue;
    lines.push_back(std::string(type) + ": " + is->message);
  }
  return lines;
}

}  // namespace muster::cli
