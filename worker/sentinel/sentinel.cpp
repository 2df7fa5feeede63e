#include "worker/sentinel/sentinel.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "common/caught.h"
#include "common/check.h"
#include "common/listen.h"
#include "common/log.h"
#include "common/sha256.h"
#include "worker/sentinel/memory.h"
#include "worker/sentinel/sentinel_worker.h"

namespace muster::sentinel {
namespace {

namespace exit_code = contract::exit_code;

constexpr milliseconds kLeftoverDeadline{5'000};
constexpr milliseconds kLeftoverPoll{20};
constexpr milliseconds kLongestPoll{60'000};
/// Of a rack's hash, as much as a domain takes of it, and more.
constexpr std::size_t kRackDigits = 16;

/// Process ids of this process' children, orphans it has inherited included.
std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  // The forking thread is the main one, and orphans go to it, too.
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  return children;
}

}  // namespace

Outcome outcome_of(const Error& error) {
  return {error.exit_code() != 0 ? error.exit_code() : exit_code::kInternal, error.message()};
}

double seconds_between(MonoTime from, MonoTime to) {
  return std::chrono::duration<double>(to - from).count();
}

SentinelWorker::SentinelWorker(const SentinelOptions& options)
    : options_(options),
      config_(options.config),
      book_(config_.job, config_.slot, config_.attempt, config_.processes),
      metrics_({config_.namespace_name, config_.job_name, config_.slot}, config_.processes) {}

SentinelWorker::~SentinelWorker() {
  for (const int fd : listeners_) close(fd);
  for (TrainerProcess& process : processes_) close_channel(process);
  if (signal_fd_ >= 0) close(signal_fd_);
}

Outcome SentinelWorker::run() {
  Outcome outcome;
  try {
    outcome = live();
  } catch (...) {
    outcome = outcome_of(caught_error());  // a thread, or memory, that the system refuses
  }
  say_goodbye();
  kill_leftovers();
  return outcome;
}

Outcome SentinelWorker::live() {
  if (const Status prepared = prepare(); !prepared) return outcome_of(prepared.error());
  if (auto stopped = join()) {
    kill_running();
    watch();
    return *std::move(stopped);
  }
  watch();
  return judge();
}

void SentinelWorker::leave(const Outcome& outcome) {
  // With the members: the operator has to know for whose end it need not wait.
  const ProgressReport last = full_report();
  write_termination_log(
      config_, outcome.code == exit_code::kComplete ? termination_message(last) : outcome.sentence);
  changes_.settle();
  if (postman_) {
    if (book_.has_news()) report();
    postman_->finish(book_.has_news() ? options_.final_report_timeout : milliseconds(0));
  }
  if (metrics_server_) metrics_server_->stop();
}

Status SentinelWorker::prepare() {
  memory_kills_ = count_memory_kills(options_.system_root);
  began_at_ = now();
  death_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!death_fd_) return Error(ErrorCode::kIo, std::string("eventfd: ") + std::strerror(errno));
  sigset_t watched;
  sigemptyset(&watched);
  for (const int one : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&watched, one);
  const bool is_blocked = sigprocmask(SIG_BLOCK, &watched, nullptr) == 0;
  if (is_blocked) signal_fd_ = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd_ < 0) {
    return Error(ErrorCode::kIo, std::string("signalfd: ") + std::strerror(errno));
  }
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    return Error(ErrorCode::kIo, std::string("prctl: ") + std::strerror(errno));
  }
  if (const auto token = read_token(config_.token_file); !token) {
    return Error(token.error().code(),
                 std::string(contract::kEnvTokenFile) + ": " + token.error().message())
        .with_exit_code(exit_code::kUsage);
  }
  MUSTER_RETURN_IF_ERROR(open_listeners());
  return serve_metrics();
}

Status SentinelWorker::open_listeners() {
  request_.job = config_.job;
  request_.slot = config_.slot;
  request_.attempt = config_.attempt;
  request_.contract = contract::kNumericsContract;
  request_.domain = config_.node;
  // Whatever the text says, only whether two are the same counts.
  if (!config_.rack.empty()) request_.rack = to_hex(sha256(config_.rack)).substr(0, kRackDigits);
  const bool is_any = config_.bind_address == "0.0.0.0" || config_.bind_address == "::";
  request_.host = is_any ? config_.pod_ip : config_.bind_address;
  for (int i = 0; i < config_.processes; ++i) {
    const int port = config_.bind_port == 0 ? 0 : config_.bind_port + i;
    const auto listener = listen_tcp(config_.bind_address, port);
    if (!listener) return listener.error().with("for the other workers");
    listeners_.push_back(listener->fd);
    request_.ports.push_back(listener->port);
  }
  MUSTER_ASSIGN_OR_RETURN(mesh_, Mesh::open(config_.bind_address));
  request_.sentinel_port = mesh_->port();
  return {};
}

Status SentinelWorker::serve_metrics() {
  if (config_.metrics_port == 0) return {};
  http::ServerOptions server_options;
  server_options.address = config_.bind_address;
  server_options.port = config_.metrics_port;
  server_options.connections_max = 16;
  auto server = http::Server::start(
      server_options, [this](const http::Request& request, const http::Responder& respond) {
        if (request.path == "/metrics") {
          return respond({200, "text/plain; version=0.0.4", metrics_.render(), {}});
        }
        if (request.path == "/healthz") return respond({200, "text/plain", "ok\n", {}});
        respond({404, "text/plain", "here are /metrics and /healthz\n", {}});
      });
  if (!server) return server.error().with(contract::kEnvMetricsPort);
  metrics_server_ = std::move(*server);
  return {};
}

std::optional<Outcome> SentinelWorker::join() {
  PostmanOptions postman;
  postman.endpoint = config_.endpoint;
  postman.ca_certificate = config_.ca_certificate;
  postman.token_file = config_.token_file;
  postman.request = request_;
  postman.clock = options_.clock;
  postman.seed = options_.seed;
  postman.join_deadline = options_.join_deadline;
  postman_ = std::make_unique<Postman>(std::move(postman));
  std::optional<Result<Postman::Joined>> joined;
  while (!(joined = postman_->take_joined())) {
    pollfd waited[] = {{signal_fd_, POLLIN, 0}, {postman_->event_fd(), POLLIN, 0}};
    (void)poll(waited, 2, static_cast<int>(kLongestPoll.count()));
    take_signals();
    if (is_stopping_) {
      return Outcome{exit_code::kPlannedLeave, "stopped on request before training began"};
    }
  }
  if (!*joined) return outcome_of(joined->error());
  joined_at_ = reported_at_ = now();
  for (int i = 0; i < config_.processes; ++i) {
    metrics_.set_start(i, "join", seconds_between(began_at_, joined_at_));
  }
  return start_all(**joined);
}

std::optional<Outcome> SentinelWorker::start_all(const Postman::Joined& joined) {
  auto launches = plan_trainers(config_, joined.request, joined.response);
  if (!launches) return outcome_of(launches.error());
  log_info(joined.response.joining ? "joins a gang that trains" : "gang complete",
           {{"epoch", joined.response.epoch},
            {"rank", launches->front().rank},
            {"world_size", launches->front().peers.size()}});
  begin_membership(joined);
  for (TrainerLaunch& launch : *launches) {
    TrainerProcess process;
    process.launch = std::move(launch);
    processes_.push_back(std::move(process));
  }
  for (TrainerProcess& process : processes_) {
    if (const Status started = start(process); !started) {
      return outcome_of(started.error().with("start a trainer"));
    }
  }
  return std::nullopt;
}

void SentinelWorker::watch() {
  while (is_any_left()) {
    std::vector<pollfd> waited{{signal_fd_, POLLIN, 0},
                               {death_fd_.get(), POLLIN, 0},
                               {mesh_->event_fd(), POLLIN, 0},
                               {postman_->event_fd(), POLLIN, 0}};
    const std::size_t first = waited.size();
    for (const TrainerProcess& process : processes_) {
      const bool has_unsent = process.views && process.views->has_unsent();
      const auto events = static_cast<short>(has_unsent ? POLLIN | POLLOUT : POLLIN);
      waited.push_back({process.trainer.channel_fd, events, 0});  // -1 is ignored by poll
    }
    (void)poll(waited.data(), waited.size(), poll_timeout());
    for (std::size_t i = 0; i < processes_.size(); ++i) {
      if ((waited[first + i].revents & POLLOUT) != 0) processes_[i].views->pump();
      if (waited[first + i].revents != 0) take_messages(i);
    }
    take_signals();
    take_deaths();
    reap();
    if (membership_) take_mesh();
    kill_hung();
    if (spares_untold_) stop_untold();
    respawn_due();
    if (membership_ && now() - reported_at_ >= options_.report_again) report();
    if (kill_at_ && now() >= *kill_at_) kill_running();
  }
}

int SentinelWorker::poll_timeout() const {
  MonoTime until = now() + std::min(kLongestPoll, options_.report_again);
  if (kill_at_) until = std::min(until, *kill_at_);
  if (membership_ && !is_killed_) until = std::min(until, membership_->next_tick());
  for (const TrainerProcess& process : processes_) {
    if (process.respawn_at) until = std::min(until, *process.respawn_at);
  }
  const auto left = std::chrono::ceil<milliseconds>(until - now());
  return static_cast<int>(std::clamp(left, milliseconds(0), kLongestPoll).count());
}

void SentinelWorker::take_signals() {
  signalfd_siginfo info{};
  while (read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGCHLD) continue;
    if (!is_stopping_) {
      log_info("asked to stop", {{"signal", strsignal(static_cast<int>(info.ssi_signo))}});
      kill_at_ = std::min(kill_at_.value_or(MonoTime::max()), now() + options_.stop_grace);
      asked_at_ = now();
    }
    is_stopping_ = true;
    if (membership_) membership_->leave(now());
    for (TrainerProcess& process : processes_) {
      if (process.told_epoch > 0) tell(process, told_view_);  // that it is to leave
    }
    stop_untold();
  }
}

/// Whether those who train might save nothing if they stopped: this worker has the files, or a part
/// of the copy that is saved, lacks a trainer among them and starts it again. They do not wait
/// longer than half of this time.
bool SentinelWorker::is_missed() const {
  const bool may_come = config_.slot < file_workers_ && was_in_view_ && !told_view_.stop &&
                        now() - asked_at_ < 2 * options_.membership.gather_files;
  if (!may_come || find_seat(told_view_, membership_->self()) == nullptr) return false;
  const auto trains = [](const TrainerProcess& process) {
    return process.is_running && process.is_ready && process.told_epoch > 0;
  };
  return !std::ranges::all_of(processes_, trains) &&
         std::ranges::any_of(told_view_.seats, [this](const Seat& seat) {
           return seat.id.slot >= file_workers_ && !seat.trainers.empty();
         });
}

/// Those who train leave when the others have agreed on it, at a step's end; the rest has nothing
/// to save, unless those others need it for that.
void SentinelWorker::stop_untold() {
  spares_untold_ = is_missed();
  if (spares_untold_) return;
  for (TrainerProcess& process : processes_) {
    process.respawn_at.reset();
    if (process.is_running && process.told_epoch == 0) (void)kill(process.trainer.pid, SIGTERM);
  }
}

ProgressReport SentinelWorker::full_report() const {
  ProgressReport all = book_.report();
  all.host = host_;
  all.ports = request_.ports;
  all.sentinel_port = request_.sentinel_port;
  all.waiting = waiting_;
  for (const TrainerProcess& process : processes_) {
    if (all.waiting.empty()) all.waiting = process.waits_for;
  }
  // Without a state there is no training to let anybody into.
  const bool lacks_state = std::any_of(processes_.begin(), processes_.end(),
                                       [](const auto& process) { return process.lacks_state; });
  if (has_trainers(told_view_) && !lacks_state) {
    all.membership_epoch = told_view_.epoch;
    for (const Seat& seat : told_view_.seats) {
      if (!seat.trainers.empty()) all.members.push_back(seat.id.slot);
    }
  }
  return all;
}

/// To the endpoint, as soon as it takes one.
void SentinelWorker::report() {
  reported_at_ = now();
  ProgressReport all = full_report();
  for (const TrainerProcess& process : processes_) {
    for (const FilesMessage& busy : process.busy) {
      // Of several the worst is one for which training stands.
      const bool is_worse = all.busy_checkpoint && !busy.is_checkpoint;
      if (busy.seconds == 0 || (all.busy_seconds > 0 && !is_worse)) continue;
      all.busy_seconds = busy.seconds;
      all.busy_checkpoint = busy.is_checkpoint;
      all.busy_path = busy.path;
    }
    // A verdict is on a process in a membership: of a new one nothing is known yet.
    const bool is_judged = process.is_running && process.judged_epoch == told_view_.epoch;
    const Slowness& slowness = process.slow.newest();
    if (!is_judged || !process.slow.is_slow() || slowness.percent <= all.slow_percent) continue;
    all.slow_percent = slowness.percent;
    all.slow_cause = name_of(slowness.cause);
    if (processes_.size() == 1) continue;
    all.slow_process = process.launch.local_rank;
    all.slow_rank = process.launch.rank;
  }
  changes_.set_told(postman_->told(), now());
  all.changes = changes_.to_tell();
  postman_->set_report(all, changes_.newest());
}

Outcome SentinelWorker::judge() const {
  const auto first = [this](auto wanted) {
    return std::find_if(ends_.begin(), ends_.end(), wanted);
  };
  const auto own = first([](const Outcome& end) {
    return end.code != exit_code::kPeerLost && end.code != exit_code::kPlannedLeave;
  });
  if (own != ends_.end()) return *own;
  if (is_left_behind_ || is_finished()) return {};
  if (is_cut_off_) {
    return {exit_code::kPlannedLeave,
            "stopped on request; the others did not hear this worker and went on without it before "
            "it had left"};
  }
  const auto lost = first([](const Outcome& end) { return end.code == exit_code::kPeerLost; });
  if (lost != ends_.end()) return *lost;
  if (is_killed_) {
    return {exit_code::kHung, "the trainers did not stop within " +
                                  std::to_string(options_.stop_grace.count() / 1000) +
                                  " s of the request and were killed"};
  }
  // A trainer that was to be started again is none that has ended.
  if (ends_.empty() && !is_stopping_) return {};
  const ProgressReport report = book_.report();
  if (report.total_steps == 0) {
    return {exit_code::kPlannedLeave, "stopped on request before training began"};
  }
  std::string sentence = "stopped on request at step " + std::to_string(report.step) + " of " +
                         std::to_string(report.total_steps);
  if (report.checkpoint_step >= report.step) {
    sentence += ", with a checkpoint";
  } else if (report.checkpoint_step >= 0) {
    sentence +=
        ", the newest checkpoint it knows of is of step " + std::to_string(report.checkpoint_step);
  }
  return {exit_code::kPlannedLeave, sentence};
}

/// Ends what the trainers have started and left behind: orphans come to this process.
void SentinelWorker::kill_leftovers() {
  for (const TrainerProcess& process : processes_) {
    if (process.is_running) (void)kill(-process.trainer.pid, SIGKILL);
  }
  const MonoTime deadline = now() + kLeftoverDeadline;
  while (now() < deadline) {
    for (const pid_t child : list_children()) (void)kill(child, SIGKILL);
    pid_t reaped = 0;
    while ((reaped = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (reaped < 0 && errno == ECHILD) return;
    pollfd waited{signal_fd_, POLLIN, 0};
    (void)poll(&waited, 1, static_cast<int>(kLeftoverPoll.count()));
    take_signals();
  }
  log_error("a process left behind by a trainer does not end");
}

int run_sentinel(const SentinelOptions& options) {
  MUSTER_CHECK(options.clock != nullptr && !options.trainer.program.empty());
  SentinelWorker sentinel(options);
  const Outcome outcome = sentinel.run();
  if (outcome.code != exit_code::kComplete) {
    const auto reason = contract::reason_of_exit_code(outcome.code);
    const bool is_planned = outcome.code == exit_code::kPlannedLeave;
    log(is_planned ? LogLevel::kInfo : LogLevel::kError,
        is_planned ? "worker stopped" : "worker failed",
        {{"exit_code", outcome.code}, {"reason", reason}, {"error", outcome.sentence}});
  }
  sentinel.leave(outcome);
  return outcome.code;
}

void write_termination_log(const WorkerConfig& config, const std::string& text) {
  const int create = config.is_termination_log_given ? O_CREAT | O_TRUNC : 0;
  const int fd = open(config.termination_log.c_str(), O_WRONLY | O_CLOEXEC | create, 0644);
  if (fd < 0) {
    if (config.is_termination_log_given) {
      log_warning("cannot write the termination log",
                  {{"path", config.termination_log}, {"error", std::strerror(errno)}});
    }
    return;
  }
  const std::size_t bytes = std::min(text.size(), kMaxTerminationBytes);
  if (write(fd, text.data(), bytes) != static_cast<ssize_t>(bytes)) {
    log_warning("cannot write the termination log",
                {{"path", config.termination_log}, {"error", std::strerror(errno)}});
  }
  close(fd);
}

}  // namespace muster::sentinel
