#include "cli/kubectl.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>

#include "cli/progress_view.h"
#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr std::size_t kMaxSentence = 1000;
/// A login that waits for the user says so on its errors; they are shown once it takes this long.
constexpr milliseconds kPatience{2'000};
/// Longer than a person takes who types what a telephone shows.
constexpr milliseconds kLoginPatience{300'000};
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
    Rule{"forbidden: User \"", ErrorCode::kForbidden, "you lack the right"},
    // As a quota, a LimitRange or Pod Security says it, to somebody who has the right.
    Rule{"(Forbidden)", ErrorCode::kForbidden, ""},
    Rule{"(Unauthorized)", ErrorCode::kUnauthorized, "the cluster does not know you"},
    Rule{"You must be logged in", ErrorCode::kUnauthorized, "the cluster does not know you"},
    Rule{"(AlreadyExists)", ErrorCode::kAlreadyExists, ""},
    Rule{"(Conflict)", ErrorCode::kConflict, ""},
    Rule{"(Invalid)", ErrorCode::kInvalid, ""},
    Rule{"Unable to connect to the server", ErrorCode::kUnavailable, "no cluster answers"},
    Rule{"was refused - did you specify the right host or port", ErrorCode::kUnavailable,
         "no cluster answers"},
};

std::string command_of(const std::vector<std::string>& arguments) {
  return "kubectl " + (arguments.empty() ? std::string() : arguments.front());
}

/// One call from its start to its end.
class Conversation {
 public:
  Conversation(Kubectl& kubectl, const KubectlCall& call,
               const std::function<Status(std::string_view)>& take, KubeProcess process)
      : kubectl_(kubectl), call_(call), take_(take), process_(std::move(process)) {
    progress_.started = progress_.heard = kubectl_.clock().mono_now();
  }

  Status run();

 private:
  Status turn();
  Status take_output(std::string_view output);
  void show_errors();

  Kubectl& kubectl_;
  const KubectlCall& call_;
  const std::function<Status(std::string_view)>& take_;
  KubeProcess process_;
  KubectlProgress progress_;
  std::size_t total_ = 0;
  std::size_t errors_shown_ = 0;
  std::array<char, 65536> buffer_;
};

Status Conversation::take_output(std::string_view output) {
  total_ += output.size();
  if (total_ > call_.max_output) {
    return Error(ErrorCode::kTooLarge, command_of(call_.arguments) + ": more than " +
                                           std::to_string(call_.max_output >> 20) +
                                           " MiB came back")
        .with_exit_code(codes::kCluster);
  }
  return take_(output);
}

/// What it has said since the last time, also of a line that has not ended, as a question; not what
/// becomes an error.
void Conversation::show_errors() {
  const std::string& errors = process_.errors();
  while (errors_shown_ < errors.size()) {
    const std::size_t end = std::min(errors.find('\n', errors_shown_), errors.size() - 1) + 1;
    const std::string line = errors.substr(errors_shown_, end - errors_shown_);
    errors_shown_ = end;
    if (!line.starts_with("error") && !line.starts_with("Error")) {
      std::fputs(printable(line).c_str(), stderr);
    }
  }
}

Status Conversation::turn() {
  const auto waits = process_.waits();
  const int signal_fd = call_.ignores_interrupt ? -1 : kubectl_.signal_fd();
  std::array<pollfd, 4> polled{waits[0], waits[1], waits[2], {signal_fd, POLLIN, 0}};
  MonoTime next = kubectl_.clock().mono_now() + kLongestPoll;
  if (errors_shown_ < process_.errors().size()) next = progress_.started + kPatience;
  if (const auto due = process_.due()) next = std::min(next, *due);
  if (const auto limit = limit_of(call_, progress_)) next = std::min(next, limit->due);
  const auto left = std::max(nanoseconds(0), next - kubectl_.clock().mono_now());
  ::poll(polled.data(), polled.size(),
         static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  if (polled[3].revents != 0 && kubectl_.take_signal()) return interrupted();
  const MonoTime now = kubectl_.clock().mono_now();
  const KubeProcess::Words words = process_.hear(now, buffer_);
  if (!words.is_silent()) progress_.heard = now;
  if (words.has_errors) progress_.has_words = !last_words(process_.errors()).empty();
  if (now - progress_.started >= kPatience) show_errors();
  if (!words.output.empty()) {
    progress_.has_output = true;
    MUSTER_RETURN_IF_ERROR(take_output(words.output));
    progress_.heard = kubectl_.clock().mono_now();  // who takes it may wait for a reader
  }
  const auto limit = limit_of(call_, progress_);
  const bool is_late = limit && limit->due <= now && !process_.exit_code();
  return is_late ? Status(no_answer(call_.arguments, limit->length)) : Status();
}

Status Conversation::run() {
  while (!process_.exit_code()) MUSTER_RETURN_IF_ERROR(turn());
  const int code = *process_.exit_code();
  if (code == 0 && call_.tells_all) show_errors();
  if (code == 0 || (call_.keeps_part && total_ > 0)) return {};
  return explain_kubectl(call_.arguments, code, process_.errors());
}

}  // namespace

Error interrupted() {
  return Error(ErrorCode::kAborted, "interrupted").with_exit_code(codes::kInterrupted);
}

Error no_answer(const std::vector<std::string>& arguments, milliseconds length) {
  return Error(ErrorCode::kDeadlineExceeded,
               command_of(arguments) + ": no answer in " + duration_text(seconds_of(length)))
      .with_exit_code(codes::kCluster);
}

std::optional<KubectlLimit> limit_of(const KubectlCall& call, const KubectlProgress& progress) {
  std::optional<KubectlLimit> first;
  if (call.deadline.count() > 0) first = {progress.started + call.deadline, call.deadline};
  if (call.silence.count() == 0) return first;
  const bool is_login = progress.has_words && !progress.has_output;
  const milliseconds silence = is_login ? std::max(call.silence, kLoginPatience) : call.silence;
  const MonoTime due = progress.heard + silence;
  return first && first->due <= due ? first : KubectlLimit{due, silence};
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

Result<KubeProcess> Kubectl::start(const KubectlCall& call) const {
  KubeProcessSpec spec;
  spec.program = program_;
  spec.environment = environment_;
  spec.input = call.input;
  spec.has_input = call.has_input;
  spec.ignores_interrupt = call.ignores_interrupt;
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
