#include "cli/kube_query.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>

#include "cli/tell.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
}

}  // namespace

Status check_job_name(const std::string& name) {
  const bool is_good = !name.empty() && name.size() <= 253 && name.front() != '-' &&
                       std::all_of(name.begin(), name.end(), is_name_character);
  if (is_good) return {};
  return Error(ErrorCode::kInvalid, "\"" + name.substr(0, 253) +
                                        "\" cannot be a job's name: lower-case letters, digits "
                                        "and '-', beginning with a letter")
      .with_exit_code(codes::kUsage);
}

Result<Json> ask(Kubectl& kubectl, const std::vector<std::string>& arguments) {
  KubectlCall call;
  call.arguments = arguments;
  return ask(kubectl, call);
}

Result<Json> ask(Kubectl& kubectl, const KubectlCall& call) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, kubectl.run(call));
  auto json = parse_json(text);
  if (!json) {
    return json.error()
        .with("kubectl " + call.arguments.front() + " answered what is no JSON")
        .with_exit_code(codes::kCluster);
  }
  return std::move(*json);
}

Result<JobView> read_job(Json object) {
  JobView view;
  auto [job, verdict] = api::read_training_job(object);
  // An older schema may have admitted a spec that is refused now; status says so.
  if (job.meta.name.empty()) {
    return Error(ErrorCode::kCorrupt,
                 verdict ? "the answer is no TrainingJob"
                         : "the answer is no TrainingJob: " + verdict.error().message())
        .with_exit_code(codes::kCluster);
  }
  view.job = std::move(job);
  view.object = std::move(object);
  return view;
}

Result<JobView> get_job(Kubectl& kubectl, const std::string& name) {
  MUSTER_RETURN_IF_ERROR(check_job_name(name));
  auto object = ask(kubectl, {"get", kJobResource, name, "-o", "json"});
  if (object) return read_job(std::move(*object));
  if (object.error().code() != ErrorCode::kNotFound) return object.error();
  const bool is_namespace = object.error().message().find("namespaces \"") != std::string::npos;
  return Error(ErrorCode::kNotFound,
               is_namespace ? object.error().message()
                            : "there is no job \"" + name + "\" in the namespace \"" +
                                  kubectl.namespace_in_use() + "\" (muster get -A lists all)")
      .with_exit_code(codes::kCluster);
}

bool is_momentary(const Error& error) {
  // kubectl also says that there are no TrainingJobs where an API server cannot tell right now.
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kUnsupported ||
         error.code() == ErrorCode::kDeadlineExceeded;
}

Result<std::vector<PodView>> get_pods(Kubectl& kubectl, const api::TrainingJob& job) {
  MUSTER_ASSIGN_OR_RETURN(
      Json answer,
      ask(kubectl, {"get", "pods", "--selector",
                    std::string(contract::kLabelJobUid) + "=" + job.meta.uid, "-o", "json"}));
  std::vector<PodView> pods;
  for (const Json& pod : items_of(std::move(answer))) pods.push_back(read_pod(pod));
  sort_pods(pods);
  return pods;
}

Result<std::vector<EventView>> get_events(Kubectl& kubectl, const std::string& uid) {
  MUSTER_ASSIGN_OR_RETURN(Json answer, ask(kubectl, {"get", "events", "--field-selector",
                                                     "involvedObject.uid=" + uid, "-o", "json"}));
  std::vector<EventView> events;
  for (const Json& event : items_of(std::move(answer))) events.push_back(read_event(event));
  std::stable_sort(events.begin(), events.end(),
                   [](const EventView& a, const EventView& b) { return a.time < b.time; });
  return events;
}

bool print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
}

bool flush() { return std::fflush(stdout) == 0; }

int end_output(int code) {
  const bool is_written = flush() && std::ferror(stdout) == 0;
  pollfd reader{fileno(stdout), 0, 0};
  const bool is_gone = ::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0;
  if (is_written || is_gone) return code;
  tell("muster: standard output: not all of it could be written; is the disk full?");
  return code == 0 || code == codes::kFailedJob ? codes::kDisk : code;
}

Status pause_for(Kubectl& kubectl, milliseconds pause) {
  const MonoTime due = kubectl.clock().mono_now() + pause;
  for (;;) {
    const auto left = due - kubectl.clock().mono_now();
    if (left <= nanoseconds(0)) return {};
    pollfd signals{kubectl.signal_fd(), POLLIN, 0};
    ::poll(&signals, 1, static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
    if (signals.revents != 0 && kubectl.take_signal()) return interrupted();
  }
}

}  // namespace muster::cli
