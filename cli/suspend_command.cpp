#include "cli/suspend_command.h"

#include "cli/job_story.h"
#include "cli/kube_query.h"
#include "cli/progress_view.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr milliseconds kBetweenSuspendLooks{1'000};

std::string message_of(const api::TrainingJob& job, const char* condition) {
  const api::Condition* found = job.status.condition(condition);
  return found == nullptr ? "" : found->message;
}

Error is_over(const api::TrainingJob& job) {
  const bool complete = job.status.is_true("Complete");
  return Error(ErrorCode::kInvalid, "the job " + job.meta.name +
                                        (complete ? " is complete" : " has failed") + ": " +
                                        message_of(job, complete ? "Complete" : "Failed"))
      .with_exit_code(codes::kFailedJob);
}

bool is_reached(const api::TrainingJob& job, const SuspendOptions& options) {
  // What the operator said before it saw the change is no answer to it.
  if (job.status.observed_generation < job.meta.generation) return false;
  return job.status.is_true(options.suspend ? "Suspended" : "Running");
}

Result<JobView> patch(Kubectl& kubectl, const SuspendOptions& options) {
  const Json body = {{"spec", {{"suspend", options.suspend}}}};
  MUSTER_ASSIGN_OR_RETURN(
      Json object, ask(kubectl, {"patch", kJobResource, options.job, "--type", "merge", "--patch",
                                 dump_json(body), "-o", "json"}));
  return read_job(std::move(object));
}

/// Until the job is where it shall be. Tells each new sentence of what it waits for.
Result<JobView> wait_for(Kubectl& kubectl, const SuspendOptions& options, JobView view) {
  const MonoTime due = kubectl.clock().mono_now() + options.timeout;
  std::string told, silence;  // silence: why the last look brought no answer
  while (!is_reached(view.job, options)) {
    // What had little left to do may be done between two looks.
    if (!options.suspend && view.job.status.is_true("Complete")) return view;
    if (view.job.status.finished()) return is_over(view.job);
    const JobStory story = tell_story(view.job, {}, kubectl.clock().wall_now());
    const std::string known = story.happened.empty() ? story.headline : story.happened.back();
    const std::string& now = silence.empty() ? known : silence;
    if (kubectl.clock().mono_now() >= due) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "the job " + options.job + " is not " +
                       (options.suspend ? "suspended" : "running") + " after " +
                       duration_text(static_cast<double>(options.timeout.count())) + ": " + now)
          .with_exit_code(codes::kDeadline);
    }
    if (now != told) tell(now);
    told = now;
    MUSTER_RETURN_IF_ERROR(pause_for(kubectl, kBetweenSuspendLooks));
    auto seen = get_job(kubectl, options.job);
    if (!seen && !is_momentary(seen.error())) return seen.error();
    silence = seen ? "" : seen.error().message();
    if (seen) view = std::move(*seen);
  }
  return view;
}

Status run(Kubectl& kubectl, const SuspendOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(JobView view, get_job(kubectl, options.job));
  if (view.job.status.finished()) return is_over(view.job);
  const bool was_so = view.job.spec.suspend == options.suspend;
  if (!was_so) {
    MUSTER_ASSIGN_OR_RETURN(view, patch(kubectl, options));
  }
  if (options.waits) {
    MUSTER_ASSIGN_OR_RETURN(view, wait_for(kubectl, options, std::move(view)));
  }
  const std::string job = "The job " + view.job.meta.key().text();
  const bool is_complete = view.job.status.is_true("Complete");
  const char* reached = options.suspend ? "Suspended" : is_complete ? "Complete" : "Running";
  const std::string message = message_of(view.job, reached);
  std::string said;
  if (options.waits) {
    said = job + (options.suspend ? " is suspended" : is_complete ? " is complete" : " runs");
    if (!message.empty()) said += ": " + message;
  } else if (was_so) {
    said = job + (options.suspend ? " was asked to stop before" : " is not suspended");
  } else {
    said = job + " " + (options.suspend ? stop_words(view.job) : "starts again");
  }
  print(printable(said) + ".\n");
  return {};
}

}  // namespace

int suspend_command(Kubectl& kubectl, const SuspendOptions& options) {
  const Status status = run(kubectl, options);
  return status ? 0 : tell_error(status.error());
}

}  // namespace muster::cli
