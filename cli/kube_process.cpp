#include "cli/kube_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <utility>

namespace muster::cli {
namespace {

/// As much as a pipe holds: one read takes all that lies there.
constexpr std::size_t kPipeBytes = 65'536;

std::string system_words(int number) { return std::generic_category().message(number); }

struct Pipe {
  UniqueFd read_end, write_end;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error(ErrorCode::kIo, "cannot make a pipe: " + system_words(errno));
  }
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// A file in memory with `text`, to be read from its start.
Result<UniqueFd> make_input(const std::string& text) {
  UniqueFd file(::memfd_create("muster-input", MFD_CLOEXEC));
  if (!file) {
    return Error(ErrorCode::kIo, "cannot make a file in memory: " + system_words(errno));
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Error(ErrorCode::kIo, "cannot write in memory: " + system_words(errno));
    done += static_cast<std::size_t>(wrote);
  }
  ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

/// All the child needs, made before fork: afterwards nothing may allocate.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  int input_fd;  ///< -1: muster's own
  int output_fd, errors_fd;
  int failure_fd;
  bool ignores_interrupt;
  pid_t parent;
};

/// Runs in the child between fork and exec; async-signal-safe calls only.
[[noreturn]] void become_program(const ChildPlan& plan) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before prctl
  // What muster itself ignores; what its user does (nohup a hang-up), kubectl shall ignore, too.
  ::signal(SIGPIPE, SIG_DFL);
  if (plan.ignores_interrupt) {
    // Go's programs leave these two ignored where they begin so; a SIGTERM they would not.
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.input_fd >= 0) ::dup2(plan.input_fd, 0);
  ::dup2(plan.output_fd, 1);
  ::dup2(plan.errors_fd, 2);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(plan.program, plan.argv, plan.environment);
  const int failure = errno;
  const ssize_t told = ::write(plan.failure_fd, &failure, sizeof failure);
  ::_exit(told == sizeof failure ? 127 : 126);
}

/// What lies in a non-blocking pipe, as much as fits; at its end the pipe is closed.
std::string_view read_piece(UniqueFd& pipe, std::span<char> buffer) {
  if (!pipe) return {};
  const ssize_t got = ::read(pipe.get(), buffer.data(), buffer.size());
  if (got > 0) return {buffer.data(), static_cast<std::size_t>(got)};
  const bool is_later = got < 0 && (errno == EAGAIN || errno == EINTR);
  if (!is_later) pipe.reset();
  return {};
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  // execve does not write through these pointers; its signature is older than const.
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

KubeProcess::KubeProcess(KubeProcess&& other) noexcept { *this = std::move(other); }

KubeProcess& KubeProcess::operator=(KubeProcess&& other) noexcept {
  if (this != &other) {
    kill_and_reap();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    output_ = std::move(other.output_);
    errors_ = std::move(other.errors_);
    words_ = std::move(other.words_);
    exit_code_ = other.exit_code_;
    quiet_since_ = other.quiet_since_;
    is_over_ = other.is_over_;
  }
  return *this;
}

Result<KubeProcess> KubeProcess::start(const KubeProcessSpec& spec) {
  MUSTER_ASSIGN_OR_RETURN(Pipe output, make_pipe());
  MUSTER_ASSIGN_OR_RETURN(Pipe errors, make_pipe());
  MUSTER_ASSIGN_OR_RETURN(Pipe failure, make_pipe());
  UniqueFd input;
  if (spec.has_input) {
    MUSTER_ASSIGN_OR_RETURN(input, make_input(spec.input));
  }
  std::vector<std::string> words{spec.program};
  words.insert(words.end(), spec.arguments.begin(), spec.arguments.end());
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> environment = pointers_to(spec.environment);
  const ChildPlan plan{spec.program.c_str(),
                       argv.data(),
                       environment.data(),
                       input.get(),
                       output.write_end.get(),
                       errors.write_end.get(),
                       failure.write_end.get(),
                       spec.ignores_interrupt,
                       ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Error(ErrorCode::kIo, "cannot start " + spec.program + ": " + system_words(errno));
  }
  if (pid == 0) become_program(plan);
  output.write_end.reset();
  errors.write_end.reset();
  failure.write_end.reset();
  KubeProcess child;
  child.pid_ = pid;
  child.pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  int refused = child.pidfd_ ? 0 : errno;
  ssize_t got = -1;
  int told = 0;
  do {
    got = ::read(failure.read_end.get(), &told, sizeof told);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof told) refused = told;
  if (refused != 0) {  // the destructor ends the child
    return Error(ErrorCode::kIo, "cannot start " + spec.program + ": " + system_words(refused));
  }
  child.output_ = std::move(output.read_end);
  child.errors_ = std::move(errors.read_end);
  ::fcntl(child.output_.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(child.errors_.get(), F_SETFL, O_NONBLOCK);
  return child;
}

std::array<pollfd, 3> KubeProcess::waits() const {
  return {{{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}, {pidfd_.get(), POLLIN, 0}}};
}

std::optional<MonoTime> KubeProcess::due() const {
  return exit_code_ && !is_over_ ? std::optional(quiet_since_ + kEndGrace) : std::nullopt;
}

KubeProcess::Words KubeProcess::hear(MonoTime now, std::span<char> buffer) {
  // Before the pipes are read: what was written before its end is then among what is read.
  pollfd ended{pidfd_.get(), POLLIN, 0};
  if (!exit_code_ && ::poll(&ended, 1, 0) == 1) {
    reap();
    quiet_since_ = now;
  }
  Words words;
  if (!buffer.empty()) words.output = read_piece(output_, buffer);
  std::array<char, kPipeBytes> piece;
  const std::string_view errors = read_piece(errors_, piece);
  words_ += errors.substr(0, kMostErrors - words_.size());
  words.has_errors = !errors.empty();
  if (buffer.empty() || !words.output.empty()) quiet_since_ = now;
  const bool is_closed = !output_ && !errors_;
  is_over_ = exit_code_ && (is_closed || (!buffer.empty() && now >= quiet_since_ + kEndGrace));
  return words;
}

void KubeProcess::reap() {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
  }
  pid_ = -1;
  pidfd_.reset();
  exit_code_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void KubeProcess::kill_and_reap() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  reap();
}

}  // namespace muster::cli
