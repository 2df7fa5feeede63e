// What the commands ask the cluster for: a job, its pods, its events.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/kube_objects.h"
#include "cli/kubectl.h"
#include "common/json.h"
#include "operator/api/training_job.h"

namespace muster::cli {

/// The resource's full name: no other API's short name can stand in its way.
inline constexpr const char* kJobResource = "trainingjobs.muster.dev";

struct JobView {
  api::TrainingJob job;
  Json object;  ///< as the API server has it
};

/// A job of an API server's object. Errors: kCorrupt when it is none.
Result<JobView> read_job(Json object);

/// One job of the namespace in use. Errors: kInvalid when `name` can be no job's; kNotFound with a
/// sentence that names the namespace. Blocks: on kubectl.
Result<JobView> get_job(Kubectl& kubectl, const std::string& name);
/// Its pods, sorted; also those that have ended.
Result<std::vector<PodView>> get_pods(Kubectl& kubectl, const api::TrainingJob& job);
/// Events about the object of this uid, by time.
Result<std::vector<EventView>> get_events(Kubectl& kubectl, const std::string& uid);
/// One JSON answer of kubectl.
Result<Json> ask(Kubectl& kubectl, const KubectlCall& call);
Result<Json> ask(Kubectl& kubectl, const std::vector<std::string>& arguments);

/// Whether a wait goes on after this answer: the API server may answer in a moment. For whoever has
/// had an answer before and waits no longer than to a deadline or a signal.
bool is_momentary(const Error& error);

/// Whether `name` can be a job's: it goes into kubectl's command line.
Status check_job_name(const std::string& name);

/// Text on stdout. False once nobody reads it any more.
bool print(const std::string& text);
/// What was printed is out. False as above.
bool flush();
/// At the end, with the exit code that there would be: kDisk, and a sentence, where not all that
/// was printed could be written, as on a full disk. A reader that wants no more is no fault.
int end_output(int code);

/// Until `pause` has passed or a signal has come, which is an error.
Status pause_for(Kubectl& kubectl, milliseconds pause);

}  // namespace muster::cli
