#include "cli/fetch_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/fetch_plan.h"
#include "cli/fetched_files.h"
#include "cli/kube_query.h"
#include "cli/progress_view.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"
#include "common/sha256.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr milliseconds kBetweenFetchLooks{500};
constexpr milliseconds kDeleteDeadline{30'000};
/// A stream can be cut, and a running job replaces the checkpoint that is read.
constexpr int kMostTries = 3;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
/// Of a checkpoint. One that is longer is not looked at.
constexpr const char* kManifestFile = "manifest.json";
constexpr std::size_t kMostManifestBytes = std::size_t{16} << 20;

/// Waiting does not end these.
constexpr std::array kHopeless{"InvalidImageName",     "ErrImageNeverPull",
                               "ImagePullBackOff",     "CreateContainerConfigError",
                               "CreateContainerError", "RunContainerError"};

class Fetch {
 public:
  Fetch(Kubectl& kubectl, const FetchOptions& options) : kubectl_(kubectl), options_(options) {}
  ~Fetch() { delete_pod(); }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  Status run();

 private:
  Status look();
  Status find_image(const std::vector<PodView>& pods);
  Status create_pod();
  Status look_again();
  Result<bool> is_pod_running(std::string& why_not);
  Status wait_for_pod();
  Status copy();
  Status copy_once(FetchedFiles& files);
  Status stream_archive(TarReader& archive, const std::vector<std::string>& names);
  Status check(FetchedFiles& files);
  Result<std::string> check_model(FetchedFiles& files, const FetchedFiles::File& model);
  std::string why_of_another(const FetchedFiles& files) const;
  void delete_ended();
  void delete_pod();
  std::string output() const {
    return options_.output.empty() ? "muster-fetch/" + options_.job : options_.output;
  }

  Kubectl& kubectl_;
  const FetchOptions& options_;
  api::TrainingJob job_;
  FetchPlan plan_;
  FetchPodFacts pod_;
  bool has_pod_ = false;
};

Status Fetch::look() {
  MUSTER_ASSIGN_OR_RETURN(const JobView view, get_job(kubectl_, options_.job));
  job_ = view.job;
  MUSTER_ASSIGN_OR_RETURN(plan_, plan_fetch(job_, options_.model_only));
  return {};
}

/// The job may have gone on meanwhile; where nobody can say now, what was known counts.
Status Fetch::look_again() {
  const Status seen = look();
  return !seen && is_momentary(seen.error()) ? Status() : seen;
}

/// The image of the job's own workers: what wrote the claim can read it.
Status Fetch::find_image(const std::vector<PodView>& pods) {
  pod_.image = options_.image;
  for (const PodView& pod : pods) {
    if (!pod_.image.empty()) break;
    pod_.image = pod.image;
    pod_.pull_policy = pod.pull_policy;
  }
  if (pod_.image.empty()) pod_.image = job_.spec.worker.image;
  if (!pod_.image.empty()) return {};
  return Error(ErrorCode::kNotFound,
               "no pod of the job " + options_.job +
                   " is left that tells the worker image; name it with --image")
      .with_exit_code(codes::kUsage);
}

Status Fetch::create_pod() {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<PodView> pods, get_pods(kubectl_, job_));
  MUSTER_RETURN_IF_ERROR(find_image(pods));
  pod_.node = node_of_claim(pods);
  const std::string salt =
      format_micro_time(kubectl_.clock().wall_now()) + std::to_string(getpid());
  pod_.name = job_.meta.name + "-fetch-" + to_hex(sha256(job_.meta.uid + salt)).substr(0, 5);
  KubectlCall call;
  call.arguments = {"create", "--filename", "-", "--output", "name"};
  call.input = dump_json(make_fetch_pod(job_, pod_));
  call.has_input = true;
  delete_ended();
  has_pod_ = true;  // from here on it may be there, also when the answer is lost
  const auto created = kubectl_.run(call);
  if (created) return {};
  const bool is_refused = created.error().code() == ErrorCode::kForbidden ||
                          created.error().code() == ErrorCode::kInvalid;
  if (is_refused) has_pod_ = false;
  return created.error().with("cannot make the pod that reads the claim");
}

/// `why_not`: what keeps it now. Errors: it will not run.
Result<bool> Fetch::is_pod_running(std::string& why_not) {
  const auto object = ask(kubectl_, {"get", "pod", pod_.name, "-o", "json"});
  if (!object) {
    if (!is_momentary(object.error())) return object.error();
    why_not = ": " + object.error().message();
    return false;
  }
  const PodView pod = read_pod(*object);
  if (pod.phase == "Running" && pod.has_started && !pod.end) return true;
  std::string why = pod.trouble.empty() ? "" : ": " + pod.trouble;
  if (!pod.trouble_text.empty()) why += ": " + pod.trouble_text;
  const bool is_hopeless =
      std::find(kHopeless.begin(), kHopeless.end(), pod.trouble) != kHopeless.end();
  if (pod.is_over() || is_hopeless) {
    if (pod.end)
      why += ": exit code " + std::to_string(pod.end->exit_code) + " " + pod.end->message;
    return Error(ErrorCode::kUnavailable,
                 "the pod " + pod_.name + " that reads the claim cannot run" + why)
        .with_exit_code(codes::kCluster);
  }
  why_not = why.empty() ? ": " + pod.phase : why;
  return false;
}

Status Fetch::wait_for_pod() {
  const MonoTime due = kubectl_.clock().mono_now() + options_.timeout;
  std::string why;
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool runs, is_pod_running(why));
    if (runs) return {};
    if (kubectl_.clock().mono_now() >= due) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "the pod " + pod_.name + " that reads the claim does not run after " +
                       duration_text(static_cast<double>(options_.timeout.count())) +
                       " (--timeout)" + why)
          .with_exit_code(codes::kDeadline);
    }
    MUSTER_RETURN_IF_ERROR(pause_for(kubectl_, kBetweenFetchLooks));
  }
}

/// Whether the worker in the image is an older one, which archives only whole directories and takes
/// names for a wrong usage, or, on a processor that it cannot train on, for a worker's start.
bool knows_no_names(const Error& error) {
  return error.message().find("usage: muster-worker") != std::string::npos ||
         error.message().find("worker refused to start") != std::string::npos;
}

Status Fetch::copy_once(FetchedFiles& files) {
  TarReader archive(files, kMostBytes);
  Status streamed = stream_archive(archive, plan_.names);
  if (!streamed && !plan_.names.empty() && knows_no_names(streamed.error())) {
    // All that is there then comes, and FetchedFiles passes over the rest.
    streamed = stream_archive(archive, {});
  }
  if (files.has_enough()) return {};
  if (!streamed) return streamed.error();
  return archive.finish();
}

Status Fetch::stream_archive(TarReader& archive, const std::vector<std::string>& names) {
  KubectlCall call;
  call.arguments = {"exec",         pod_.name,       std::string("--container=") + kFetchContainer,
                    "--",           "muster-worker", std::string(contract::kWorkerFlagArchive),
                    plan_.directory};
  call.arguments.insert(call.arguments.end(), names.begin(), names.end());
  call.deadline = milliseconds(0);
  call.max_output = static_cast<std::size_t>(2 * kMostBytes);
  return kubectl_.stream(call, [&](std::string_view piece) { return archive.feed(piece); });
}

/// Whether the same again can end otherwise.
bool may_help_again(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kCorrupt ||
         code == ErrorCode::kDeadlineExceeded;
}

Status Fetch::copy() {
  for (int attempt = 1;; ++attempt) {
    FetchedFiles files(output(), plan_.wants, plan_.last);
    const Status copied = copy_once(files);
    if (copied) return check(files);
    if (attempt == kMostTries || !may_help_again(copied.error().code())) {
      const bool is_archive = copied.error().code() == ErrorCode::kCorrupt ||
                              copied.error().code() == ErrorCode::kTooLarge;
      return is_archive ? copied.error().with_exit_code(codes::kCluster) : copied.error();
    }
    tell("muster: " + copied.error().message() + "; trying again");
    MUSTER_RETURN_IF_ERROR(pause_for(kubectl_, kBetweenFetchLooks));
    MUSTER_RETURN_IF_ERROR(look_again());
  }
}

Error set_aside(FetchedFiles& files, const FetchedFiles::File& model, const std::string& why) {
  return Error(ErrorCode::kCorrupt, files.set_aside(model) + ": " + why)
      .with_exit_code(codes::kCheckpoint);
}

/// Of a checkpoint, where its manifest was fetched with it.
std::string Fetch::why_of_another(const FetchedFiles& files) const {
  for (const FetchedFiles::File& file : files.files()) {
    if (!file.name.ends_with("/" + std::string(kManifestFile))) continue;
    const auto text = read_file(files.path_of(file), kMostManifestBytes);
    const auto manifest = text ? parse_json(*text) : Result<Json>(text.error());
    if (manifest) return told_by_manifest(job_, *manifest);
  }
  return "";
}

/// What there is to be told of the model beside its name.
Result<std::string> Fetch::check_model(FetchedFiles& files, const FetchedFiles::File& model) {
  if (plan_.model_sha256.empty()) return std::string();
  const auto hash = hash_of_parameters(files.path_of(model));
  if (!hash && hash.error().code() != ErrorCode::kCorrupt) return hash.error();
  if (!hash || *hash != plan_.model_sha256) {
    return set_aside(files, model,
                     (hash ? "its parameters have the SHA-256 " + *hash
                           : std::string("it is no safetensors file")) +
                         "; the job's status says " + plan_.model_sha256);
  }
  return "; its parameters have the SHA-256 of the job's status, " + *hash;
}

Status Fetch::check(FetchedFiles& files) {
  const FetchedFiles::File* model = nullptr;
  for (const FetchedFiles::File& file : files.files()) {
    if (file.name.ends_with(contract::kModelFile)) model = &file;
  }
  if (model == nullptr) {
    return Error(ErrorCode::kNotFound, "there is no " + std::string(contract::kModelFile) + " in " +
                                           plan_.directory + " of the claim " +
                                           job_.spec.training->checkpoint->volume_claim_name)
        .with_exit_code(codes::kNoCheckpoint);
  }
  if (const std::string why = why_of_another(files); !why.empty()) {
    return set_aside(files, *model, "is of another job with the same claim: " + why);
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string verdict, check_model(files, *model));
  MUSTER_RETURN_IF_ERROR(files.keep());
  for (const FetchedFiles::File& file : files.files()) {
    print(printable(output() + "/" + file.name) + "  " + grouped(file.bytes) + " bytes\n");
  }
  tell("Fetched " + std::to_string(files.files().size()) +
       (files.files().size() == 1 ? " file" : " files") + verdict + ".");
  return {};
}

/// Pods of fetches that were killed: nothing else removes them. One that cannot be is no reason not
/// to fetch.
void Fetch::delete_ended() {
  KubectlCall call;
  call.arguments = {
      "delete", "pods", "--selector=" + fetch_selector(job_),
      "--field-selector=status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
      "--wait=false"};
  call.deadline = kDeleteDeadline;
  (void)kubectl_.run(call);
}

void Fetch::delete_pod() {
  if (!has_pod_) return;
  has_pod_ = false;
  KubectlCall call;
  call.arguments = {"delete", "pod", pod_.name, "--ignore-not-found", "--wait=false"};
  call.deadline = kDeleteDeadline;
  call.ignores_interrupt = true;
  if (const auto deleted = kubectl_.run(call); !deleted) {
    tell("muster: the pod " + pod_.name + " could not be deleted (" + deleted.error().message() +
         "); it ends by itself after a day, and goes with: kubectl delete pod " + pod_.name +
         " -n " + job_.meta.namespace_name);
  }
}

Status Fetch::run() {
  MUSTER_RETURN_IF_ERROR(look());
  MUSTER_RETURN_IF_ERROR(create_pod());
  MUSTER_RETURN_IF_ERROR(wait_for_pod());
  // The job may have gone on while its pod was started.
  MUSTER_RETURN_IF_ERROR(look_again());
  if (!plan_.notice.empty()) tell(plan_.notice);
  return copy();
}

}  // namespace

int fetch_command(Kubectl& kubectl, const FetchOptions& options) {
  const Status status = Fetch(kubectl, options).run();
  return status ? 0 : tell_error(status.error());
}

}  // namespace muster::cli
