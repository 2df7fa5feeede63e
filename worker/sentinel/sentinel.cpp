#include "worker/sentinel/sentinel.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "common/check.h"
#include "common/contract.h"
#include "common/http/server.h"
#include "common/log.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/memory.h"
#include "worker/sentinel/metrics.h"
#include "worker/sentinel/postman.h"
#include "worker/sentinel/progress.h"

namespace muster::sentinel {
namespace {

namespace exit_code = contract::exit_code;

constexpr std::size_t kMaxTerminationBytes = 4096;
constexpr milliseconds kLeftoverDeadline{5'000};
constexpr milliseconds kLeftoverPoll{20};
constexpr milliseconds kLongestPoll{60'000};
constexpr int kExecFailed = 127;

/// How a worker ends: the code and, unless it is 0, the sentence.
struct Outcome {
  int code = exit_code::kComplete;
  std::string sentence;
};

Outcome outcome_of(const Error& error) {
  return {error.exit_code() != 0 ? error.exit_code() : exit_code::kInternal, error.message()};
}

double seconds_between(MonoTime from, MonoTime to) {
  return std::chrono::duration<double>(to - from).count();
}

struct Process {
  Trainer trainer;
  int rank = 0;
  bool is_running = false;
  std::optional<FailureMessage> last_word;
};

/// Process ids of this process' children, orphans it has inherited included.
std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  // The forking thread is the main one, and orphans go to it, too.
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
  for (pid_t pid = 0; file >> pid;) children.push_back(pid);
  return children;
}

class Sentinel {
 public:
  explicit Sentinel(const SentinelOptions& options)
      : options_(options),
        config_(options.config),
        book_(config_.job, config_.slot, config_.attempt, config_.processes),
        metrics_({config_.namespace_name, config_.job_name, config_.slot}, config_.processes) {}

  ~Sentinel() {
    for (const int fd : listeners_) close(fd);
    for (const Process& process : processes_) {
      if (process.trainer.channel_fd >= 0) close(process.trainer.channel_fd);
    }
    if (signal_fd_ >= 0) close(signal_fd_);
  }
  Sentinel(const Sentinel&) = delete;
  Sentinel& operator=(const Sentinel&) = delete;

  Outcome run() {
    if (const Status prepared = prepare(); !prepared) return outcome_of(prepared.error());
    Outcome outcome;
    if (auto stopped = join_and_start()) {
      outcome = std::move(*stopped);
      kill_running();
      watch();
    } else {
      watch();
      outcome = judge();
    }
    kill_leftovers();
    return outcome;
  }

  /// The last word goes to the log first: the endpoint may be gone.
  void leave(const Outcome& outcome) {
    const ProgressReport report = book_.report();
    write_termination_log(config_, outcome.code == exit_code::kComplete
                                       ? termination_message(report)
                                       : outcome.sentence);
    if (postman_) {
      if (book_.has_news()) postman_->set_report(report);
      postman_->finish(book_.has_news() ? options_.final_report_timeout : milliseconds(0));
    }
    if (metrics_server_) metrics_server_->stop();
  }

 private:
  Status prepare() {
    memory_kills_ = count_memory_kills();
    began_at_ = options_.clock->mono_now();
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

  Status open_listeners() {
    request_.job = config_.job;
    request_.slot = config_.slot;
    request_.attempt = config_.attempt;
    request_.contract = contract::kNumericsContract;
    const bool is_any = config_.bind_address == "0.0.0.0" || config_.bind_address == "::";
    request_.host = is_any ? config_.pod_ip : config_.bind_address;
    for (int i = 0; i < config_.processes; ++i) {
      const int port = config_.bind_port == 0 ? 0 : config_.bind_port + i;
      MUSTER_ASSIGN_OR_RETURN(const Listener listener, listen_on(config_.bind_address, port));
      listeners_.push_back(listener.fd);
      request_.ports.push_back(listener.port);
    }
    return {};
  }

  Status serve_metrics() {
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

  /// Nothing when all trainers run; else how the worker ends.
  std::optional<Outcome> join_and_start() {
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
    joined_at_ = options_.clock->mono_now();
    for (int i = 0; i < config_.processes; ++i) {
      metrics_.set_start(i, "join", seconds_between(began_at_, joined_at_));
    }
    auto launches = plan_trainers(config_, (*joined)->request, (*joined)->response);
    if (!launches) return outcome_of(launches.error());
    log_info("gang complete", {{"epoch", (*joined)->response.epoch},
                               {"rank", launches->front().rank},
                               {"world_size", launches->front().peers.size()}});
    for (const TrainerLaunch& launch : *launches) {
      // The descriptor is the trainer's from here on; start_trainer closes ours.
      const int listener =
          std::exchange(listeners_[static_cast<std::size_t>(launch.local_rank)], -1);
      auto trainer = start_trainer(options_.trainer, launch, listener);
      if (!trainer) return outcome_of(trainer.error().with("start a trainer"));
      log_debug("trainer started", {{"pid", trainer->pid}, {"rank", launch.rank}});
      processes_.push_back({*trainer, launch.rank, true, std::nullopt});
    }
    return std::nullopt;
  }

  bool is_any_running() const {
    return std::any_of(processes_.begin(), processes_.end(),
                       [](const Process& process) { return process.is_running; });
  }

  /// Until every trainer has ended.
  void watch() {
    while (is_any_running()) {
      std::vector<pollfd> waited{{signal_fd_, POLLIN, 0}};
      for (const Process& process : processes_) {
        waited.push_back({process.trainer.channel_fd, POLLIN, 0});  // -1 is ignored by poll
      }
      (void)poll(waited.data(), waited.size(), poll_timeout());
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (waited[i + 1].revents != 0) take_messages(i);
      }
      take_signals();
      reap();
      if (kill_at_ && options_.clock->mono_now() >= *kill_at_) kill_running();
    }
  }

  int poll_timeout() const {
    if (!kill_at_) return static_cast<int>(kLongestPoll.count());
    const auto left = std::chrono::ceil<milliseconds>(*kill_at_ - options_.clock->mono_now());
    return static_cast<int>(std::clamp(left, milliseconds(0), kLongestPoll).count());
  }

  void take_signals() {
    signalfd_siginfo info{};
    while (read(signal_fd_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      if (!is_stopping_) {
        log_info("asked to stop", {{"signal", strsignal(static_cast<int>(info.ssi_signo))}});
        kill_at_ = std::min(kill_at_.value_or(MonoTime::max()),
                            options_.clock->mono_now() + options_.stop_grace);
      }
      is_stopping_ = true;
      for (const Process& process : processes_) {
        if (process.is_running) (void)kill(process.trainer.pid, SIGTERM);
      }
    }
  }

  void take_messages(std::size_t index) {
    Process& process = processes_[index];
    const int local_rank = static_cast<int>(index);
    bool is_closed = process.trainer.channel_fd < 0;
    bool has_news = false;
    while (!is_closed) {
      auto message = receive(process.trainer.channel_fd);
      if (!message) {
        log_error("a trainer's message was dropped", {{"error", message.error().message()}});
        continue;
      }
      if (!*message) break;
      has_news = true;
      if (auto* steps = std::get_if<StepsMessage>(&**message)) {
        book_.add(local_rank, *steps);
        metrics_.add(local_rank, *steps);
      } else if (auto* summary = std::get_if<SummaryMessage>(&**message)) {
        book_.add(local_rank, *summary);
        if (!summary->is_final) {
          metrics_.set_start(local_rank, "load",
                             seconds_between(joined_at_, options_.clock->mono_now()));
        }
      } else if (auto* failure = std::get_if<FailureMessage>(&**message)) {
        process.last_word = std::move(*failure);
      }
    }
    if (has_news && book_.has_news()) postman_->set_report(book_.report());
    pollfd state{process.trainer.channel_fd, POLLIN, 0};
    if (!has_news && poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0) {
      close(std::exchange(process.trainer.channel_fd, -1));  // it would keep poll awake
    }
  }

  void reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].trainer.pid == pid) on_end(i, status);
      }
    }
  }

  void on_end(std::size_t index, int status) {
    take_messages(index);
    Process& process = processes_[index];
    process.is_running = false;
    Outcome ended = explain(process, status);
    log_info("trainer ended", {{"rank", process.rank},
                               {"exit_code", ended.code},
                               {"reason", contract::reason_of_exit_code(ended.code)}});
    if (is_killed_ || ended.code == exit_code::kComplete) return;
    ended.sentence = "trainer process " + std::to_string(index) + " (rank " +
                     std::to_string(process.rank) + "): " + ended.sentence;
    ends_.push_back(std::move(ended));
    if (ends_.back().code == exit_code::kPlannedLeave) return;
    // The others cannot go on without it. One that lost its peers waits for the cause: a sibling's
    // sockets may close before its death is known here.
    const bool is_peer_lost = ends_.back().code == exit_code::kPeerLost;
    const MonoTime now = options_.clock->mono_now();
    kill_at_ = std::min(kill_at_.value_or(MonoTime::max()),
                        is_peer_lost ? now + options_.peer_lost_grace : now);
  }

  Outcome explain(const Process& process, int status) const {
    if (WIFSIGNALED(status)) {
      const int signal_number = WTERMSIG(status);
      if (is_stopping_ && (signal_number == SIGTERM || signal_number == SIGINT)) {
        return {exit_code::kPlannedLeave, "stopped on request before it had begun"};
      }
      if (signal_number == SIGKILL && memory_kills_ >= 0 && count_memory_kills() > memory_kills_) {
        return {exit_code::kOutOfMemory,
                "ended by the kernel for want of memory; raise spec.worker.resources.memory"};
      }
      return {exit_code::kInternal, "ended by signal " + std::to_string(signal_number) + " (" +
                                        strsignal(signal_number) + ")"};
    }
    const int code = WEXITSTATUS(status);
    if (process.last_word) return {code, process.last_word->sentence};
    if (code == kExecFailed) {
      return {exit_code::kInternal, "cannot execute " + options_.trainer.program};
    }
    if (code == exit_code::kPlannedLeave) return {code, "stopped on request"};
    return {code, "ended with exit code " + std::to_string(code) + " (" +
                      std::string(contract::reason_of_exit_code(code)) + ") without a word"};
  }

  void kill_running() {
    kill_at_.reset();
    is_killed_ = true;
    for (const Process& process : processes_) {
      if (process.is_running) (void)kill(-process.trainer.pid, SIGKILL);
    }
  }

  Outcome judge() const {
    const auto first = [this](auto wanted) {
      return std::find_if(ends_.begin(), ends_.end(), wanted);
    };
    const auto own = first([](const Outcome& end) {
      return end.code != exit_code::kPeerLost && end.code != exit_code::kPlannedLeave;
    });
    if (own != ends_.end()) return *own;
    const auto lost = first([](const Outcome& end) { return end.code == exit_code::kPeerLost; });
    if (lost != ends_.end()) return *lost;
    if (is_killed_) {
      return {exit_code::kHung, "the trainers did not stop within " +
                                    std::to_string(options_.stop_grace.count() / 1000) +
                                    " s of the request and were killed"};
    }
    if (ends_.empty()) return {};
    const ProgressReport report = book_.report();
    std::string sentence = "stopped on request at step " + std::to_string(report.step) + " of " +
                           std::to_string(report.total_steps);
    sentence += report.checkpoint_path.empty() ? "" : ", with a checkpoint";
    return {exit_code::kPlannedLeave, sentence};
  }

  /// Ends what the trainers have started and left behind: orphans come to this process.
  void kill_leftovers() {
    for (const Process& process : processes_) (void)kill(-process.trainer.pid, SIGKILL);
    const MonoTime deadline = options_.clock->mono_now() + kLeftoverDeadline;
    while (options_.clock->mono_now() < deadline) {
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

  const SentinelOptions& options_;
  const WorkerConfig& config_;
  ProgressBook book_;
  Metrics metrics_;
  JoinRequest request_;
  int signal_fd_ = -1;
  std::int64_t memory_kills_ = -1;
  std::vector<int> listeners_;
  std::vector<Process> processes_;  ///< by local rank
  std::vector<Outcome> ends_;       ///< of trainers that did not end with 0, in order
  MonoTime began_at_{}, joined_at_{};
  std::optional<MonoTime> kill_at_;
  bool is_stopping_ = false;
  bool is_killed_ = false;  ///< what ends from now on was killed here
  std::unique_ptr<Postman> postman_;
  std::unique_ptr<http::Server> metrics_server_;
};

}  // namespace

int run_sentinel(const SentinelOptions& options) {
  MUSTER_CHECK(options.clock != nullptr && !options.trainer.program.empty());
  Sentinel sentinel(options);
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
