#include "cli/kubectl.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <optional>

#include "cli/progress_view.h"
#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr std::size_t kMaxErrors = std::size_t{16} << 10;
constexpr std::size_t kMaxSentence = 1000;
/// A login that waits for the user says so on its errors; they are shown once it takes this long.
constexpr milliseconds kPatience{2'000};
constexpr milliseconds kLongestPoll{60'000};

bool is_program(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string value_of(const std::map<std::string, std::string>& map, const std::string& name) {
  const auto found = map.find(name);
  return found == map.end() ? "" : found->second;
}

Result<std::string> find_program(const std::map<std::string, std::string>& environment) {
  const std::string wanted = value_of(environment, "KUBECTL");
  if (wanted.find('/') != std::string::npos) {
    if (is_program(wanted)) return wanted;
    return Error(ErrorCode::kNotFound,
                 "KUBECTL=" + wanted + ": no such program; it must be the path of a kubectl")
        .with_exit_code(codes::kUsage);
  }
  const std::string name = wanted.empty() ? "kubectl" : wanted;
  const std::string path = value_of(environment, "PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string directory = path.substr(begin, end - begin);
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (is_program(candidate)) return candidate;
    begin = end + 1;
  }
  return Error(ErrorCode::kNotFound, "no " + name +
                                         " along PATH; muster reaches the cluster through it: "
                                         "install it, or name it with KUBECTL=/path/to/kubectl")
      .with_exit_code(codes::kUsage);
}

/// The lines that say what is wrong, without the warnings and log lines before them.
std::string last_words(std::string_view errors) {
  std::string text;
  std::size_t begin = 0;
  while (begin < errors.size()) {
    const std::size_t end = std::min(errors.find('\n', begin), errors.size());
    const std::string_view line = errors.substr(begin, end - begin);
    begin = end + 1;
    const bool is_log = line.size() > 5 && std::string_view("IWE").find(line[0]) < 3 &&
                        line.substr(1, 4).find_first_not_of("0123456789") == std::string_view::npos;
    if (line.empty() || is_log || line.starts_with("Warning:")) continue;
    if (!text.empty()) text += "; ";
    text += line;
  }
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return printable(text.substr(0, kMaxSentence));
}

struct Rule {
  std::string_view sign;
  ErrorCode code;
  std::string_view sentence;  ///< put in front of kubectl's words; empty: the words alone
};

constexpr std::array kRules{
    Rule{"the server doesn't have a resource type \"trainingjobs\"", ErrorCode::kUnsupported,
         "the cluster knows no TrainingJobs: Muster is not installed there (helm install muster "
         "charts/muster)"},
    Rule{"(NotFound)", ErrorCode::kNotFound, ""},
    Rule{"(Forbidden)", ErrorCode::kForbidden, "you lack the right"},
    Rule{"(Unauthorized)", ErrorCode::kUnauthorized, "the cluster does not know you"},
    Rule{"You must be logged in", ErrorCode::kUnauthorized, "the cluster does not know you"},
    Rule{"(AlreadyExists)", ErrorCode::kAlreadyExists, ""},
    Rule{"(Conflict)", ErrorCode::kConflict, ""},
    Rule{"(Invalid)", ErrorCode::kInvalid, ""},
    Rule{"Unable to connect to the server", ErrorCode::kUnavailable, "no cluster answers"},
    Rule{"was refused - did you specify the right host or port", ErrorCode::kUnavailable,
         "no cluster answers"},
};

struct Wait {
  MonoTime started;
  MonoTime last_output;
};

std::optional<MonoTime> due_of(const KubectlCall& call, const Wait& wait) {
  std::optional<MonoTime> due;
  if (call.deadline.count() > 0) due = wait.started + call.deadline;
  if (call.idle.count() > 0) {
    const MonoTime idle = wait.last_output + call.idle;
    due = due ? std::min(*due, idle) : idle;
  }
  return due;
}

std::string command_of(const std::vector<std::string>& arguments) {
  return "kubectl " + (arguments.empty() ? std::string() : arguments.front());
}

/// What came from a non-blocking pipe: bytes, nothing now, or its end.
struct Piece {
  std::string_view bytes;
  bool at_end = false;
};

Piece read_piece(int fd, std::array<char, 65536>& buffer) {
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got > 0) return {{buffer.data(), static_cast<std::size_t>(got)}, false};
  const bool is_later = got < 0 && (errno == EAGAIN || errno == EINTR);
  return {{}, !is_later};
}

/// One call from its start to its end.
class Conversation {
 public:
  Conversation(Kubectl& kubectl, const KubectlCall& call,
               const std::function<Status(std::string_view)>& take, KubeProcess process)
      : kubectl_(kubectl), call_(call), take_(take), process_(std::move(process)) {
    const MonoTime now = kubectl_.clock().mono_now();
    wait_ = {now, now};
  }

  Status run();

 private:
  Status turn();
  Status take_output();
  void take_errors();
  void show_errors();
  bool is_over() const { return process_.output() < 0 && process_.errors() < 0; }

  Kubectl& kubectl_;
  const KubectlCall& call_;
  const std::function<Status(std::string_view)>& take_;
  KubeProcess process_;
  Wait wait_;
  std::size_t total_ = 0;
  std::string errors_;
  std::size_t errors_shown_ = 0;
  std::array<char, 65536> buffer_;
};

Status Conversation::take_output() {
  const Piece piece = read_piece(process_.output(), buffer_);
  if (piece.at_end) process_.close_output();
  if (piece.bytes.empty()) return {};
  wait_.last_output = kubectl_.clock().mono_now();
  total_ += piece.bytes.size();
  if (total_ > call_.max_output) {
    return Error(ErrorCode::kTooLarge, command_of(call_.arguments) + ": more than " +
                                           std::to_string(call_.max_output >> 20) +
                                           " MiB came back")
        .with_exit_code(codes::kCluster);
  }
  return take_(piece.bytes);
}

void Conversation::take_errors() {
  const Piece piece = read_piece(process_.errors(), buffer_);
  if (piece.at_end) process_.close_errors();
  if (errors_.size() < kMaxErrors) errors_ += piece.bytes.substr(0, kMaxErrors - errors_.size());
}

/// Whole lines that are not yet shown, once kubectl takes long; not those that become an error.
void Conversation::show_errors() {
  if (kubectl_.clock().mono_now() - wait_.started < kPatience) return;
  for (std::size_t end = errors_.find('\n', errors_shown_); end != std::string::npos;
       end = errors_.find('\n', errors_shown_)) {
    const std::string line = errors_.substr(errors_shown_, end + 1 - errors_shown_);
    errors_shown_ = end + 1;
    if (!line.starts_with("error") && !line.starts_with("Error")) {
      std::fputs(printable(line).c_str(), stderr);
    }
  }
}

Status Conversation::turn() {
  std::array<pollfd, 3> polled{{{process_.output(), POLLIN, 0},
                                {process_.errors(), POLLIN, 0},
                                {call_.ignores_interrupt ? -1 : kubectl_.signal_fd(), POLLIN, 0}}};
  milliseconds longest = kLongestPoll;
  if (!errors_.empty()) longest = kPatience;
  const auto due = due_of(call_, wait_);
  if (due) {
    const auto left = *due - kubectl_.clock().mono_now();
    if (left <= nanoseconds(0)) {
      return Error(
                 ErrorCode::kDeadlineExceeded,
                 command_of(call_.arguments) + ": no answer in " +
                     duration_text(std::chrono::duration<double>(*due - wait_.last_output).count()))
          .with_exit_code(codes::kCluster);
    }
    longest = std::min(longest, std::chrono::ceil<milliseconds>(left));
  }
  ::poll(polled.data(), polled.size(), static_cast<int>(longest.count()));
  if (polled[2].revents != 0 && kubectl_.take_signal()) return interrupted();
  if (polled[0].revents != 0) MUSTER_RETURN_IF_ERROR(take_output());
  if (polled[1].revents != 0) take_errors();
  show_errors();
  return {};
}

Status Conversation::run() {
  while (!is_over()) MUSTER_RETURN_IF_ERROR(turn());
  pollfd ended{process_.pidfd(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(kPatience.count())) != 1) {
    return Error(ErrorCode::kDeadlineExceeded,
                 command_of(call_.arguments) + ": closed its output and did not end")
        .with_exit_code(codes::kCluster);
  }
  const int code = process_.reap();
  if (code == 0 || (call_.keeps_part && total_ > 0)) return {};
  return explain_kubectl(call_.arguments, code, errors_);
}

}  // namespace

Error interrupted() {
  return Error(ErrorCode::kAborted, "interrupted").with_exit_code(codes::kInterrupted);
}

Error explain_kubectl(const std::vector<std::string>& arguments, int exit_code,
                      std::string_view errors) {
  const std::string words = last_words(errors);
  for (const Rule& rule : kRules) {
    if (words.find(rule.sign) == std::string::npos) continue;
    const std::string sentence =
        rule.sentence.empty() ? words : std::string(rule.sentence) + ": " + words;
    return Error(rule.code, sentence).with_exit_code(codes::kCluster);
  }
  const std::string sentence =
      words.empty() ? "ended with exit code " + std::to_string(exit_code) + " and said nothing"
                    : words;
  return Error(ErrorCode::kUnavailable, command_of(arguments) + ": " + sentence)
      .with_exit_code(codes::kCluster);
}

Result<Kubectl> Kubectl::find(const Setting& setting) {
  Kubectl kubectl(setting);
  MUSTER_ASSIGN_OR_RETURN(kubectl.program_, find_program(setting.environment));
  for (const auto& [name, value] : setting.environment) {
    kubectl.environment_.push_back(name + "=" + value);
  }
  return kubectl;
}

bool Kubectl::take_signal() {
  signalfd_siginfo info{};
  if (setting_.signal_fd >= 0 && ::read(setting_.signal_fd, &info, sizeof info) == sizeof info) {
    was_interrupted_ = true;
  }
  return was_interrupted_;
}

void Kubectl::let_signals_end() const {
  if (setting_.signal_fd < 0) return;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Result<KubeProcess> Kubectl::start(const KubectlCall& call, bool inherits_output) const {
  KubeProcessSpec spec;
  spec.program = program_;
  spec.environment = environment_;
  spec.input = call.input;
  spec.has_input = call.has_input;
  spec.inherits_output = inherits_output;
  const KubectlFlags& flags = setting_.flags;
  // After the verb: a plugin's flags may stand in front of nothing else.
  if (!flags.kubeconfig.empty()) spec.arguments.push_back("--kubeconfig=" + flags.kubeconfig);
  if (!flags.context.empty()) spec.arguments.push_back("--context=" + flags.context);
  if (call.is_namespaced && !flags.namespace_name.empty()) {
    spec.arguments.push_back("--namespace=" + flags.namespace_name);
  }
  spec.arguments.insert(spec.arguments.end(), call.arguments.begin(), call.arguments.end());
  return KubeProcess::start(spec);
}

Status Kubectl::stream(const KubectlCall& call,
                       const std::function<Status(std::string_view)>& take) {
  if (was_interrupted_ && !call.ignores_interrupt) return interrupted();
  auto process = start(call);
  if (!process) return process.error().with_exit_code(codes::kCluster);
  return Conversation(*this, call, take, std::move(*process)).run();
}

Result<std::string> Kubectl::run(const KubectlCall& call) {
  std::string output;
  const auto take = [&output](std::string_view piece) -> Status {
    output += piece;
    return {};
  };
  MUSTER_RETURN_IF_ERROR(stream(call, take));
  return output;
}

Result<int> Kubectl::hand_over(const std::vector<std::string>& arguments) {
  KubectlCall call;
  call.arguments = arguments;
  call.deadline = milliseconds(0);
  auto process = start(call, true);
  if (!process) return process.error().with_exit_code(codes::kCluster);
  std::array<char, 65536> buffer;
  while (process->errors() >= 0) {
    std::array<pollfd, 2> polled{{{process->errors(), POLLIN, 0}, {signal_fd(), POLLIN, 0}}};
    ::poll(polled.data(), polled.size(), static_cast<int>(kLongestPoll.count()));
    if (polled[1].revents != 0 && take_signal()) return interrupted();
    if (polled[0].revents == 0) continue;
    const Piece piece = read_piece(process->errors(), buffer);
    std::fwrite(piece.bytes.data(), 1, piece.bytes.size(), stderr);
    if (piece.at_end) process->close_errors();
  }
  pollfd ended{process->pidfd(), POLLIN, 0};
  if (::poll(&ended, 1, static_cast<int>(kPatience.count())) != 1) return codes::kCluster;
  const int code = process->reap();
  // A reader that has seen enough is no fault of the cluster.
  return code == 0 || code == 128 + SIGPIPE ? 0 : codes::kCluster;
}

std::string Kubectl::namespace_in_use() {
  if (!setting_.flags.namespace_name.empty()) return setting_.flags.namespace_name;
  if (!namespace_.empty()) return namespace_;
  KubectlCall call;
  call.arguments = {"config", "view", "--minify", "-o", "jsonpath={..namespace}"};
  call.deadline = milliseconds(5'000);
  const auto said = run(call);
  namespace_ = said && !said->empty() ? printable(*said).substr(0, 63) : "default";
  return namespace_;
}

}  // namespace muster::cli
