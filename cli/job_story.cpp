#include "cli/job_story.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "cli/job_table.h"
#include "cli/progress_view.h"
#include "common/contract.h"
#include "common/list_text.h"
#include "operator/api/kueue.h"

namespace muster::cli {
namespace {

using api::Condition;

struct Advice {
  std::string_view reason;
  std::string_view help;
};

constexpr std::string_view kMoreMemory =
    "Raise spec.worker.resources.memory, or lower spec.training.microBatchSize, which leaves the "
    "bits as they are, or set it where it is left out.";

constexpr std::array kFailureAdvice{
    Advice{"InvalidSpec", "Repair the field that the message names and apply the manifest again."},
    Advice{"DataInvalid",
           "Look at the data file that the message names: in the worker image "
           "relative paths start at /usr/share/muster."},
    Advice{"CheckpointCorrupt",
           "Give the job an empty claim (or another checkpoint.path), or put "
           "back a checkpoint from a backup: what lies there is damaged or "
           "of another job."},
    Advice{"NoCheckpoint",
           "Name a claim in spec.training.checkpoint.volumeClaimName, so that "
           "checkpoints outlive the workers."},
    Advice{"Numerics",
           "Try a smaller learning rate, and look for wrong values in the data; unless the worker "
           "says that it came again, it may have been a fault of the machine: try the same again."},
    Advice{"PeerLost", "Look at the log of the other worker, which was lost first: muster logs."},
    Advice{"OutOfMemory", kMoreMemory},
    Advice{"OOMKilled", kMoreMemory},
    Advice{"DeviceFailed", "Keep the job off that node (kubectl cordon), and look at its device."},
    Advice{"MemoryFaulty",
           "Keep the job off that node (kubectl cordon) and test its memory; with "
           "spec.training.checkpoint training goes back and on by itself."},
    Advice{"KeyRefused",
           "The operator's master key was replaced while the job trained, or another job has its "
           "addresses; all its workers get one key when it is suspended and resumed."},
    Advice{"NeedsSplit",
           "The whole model does not fit a process, and workers do not come in copies that would; "
           "make worker.count, min and max times worker.processes multiples of what fits, or give "
           "spec.worker.resources.memory."},
    Advice{"DiskFull",
           "Make room on the checkpoint's volume, or lower checkpoint.keep; the last "
           "whole checkpoint is still there. Where the message is of reading, look at the disk or "
           "the server of the file that it names."},
    Advice{"DeadlineExceeded", "Raise spec.activeDeadlineSeconds, or take it away."},
    Advice{"CpuOrContractRefused",
           "Use nodes with x86-64-v3 processors (spec.worker.nodeSelector) "
           "and workers of one version."},
    Advice{"Hung", "Look at the logs of all workers around that time: muster logs."},
    Advice{"WorkerLost", "Look at the node it ran on: kubectl describe node."},
    Advice{"RestartLimitReached",
           "Find the cause in the log (muster logs); spec.restart."
           "maxRestarts allows more tries."},
    Advice{"Usage", "Look at spec.worker.command, args and env: the program refuses them."},
    Advice{"Preempted", "It starts again when there is room."},
    Advice{"Error", "Look at the log of the worker that failed first: muster logs."},
    Advice{"WorkerFailed", "Look at the log of the worker that failed first: muster logs."},
};

struct PodAdvice {
  std::string_view reason;  ///< beginning of the kubelet's or scheduler's word
  std::string_view help;
};

constexpr std::array kPodAdvice{
    PodAdvice{"Unschedulable",
              "Free the resources that the scheduler names, ask for less in "
              "spec.worker.resources, or add nodes."},
    PodAdvice{"ErrImage",
              "Look at spec.worker.image, its tag, spec.worker.imagePullSecrets, and "
              "whether the node reaches the registry."},
    PodAdvice{"ImagePull",
              "Look at spec.worker.image, its tag, spec.worker.imagePullSecrets, and "
              "whether the node reaches the registry."},
    PodAdvice{"InvalidImageName", "Look at spec.worker.image: it can be no image's name."},
    PodAdvice{"CreateContainerConfigError",
              "Make the Secret or ConfigMap that the message names; "
              "spec.worker.env or a volume refers to it."},
    PodAdvice{"CreateContainerError", "Look at spec.worker.command and the image."},
    PodAdvice{"RunContainerError", "Look at spec.worker.command and the image."},
    PodAdvice{"Evicted",
              "The node was short of the resource that the message names: set "
              "spec.worker.resources to what a worker needs."},
    PodAdvice{"SchedulingGated", "Another controller holds the pods back until it lets them go."},
};

const Condition* if_true(const api::TrainingJobStatus& status, const char* type) {
  const Condition* condition = status.condition(type);
  return condition != nullptr && condition->status == "True" ? condition : nullptr;
}

std::string sentence(std::string text) {
  if (text.empty()) return text;
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  if (std::string_view(".!?").find(text.back()) == std::string_view::npos) text += '.';
  return text;
}

std::string since(const Condition& condition, WallTime now) {
  return age_text(condition.last_transition_time, now);
}

bool has_claim(const api::TrainingJob& job) {
  return job.spec.training && job.spec.training->checkpoint &&
         !job.spec.training->checkpoint->volume_claim_name.empty();
}

std::string took(const api::TrainingJob& job) {
  if (!job.status.start_time || !job.status.completion_time) return "";
  return duration_text(
      std::chrono::duration<double>(*job.status.completion_time - *job.status.start_time).count());
}

std::string restarts_words(int restarts) {
  if (restarts == 0) return "without a restart";
  return restarts == 1 ? "after 1 restart" : "after " + std::to_string(restarts) + " restarts";
}

std::string help_for(const api::TrainingJob& job, const api::FailureStatus& failure) {
  if (failure.container.empty()) return help_for_failure(failure.reason);
  if (!api::has_init_container(job.spec.worker, failure.container)) {
    return "Look at the log of init container " + failure.container +
           " (muster logs): a webhook of the cluster put it into the pods, and its owner knows why "
           "it fails.";
  }
  const std::string field = "spec.worker.initContainers, " + failure.container;
  return failure.reason == "OutOfMemory"
             ? "Raise resources.memory of the container in " + field + "."
             : "Look at the log of the container (" + field + "): muster logs.";
}

void tell_complete(JobStory& story, const api::TrainingJob& job, const Condition& complete,
                   WallTime now) {
  story.headline = "Complete, ended " + since(complete, now) + " ago";
  const std::string length = took(job);
  story.happened.push_back(sentence(complete.message) + " It ended " +
                           restarts_words(job.status.restarts) +
                           (length.empty() ? "" : ", in " + length) + ".");
  if (has_claim(job)) {
    story.help.push_back("muster fetch " + job.meta.name + " -n " + job.meta.namespace_name +
                         " copies the model here.");
  } else if (job.spec.training) {
    story.happened.emplace_back(
        "No model was kept: spec.training.checkpoint.volumeClaimName names no claim.");
  }
}

void tell_failed(JobStory& story, const api::TrainingJob& job, const Condition& failed,
                 WallTime now) {
  story.headline = "Failed " + since(failed, now) + " ago";
  story.happened.push_back(sentence(failed.message));
  // The failing worker's own reason says most; the condition's is often the same, or only that a
  // worker failed.
  const std::string own = job.status.failure ? help_for(job, *job.status.failure) : "";
  const std::string general = help_for_failure(failed.reason);
  if (!own.empty()) story.help.push_back(own);
  const bool says_more = own.empty() || (failed.reason != "WorkerFailed" && general != own);
  if (says_more && !general.empty()) story.help.push_back(general);
  if (has_claim(job) && job.status.checkpoint && job.status.checkpoint->step > 0) {
    story.help.push_back("The checkpoint of step " + grouped(job.status.checkpoint->step) +
                         " is kept: muster fetch " + job.meta.name + " -n " +
                         job.meta.namespace_name + " copies it here.");
  }
}

void tell_suspended(JobStory& story, const api::TrainingJob& job, const Condition& suspended,
                    WallTime now) {
  story.headline = "Suspended for " + since(suspended, now);
  story.happened.push_back(sentence(suspended.message));
  if (!job.spec.suspend) {
    story.happened.emplace_back("It was resumed and waits for the operator.");
    return;
  }
  const bool has_checkpoint = job.status.checkpoint && job.status.checkpoint->step >= 0;
  story.help.push_back("muster resume " + job.meta.name + " -n " + job.meta.namespace_name +
                       (has_checkpoint && job.status.checkpoint->durable
                            ? " goes on from step " + grouped(job.status.checkpoint->step) + "."
                            : " starts its workers again."));
}

void tell_unattended(JobStory& story, const api::TrainingJob& job, WallTime now) {
  if (job.spec.managed_by != contract::kManagedBy) {
    story.headline = "Left to another controller";
    story.happened.push_back("spec.managedBy is " + job.spec.managed_by +
                             ": Muster's operator does nothing about this job.");
    return;
  }
  story.headline = "Not taken up yet";
  const std::string age = age_text(job.meta.creation_time, now);
  story.happened.push_back("The job was made " + age + " ago and waits for the operator.");
  if (status_word(job, now) != "Unattended") return;
  story.help.emplace_back(
      "Look whether the operator runs and watches this namespace: kubectl -n muster get pods, "
      "kubectl -n muster logs deployment/muster-operator.");
}

/// Against what the API server said of a pod that it did not take.
std::string help_against_refusal(const api::TrainingJob& job, const Condition& admitted) {
  const std::string& name = job.meta.namespace_name;
  const auto says = [&](const char* words) {
    return admitted.message.find(words) != std::string::npos;
  };
  // All else of a worker's pod meets the profile restricted.
  if (says("violates PodSecurity") && says("hostNetwork=true")) {
    return "Pod Security keeps the nodes' network (spec.worker.hostNetwork) from this namespace. "
           "Whoever may give it away lifts that: kubectl label namespace " +
           name + " --overwrite pod-security.kubernetes.io/enforce=privileged";
  }
  return "Look at the namespace's quota and policies: kubectl -n " + name + " describe quota.";
}

void tell_waiting(JobStory& story, const api::TrainingJob& job, const Condition* admitted,
                  WallTime now) {
  story.headline = admitted == nullptr ? "Waiting" : "Waiting for " + since(*admitted, now);
  if (admitted == nullptr) return;
  story.happened.push_back(sentence(admitted->message));
  if (admitted->reason == contract::reason::kGangWaiting) {
    // A gang in a queue of Kueue starts with all of its workers.
    const bool is_whole = !api::kueue_queue_wanted(job).empty();
    story.help.push_back("It starts by itself when there is room. Fewer workers (spec.worker." +
                         std::string(is_whole ? "count" : "min") +
                         "), smaller spec.worker.resources or more nodes make it sooner.");
  } else if (admitted->reason == "NameConflict") {
    story.help.emplace_back("Delete the object that the message names, or rename the job.");
  } else if (admitted->reason == "CreateFailed" || admitted->reason == "QuotaExceeded") {
    story.help.push_back(help_against_refusal(job, *admitted));
  } else if (admitted->reason == "KueueDeactivated") {
    story.help.emplace_back(
        "Ask who looks after the queue in Kueue; once that is settled, suspend and resume the "
        "job.");
  }
}

std::string in_words(seconds left) {
  return left.count() > 0 ? "in " + duration_text(static_cast<double>(left.count())) : "now";
}

void tell_restarting(JobStory& story, const api::TrainingJob& job, const Condition& restarting,
                     WallTime now) {
  story.headline = "Restarting for " + since(restarting, now);
  story.happened.push_back(sentence(restarting.message));
  if (job.status.restart_at && *job.status.restart_at > now) {
    story.happened.push_back("It starts again " +
                             in_words(std::chrono::ceil<seconds>(*job.status.restart_at - now)) +
                             ".");
  }
  if (job.status.failure) {
    const std::string help = help_for(job, *job.status.failure);
    if (!help.empty()) story.help.push_back("Should it fail again: " + help);
  }
}

/// A job that is admitted and whose gang is not whole.
void tell_starting(JobStory& story, const api::TrainingJob& job, const Condition& admitted,
                   WallTime now) {
  const Condition* running = job.status.condition("Running");
  story.headline = "Starting";
  if (running == nullptr) {
    story.happened.emplace_back("The gang has its place; its pods are being made.");
    return;
  }
  // That it does not run may be as old as the end of an earlier run.
  const std::string age = since(admitted, now);
  story.headline = "Starting for " + age;
  if (!running->message.empty()) story.happened.push_back(sentence(running->message));
  if (running->reason != "WaitingForKueue") return;
  story.headline = "Waiting for Kueue for " + age;
  story.help.push_back(
      "It starts by itself when its queue in Kueue has room: kubectl describe "
      "localqueue " +
      job.status.kueue_queue + " -n " + job.meta.namespace_name + ".");
}

void tell_running(JobStory& story, const api::TrainingJob& job, const Condition& running,
                  WallTime now) {
  story.headline = "Running for " + since(running, now);
  story.happened.push_back(sentence(running.message));
  const auto& progress = job.status.progress;
  if (!progress || !progress->updated_at || now - *progress->updated_at < seconds(120)) return;
  story.happened.push_back("Nothing has been heard about its progress for " +
                           age_text(progress->updated_at, now) + ".");
  story.help.emplace_back("Look at the workers' logs: muster logs " + job.meta.name + " -n " +
                          job.meta.namespace_name + ".");
}

void tell_state(JobStory& story, const api::TrainingJob& job, WallTime now) {
  const api::TrainingJobStatus& status = job.status;
  if (const auto* complete = if_true(status, "Complete")) {
    return tell_complete(story, job, *complete, now);
  }
  if (const auto* failed = if_true(status, "Failed")) return tell_failed(story, job, *failed, now);
  if (const auto* suspended = if_true(status, "Suspended")) {
    return tell_suspended(story, job, *suspended, now);
  }
  if (status.conditions.empty()) return tell_unattended(story, job, now);
  const Condition* admitted = status.condition("Admitted");
  // One that lost its places says why it starts again; what keeps it from that is told first.
  const bool waits = admitted != nullptr && admitted->status == "False" &&
                     admitted->reason != contract::reason::kRestarting;
  if (const auto* restarting = if_true(status, "Restarting"); restarting != nullptr && !waits) {
    return tell_restarting(story, job, *restarting, now);
  }
  if (const auto* running = if_true(status, "Running")) {
    return tell_running(story, job, *running, now);
  }
  if (if_true(status, "Admitted") == nullptr) return tell_waiting(story, job, admitted, now);
  tell_starting(story, job, *admitted, now);
}

std::string slots_text(const std::vector<int>& slots) {
  constexpr std::size_t kMost = 8;
  return (slots.size() == 1 ? "Worker " : "Workers ") +
         list_text(slots, kMost, [](int slot) { return std::to_string(slot); });
}

void add_pod_help(JobStory& story, const std::vector<PodView>& pods) {
  for (const PodAdvice& advice : kPodAdvice) {
    const bool applies = std::any_of(pods.begin(), pods.end(), [&](const PodView& pod) {
      return pod.trouble.starts_with(advice.reason);
    });
    const std::string help(advice.help);
    const bool is_new = std::find(story.help.begin(), story.help.end(), help) == story.help.end();
    if (applies && is_new) story.help.push_back(help);
  }
}

}  // namespace

std::string stop_words(const api::TrainingJob& job) {
  if (!job.spec.training) return "stops, and what its program has not saved itself is lost";
  if (has_claim(job)) return "stops with a checkpoint";
  return "stops, and nothing of its training is kept, because "
         "spec.training.checkpoint.volumeClaimName names no claim";
}

std::string help_for_failure(const std::string& reason) {
  for (const Advice& advice : kFailureAdvice) {
    if (advice.reason == reason) return std::string(advice.help);
  }
  return "";
}

std::vector<std::string> pod_troubles(const std::vector<PodView>& pods) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> slots;
  for (const PodView& pod : pods) {
    if (!pod.trouble.empty()) slots[{pod.trouble, pod.trouble_text}].push_back(pod.slot);
  }
  std::vector<std::string> sentences;
  for (const auto& [trouble, who] : slots) {
    const auto& [word, text] = trouble;
    sentences.push_back(
        sentence(slots_text(who) + ": " + word + (text.empty() ? "" : ": " + text)));
  }
  return sentences;
}

JobStory tell_story(const api::TrainingJob& job, const std::vector<PodView>& pods, WallTime now) {
  JobStory story;
  tell_state(story, job, now);
  if (job.meta.deletion_time) {
    story.headline = "Being deleted since " + age_text(job.meta.deletion_time, now);
  }
  if (job.status.finished()) return story;
  if (job.spec.suspend && !job.status.is_true("Suspended")) {
    story.headline = "Stopping";
    story.happened.push_back("spec.suspend is true: the job " + stop_words(job) + ".");
  }
  for (std::string& trouble : pod_troubles(pods)) story.happened.push_back(std::move(trouble));
  add_pod_help(story, pods);
  const bool is_behind =
      job.status.observed_generation > 0 && job.status.observed_generation < job.meta.generation;
  if (is_behind) {
    story.happened.emplace_back("The last change of its spec has not been taken up yet.");
  }
  return story;
}

}  // namespace muster::cli
