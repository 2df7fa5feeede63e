#include "operator/embedded/process_kubelet.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "common/contract.h"
#include "common/log.h"
#include "operator/embedded/child_process.h"
#include "operator/embedded/pod_log.h"
#include "operator/embedded/pod_program.h"
#include "operator/embedded/pod_view.h"
#include "operator/embedded/watch_thread.h"

namespace muster::embedded {
namespace {

using kube::WatchEvent;

constexpr std::size_t kMaxQueuedEvents = 100'000;
constexpr std::size_t kTerminationMessageBytes = 4096;
constexpr milliseconds kRetry{200};
constexpr milliseconds kLongestWait{60'000};

/// One pod bound (or to be bound) to this node. Owned by the loop thread.
struct LocalPod {
  PodView view;
  Json object;
  std::optional<ChildProcess> process;
  std::unique_ptr<PodLog> log;
  std::vector<std::size_t> gpus;  ///< of options_.gpus, until its process has ended
  bool started = false;           ///< also when the start failed: a pod is started once
  bool is_gone = false;           ///< no longer in the API; forgotten once its process has ended
  bool was_signalled = false;
  std::optional<MonoTime> kill_at;
  std::optional<Json> status;  ///< not yet accepted by the API server
  std::optional<MonoTime> retry_at;
};

class Kubelet final : public ProcessKubelet {
 public:
  explicit Kubelet(ProcessKubeletOptions options) : options_(std::move(options)) {}
  ~Kubelet() override { stop(milliseconds(0)); }

  Status start() {
    wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) return Error(ErrorCode::kIo, "cannot make an eventfd");
    MUSTER_RETURN_IF_ERROR(register_node());
    thread_ = std::thread([this] { run(); });
    WatchThreadOptions watch;
    watch.client = options_.client;
    watch.clock = options_.clock;
    watch.kind = api::Kind::kPod;
    watch_ =
        std::make_unique<WatchThread>(watch, [this](WatchEvent event) { post(std::move(event)); });
    return {};
  }

  std::map<std::string, int> running() const override {
    const std::scoped_lock lock(mutex_);
    return running_;
  }

  void stop(milliseconds grace) override {
    if (watch_) watch_->stop();
    {
      const std::scoped_lock lock(mutex_);
      stop_grace_ = stop_grace_ ? std::min(*stop_grace_, grace) : grace;
    }
    wake();
    const std::scoped_lock lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

 private:
  Status register_node();
  void post(WatchEvent event);
  void wake() const;
  void run();
  bool take_events();
  void wait();
  void take_event(WatchEvent event);
  void take_pod(Json object);
  void sync(LocalPod& pod);
  Status bind(LocalPod& pod);
  void start_process(LocalPod& pod);
  void choose_gpus(LocalPod& pod, PodProgram& program) const;
  void stop_process(LocalPod& pod);
  Status write(LocalPod& pod);
  void read_output(LocalPod& pod);
  void on_exit(LocalPod& pod);
  std::string termination_log_of(const LocalPod& pod) const;
  std::string take_termination_message(const LocalPod& pod) const;
  void publish_running();

  ProcessKubeletOptions options_;
  UniqueFd wake_;
  std::unique_ptr<WatchThread> watch_;
  std::thread thread_;
  std::mutex join_mutex_;

  mutable std::mutex mutex_;
  std::deque<WatchEvent> events_;           // guarded by mutex_
  bool events_lost_ = false;                // guarded by mutex_
  std::map<std::string, int> running_;      // guarded by mutex_
  std::optional<milliseconds> stop_grace_;  // guarded by mutex_

  // Of the loop thread:
  std::map<std::string, LocalPod> pods_;  // by uid
  std::set<std::string> listed_;          // uids of the list in progress
  std::optional<MonoTime> stop_kill_at_;
};

Status Kubelet::register_node() {
  const std::string now = format_time(options_.clock->wall_now());
  const Json node = {{"apiVersion", "v1"},
                     {"kind", "Node"},
                     {"metadata",
                      {{"name", options_.node_name},
                       {"labels", {{"kubernetes.io/hostname", options_.node_name}}}}},
                     {"spec", Json::object()}};
  auto created = options_.client->create(api::Kind::kNode, "", node);
  if (!created && created.error().code() != ErrorCode::kAlreadyExists) {
    return created.error().with("register node " + options_.node_name);
  }
  const Json ready = {{"type", "Ready"},          {"status", "True"},
                      {"reason", "KubeletReady"}, {"message", "processes of this machine"},
                      {"lastHeartbeatTime", now}, {"lastTransitionTime", now}};
  const Json status = {{"status",
                        {{"allocatable", options_.allocatable},
                         {"capacity", options_.allocatable},
                         {"conditions", Json::array({ready})}}}};
  auto patched =
      options_.client->merge_patch(api::Kind::kNode, {"", options_.node_name}, "status", status);
  if (!patched) return patched.error().with("register node " + options_.node_name);
  return {};
}

void Kubelet::post(WatchEvent event) {
  {
    const std::scoped_lock lock(mutex_);
    // A node of one machine never has so many; should it, the pods are left to the next list.
    if (events_.size() >= kMaxQueuedEvents) {
      events_lost_ = true;
    } else {
      events_.push_back(std::move(event));
    }
  }
  wake();
}

void Kubelet::wake() const {
  const std::uint64_t one = 1;
  // A full counter means that the loop is being woken already.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Kubelet::run() {
  for (;;) {
    const bool stopping = take_events();
    for (auto pod = pods_.begin(); pod != pods_.end();) {
      const bool forgotten = pod->second.is_gone && !pod->second.process;
      pod = forgotten ? pods_.erase(pod) : std::next(pod);
    }
    publish_running();
    if (stopping && std::none_of(pods_.begin(), pods_.end(),
                                 [](const auto& pod) { return pod.second.process.has_value(); })) {
      return;
    }
    wait();
  }
}

/// Takes what other threads posted; true while stopping.
bool Kubelet::take_events() {
  std::deque<WatchEvent> events;
  std::optional<milliseconds> grace;
  {
    const std::scoped_lock lock(mutex_);
    events.swap(events_);
    grace = stop_grace_;
    if (events_lost_) log_warning("kubelet events lost", {{"node", options_.node_name}});
    events_lost_ = false;
  }
  if (!grace) {
    for (WatchEvent& event : events) take_event(std::move(event));
    return false;
  }
  const MonoTime kill_at = options_.clock->mono_now() + *grace;
  stop_kill_at_ = stop_kill_at_ ? std::min(*stop_kill_at_, kill_at) : kill_at;
  for (auto& [uid, pod] : pods_) {
    if (!pod.process) continue;
    pod.kill_at = pod.kill_at ? std::min(*pod.kill_at, *stop_kill_at_) : *stop_kill_at_;
    stop_process(pod);
  }
  return true;
}

void Kubelet::take_event(WatchEvent event) {
  switch (event.type) {
    case WatchEvent::Type::kInitStart:
      listed_.clear();
      return;
    case WatchEvent::Type::kInitApply:
    case WatchEvent::Type::kApply:
      listed_.insert(view_of_pod(event.object).uid);
      return take_pod(std::move(event.object));
    case WatchEvent::Type::kDelete:
    case WatchEvent::Type::kInitDone:
      break;
  }
  const std::string deleted =
      event.type == WatchEvent::Type::kDelete ? view_of_pod(event.object).uid : "";
  if (!deleted.empty()) listed_.erase(deleted);
  for (auto& [uid, pod] : pods_) {
    const bool gone = deleted.empty() ? !listed_.contains(uid) : uid == deleted;
    if (!gone || pod.is_gone) continue;
    pod.is_gone = true;
    // Deleted by force: the grace period is over before it began.
    if (pod.process) pod.kill_at = options_.clock->mono_now();
  }
}

void Kubelet::take_pod(Json object) {
  PodView view = view_of_pod(object);
  if (view.uid.empty() || !view.concerns(options_.node_name)) return;
  LocalPod& pod = pods_[view.uid];
  if (!pod.started && view.phase != "Pending") pod.started = true;  // of an earlier kubelet
  pod.view = std::move(view);
  pod.object = std::move(object);
  sync(pod);
}

/// Brings the pod one step nearer to what the API asks; repeats after a while what failed.
void Kubelet::sync(LocalPod& pod) {
  pod.retry_at.reset();
  Status done;
  if (pod.view.node_name.empty()) {
    if (!pod.view.is_deleting) done = bind(pod);
  } else {
    if (!pod.started && !pod.view.is_deleting) start_process(pod);
    if (pod.process && pod.view.is_deleting && !pod.was_signalled) {
      pod.kill_at = options_.clock->mono_now() + pod.view.grace;
      stop_process(pod);
    }
    done = write(pod);
  }
  if (!done) {
    log_warning("pod not written", {{"pod", pod.view.name}, {"error", done.error().message()}});
    pod.retry_at = options_.clock->mono_now() + kRetry;
  }
}

/// POST of the binding subresource, as a scheduler does it.
Status Kubelet::bind(LocalPod& pod) {
  const Json binding = {{"apiVersion", "v1"},
                        {"kind", "Binding"},
                        {"metadata", {{"name", pod.view.name}, {"uid", pod.view.uid}}},
                        {"target", {{"kind", "Node"}, {"name", options_.node_name}}}};
  kube::HttpRequest request;
  request.method = "POST";
  request.path = api::object_path(api::Kind::kPod, pod.view.key()) + "/binding";
  request.content_type = "application/json";
  request.body = dump_json(binding);
  auto response = options_.transport->send(request);
  if (!response) return response.error().with("bind");
  // Gone, deleted or bound by another: the watch tells what became of it.
  const int code = response->code;
  if (code / 100 == 2 || code == 404 || code == 409) return {};
  return Error(ErrorCode::kUnavailable, "bind: " + response->body.substr(0, 512));
}

void Kubelet::start_process(LocalPod& pod) {
  pod.started = true;
  const std::string now = format_time(options_.clock->wall_now());
  PodProgramOptions options{options_.worker_program, options_.node_name, options_.base_environment,
                            options_.extra_env};
  options.extra_env.emplace_back(contract::kEnvTerminationLog, termination_log_of(pod));
  auto program = program_of_pod(pod.object, options);
  if (!program) {
    pod.status = status_not_started(pod.view, program.error().message(), now);
    return;
  }
  choose_gpus(pod, *program);
  if (options_.adapt_environment) options_.adapt_environment(program->environment);
  ProcessSpec spec;
  spec.argv = std::move(program->argv);
  spec.working_directory = options_.working_directory;
  for (const auto& [name, value] : program->environment) {
    spec.environment.push_back(name + "=" + value);
  }
  ::unlink(termination_log_of(pod).c_str());
  pod.log = std::make_unique<PodLog>(options_.log_directory + "/" + pod.view.name + ".log",
                                     options_.log_bytes_max);
  auto process = ChildProcess::start(spec);
  if (!process) {
    pod.status = status_not_started(pod.view, process.error().message(), now);
    pod.gpus.clear();
    return;
  }
  pod.process = std::move(*process);
  pod.status = status_running(pod.view, now);
  publish_running();
}

/// Those that are free, or all where too few are: no pod runs that the node has no room for.
void Kubelet::choose_gpus(LocalPod& pod, PodProgram& program) const {
  if (program.gpus <= 0) return;
  std::set<std::size_t> taken;
  for (const auto& [uid, other] : pods_) taken.insert(other.gpus.begin(), other.gpus.end());
  std::vector<std::size_t> chosen;
  std::string names;
  for (std::size_t i = 0; i < options_.gpus.size(); ++i) {
    if (chosen.size() == static_cast<std::size_t>(program.gpus)) break;
    if (taken.contains(i)) continue;
    names += (chosen.empty() ? "" : ",") + options_.gpus[i];
    chosen.push_back(i);
  }
  if (chosen.size() < static_cast<std::size_t>(program.gpus)) return;
  pod.gpus = std::move(chosen);
  program.environment["CUDA_VISIBLE_DEVICES"] = names;
}

void Kubelet::stop_process(LocalPod& pod) {
  if (pod.was_signalled) return;
  pod.was_signalled = true;
  pod.process->signal_group(SIGTERM);
}

/// Writes the status that is due, then removes the pod when it is deleted and nothing of it runs.
Status Kubelet::write(LocalPod& pod) {
  if (pod.is_gone) return {};
  if (pod.status) {
    auto patched =
        options_.client->merge_patch(api::Kind::kPod, pod.view.key(), "status", *pod.status);
    if (!patched && patched.error().code() != ErrorCode::kNotFound &&
        patched.error().code() != ErrorCode::kConflict) {
      return patched.error().with("write status");
    }
    pod.status.reset();
  }
  if (!pod.view.is_deleting || pod.process) return {};
  kube::DeleteOptions options;
  options.uid = pod.view.uid;
  options.grace_period_seconds = 0;
  const Status removed = options_.client->remove(api::Kind::kPod, pod.view.key(), options);
  if (!removed && removed.error().code() != ErrorCode::kNotFound &&
      removed.error().code() != ErrorCode::kConflict) {
    return removed.error().with("remove");
  }
  pod.is_gone = true;
  return {};
}

void Kubelet::read_output(LocalPod& pod) {
  std::array<char, 32 * 1024> piece;
  // Bounded per turn: one pod that never stops writing must not keep the others waiting.
  for (int turn = 0; turn < 16; ++turn) {
    const ssize_t got = ::read(pod.process->output(), piece.data(), piece.size());
    if (got > 0) {
      pod.log->append({piece.data(), static_cast<std::size_t>(got)});
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const bool ended = got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    if (ended) pod.process->close_output();
    return;
  }
}

void Kubelet::on_exit(LocalPod& pod) {
  pod.process->signal_group(SIGKILL);
  if (pod.process->output() >= 0) read_output(pod);
  const ProcessEnd end = pod.process->reap();
  pod.process.reset();
  // As the end of a container does: no other pod has this file.
  end_orphans_of(std::string(contract::kEnvTerminationLog) + "=" + termination_log_of(pod));
  pod.kill_at.reset();
  pod.gpus.clear();
  publish_running();  // before the API tells of the end
  std::string message = take_termination_message(pod);
  if (message.empty() && end.exit_code != 0) message = pod.log->tail();
  pod.log.reset();
  pod.status = status_ended(pod.view, {end.exit_code, end.signal, message},
                            format_time(options_.clock->wall_now()));
  bool stopping = false;
  {
    const std::scoped_lock lock(mutex_);
    stopping = stop_grace_.has_value();
  }
  if (!stopping) sync(pod);
}

std::string Kubelet::termination_log_of(const LocalPod& pod) const {
  return options_.log_directory + "/" + pod.view.name + ".termination";
}

/// What the program left as its last word; the file is removed.
std::string Kubelet::take_termination_message(const LocalPod& pod) const {
  const std::string path = termination_log_of(pod);
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  ::unlink(path.c_str());
  if (!file) return {};
  std::string message(kTerminationMessageBytes, '\0');
  const ssize_t got = ::read(file.get(), message.data(), message.size());
  message.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return message;
}

void Kubelet::publish_running() {
  std::map<std::string, int> running;
  for (const auto& [uid, pod] : pods_) {
    if (pod.process) running[pod.view.name] = pod.process->pid();
  }
  const std::scoped_lock lock(mutex_);
  running_ = std::move(running);
}

/// Waits for an event, an exit, output or the next deadline, and handles what came.
void Kubelet::wait() {
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  std::vector<std::string> owner{""};
  const MonoTime now = options_.clock->mono_now();
  MonoTime until = now + kLongestWait;
  for (const auto& [uid, pod] : pods_) {
    if (pod.kill_at) until = std::min(until, *pod.kill_at);
    if (pod.retry_at) until = std::min(until, *pod.retry_at);
    if (!pod.process) continue;
    polled.push_back({pod.process->pidfd(), POLLIN, 0});
    owner.push_back(uid);
    if (pod.process->output() < 0) continue;
    polled.push_back({pod.process->output(), POLLIN, 0});
    owner.push_back(uid);
  }
  const auto left = std::chrono::ceil<milliseconds>(std::max(until - now, nanoseconds(0)));
  ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  for (std::size_t i = 1; i < polled.size(); ++i) {
    LocalPod& pod = pods_.at(owner[i]);
    if (polled[i].revents == 0 || !pod.process) continue;
    if (polled[i].fd == pod.process->pidfd()) {
      on_exit(pod);
    } else if (polled[i].fd == pod.process->output()) {
      read_output(pod);
    }
  }
  const MonoTime later = options_.clock->mono_now();
  for (auto& [uid, pod] : pods_) {
    if (pod.kill_at && later >= *pod.kill_at && pod.process) {
      pod.process->signal_group(SIGKILL);
      pod.kill_at.reset();
    }
    if (pod.retry_at && later >= *pod.retry_at) sync(pod);
  }
}

}  // namespace

Result<std::unique_ptr<ProcessKubelet>> ProcessKubelet::start(ProcessKubeletOptions options) {
  auto kubelet = std::make_unique<Kubelet>(std::move(options));
  MUSTER_RETURN_IF_ERROR(kubelet->start());
  return std::unique_ptr<ProcessKubelet>(std::move(kubelet));
}

}  // namespace muster::embedded
