#include "operator/embedded/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>

#include "common/check.h"
#include "common/descriptor_limit.h"

namespace muster::embedded {
namespace {

/// glibc 2.36 declares pidfd_open without C linkage.
int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

std::string system_words(int error_number) { return std::generic_category().message(error_number); }

/// Where the program stands: as written when it has a slash, else along PATH. The child must not
/// search: between fork and exec only async-signal-safe calls are allowed.
Result<std::string> find_program(const ProcessSpec& spec) {
  const std::string& program = spec.argv[0];
  if (program.empty()) return Error(ErrorCode::kInvalid, "the command is empty");
  if (program.find('/') != std::string::npos) return program;
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const std::string& variable : spec.environment) {
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  }
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    const std::string directory = path.substr(begin, end - begin);
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + program;
    struct stat found{};
    if (::stat(candidate.c_str(), &found) == 0 && S_ISREG(found.st_mode) &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    begin = end + 1;
  }
  return Error(ErrorCode::kInvalid,
               "cannot start " + program + ": no such program along PATH (" + path + ")");
}

/// What the child tells its parent when it cannot become the program.
struct ChildFailure {
  int error_number;
  int in_working_directory;  ///< 1 = chdir failed, 0 = exec failed
};

/// All the child needs, made before fork: afterwards nothing may allocate.
struct ChildPlan {
  const char* program;
  const char* working_directory;  ///< nullptr = stay
  char* const* argv;
  char* const* environment;
  int null_fd, output_fd, failure_fd;
  const rlimit* descriptors;  ///< nullptr = those of the parent
  pid_t parent;
};

/// Runs in the child between fork and exec; async-signal-safe calls only.
[[noreturn]] void become_program(const ChildPlan& plan) {
  ChildFailure failure{0, 0};
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(127);  // the parent died before prctl
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(plan.null_fd, 0);
  ::dup2(plan.output_fd, 1);
  ::dup2(plan.output_fd, 2);
  // Sockets of libraries are not all close-on-exec; a worker must not hold muster's ports.
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (plan.descriptors != nullptr) (void)::setrlimit(RLIMIT_NOFILE, plan.descriptors);
  if (plan.working_directory != nullptr && ::chdir(plan.working_directory) != 0) {
    failure = {errno, 1};
  } else {
    ::execve(plan.program, plan.argv, plan.environment);
    failure = {errno, 0};
  }
  const ssize_t told = ::write(plan.failure_fd, &failure, sizeof failure);
  ::_exit(told == sizeof failure ? 127 : 126);
}

/// What MoreDescriptors found.
std::optional<rlimit>& found_descriptors() {
  static std::optional<rlimit> found;
  return found;
}

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  // execve does not write through these pointers; its signature is older than const.
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

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

/// Waits until the child is the program (end of file) or tells why not.
Status await_exec(const UniqueFd& failure_pipe, const ProcessSpec& spec) {
  ChildFailure failure{};
  ssize_t got = -1;
  do {
    got = ::read(failure_pipe.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) return {};
  if (failure.in_working_directory == 1) {
    return Error(ErrorCode::kIo, "cannot enter " + spec.working_directory + ": " +
                                     system_words(failure.error_number));
  }
  return Error(ErrorCode::kInvalid,
               "cannot start " + spec.argv[0] + ": " + system_words(failure.error_number));
}

/// "<pid> (<name>) <state> <parent> ...", where the name may hold anything.
bool is_child(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream rest(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  return static_cast<bool>(rest >> state >> parent) && parent == ::getpid();
}

std::vector<pid_t> children() {
  std::vector<pid_t> found;
  std::error_code ignored;  // without /proc none is found
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos || !is_child(name)) continue;
    found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

/// Who was there before a guard. Their own children, once adopted, are known by the process group:
/// a ChildProcess is in one of its own, with what it starts.
struct Others {
  std::set<pid_t> children, groups;

  bool contains(pid_t pid) const {
    return children.contains(pid) || groups.contains(::getpgid(pid));
  }
};

/// Gives the children that are to die. Whoever may not be killed, as a program of another user's
/// rights, is spared from then on: nobody knows when it ends.
std::vector<pid_t> kill_all_but(Others& spared) {
  std::vector<pid_t> dying;
  for (const pid_t pid : children()) {
    if (spared.contains(pid)) continue;
    if (::kill(pid, SIGKILL) == 0) {
      dying.push_back(pid);
    } else {
      spared.children.insert(pid);
    }
  }
  return dying;
}

constexpr int kLooksMost = 100, kLookMs = 50;

/// Which children this process has started, until they are reaped; all others were adopted. The
/// mutex is held from a fork until its child is in here, and while children are reaped: a number
/// that is free may be another's at once.
struct Family {
  std::mutex mutex;
  std::set<pid_t> started;  // guarded by mutex
  int guards = 0;           // guarded by mutex
  /// Children that were there before the first guard, as a shell's process substitution is. Nobody
  /// reaps them here, so their numbers stay theirs. Guarded by mutex.
  Others before;
};

Family& family() {
  static Family one;
  return one;
}

pid_t fork_into_family() {
  const std::lock_guard lock(family().mutex);
  const pid_t pid = ::fork();
  if (pid > 0) family().started.insert(pid);
  return pid;
}

/// Of a child that was started here and has ended, or is about to.
siginfo_t collect(pid_t pid) {
  const std::lock_guard lock(family().mutex);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
  family().started.erase(pid);
  return info;
}

bool has_variable(pid_t pid, std::string_view variable) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  std::string text(1, '\0');
  text.append(std::istreambuf_iterator<char>(file), {});
  return text.find('\0' + std::string(variable) + '\0') != std::string::npos;
}

/// Collects whoever was adopted and is dead, and kills whoever lives with `variable`, or is one of
/// `dying`, who may have no environment any more. Gives those who are to die yet.
std::set<pid_t> kill_orphans(std::string_view variable, const std::set<pid_t>& dying) {
  const std::lock_guard lock(family().mutex);
  std::set<pid_t> left;
  if (family().guards == 0) return left;
  for (const pid_t pid : children()) {
    if (family().started.contains(pid) || family().before.children.contains(pid)) continue;
    if (::waitpid(pid, nullptr, WNOHANG) == pid) continue;
    if (!dying.contains(pid) && !has_variable(pid, variable)) continue;
    if (::kill(pid, SIGKILL) == 0) left.insert(pid);
  }
  return left;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(const ProcessSpec& spec) {
  MUSTER_CHECK(!spec.argv.empty());
  MUSTER_ASSIGN_OR_RETURN(const std::string program, find_program(spec));
  MUSTER_ASSIGN_OR_RETURN(Pipe output, make_pipe());
  MUSTER_ASSIGN_OR_RETURN(Pipe failure, make_pipe());
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) {
    return Error(ErrorCode::kIo, "/dev/null: open: " + system_words(errno));
  }
  const std::vector<char*> argv = pointers_to(spec.argv);
  const std::vector<char*> environment = pointers_to(spec.environment);
  const ChildPlan plan{program.c_str(),
                       spec.working_directory.empty() ? nullptr : spec.working_directory.c_str(),
                       argv.data(),
                       environment.data(),
                       null.get(),
                       output.write_end.get(),
                       failure.write_end.get(),
                       found_descriptors() ? &*found_descriptors() : nullptr,
                       ::getpid()};
  const pid_t pid = fork_into_family();
  if (pid < 0) {
    return Error(ErrorCode::kIo, "cannot start " + spec.argv[0] + ": " + system_words(errno));
  }
  if (pid == 0) become_program(plan);
  ::setpgid(pid, pid);  // also here: the group must exist before a signal is sent to it
  output.write_end.reset();
  failure.write_end.reset();
  ChildProcess child;
  child.pid_ = pid;
  child.pidfd_ = UniqueFd(open_pidfd(pid));
  const int pidfd_error = errno;
  child.output_ = std::move(output.read_end);
  Status started = await_exec(failure.read_end, spec);
  if (started && !child.pidfd_) {
    child.signal_group(SIGKILL);
    started =
        Error(ErrorCode::kIo, "cannot watch " + spec.argv[0] + ": " + system_words(pidfd_error));
  }
  if (!started) {
    (void)collect(pid);
    return started.error();
  }
  ::fcntl(child.output_.get(), F_SETFL, O_NONBLOCK);
  return child;
}

void ChildProcess::signal_group(int signal) const { ::kill(-pid_, signal); }

ProcessEnd ChildProcess::reap() {
  // The dead leader still holds its process group's number, so the group cannot be another's.
  signal_group(SIGKILL);
  const siginfo_t info = collect(pid_);
  pid_ = -1;
  pidfd_.reset();
  if (info.si_code == CLD_EXITED) return {info.si_status, 0};
  return {128 + info.si_status, info.si_status};
}

MoreDescriptors::MoreDescriptors() {
  rlimit found{};
  if (raise_descriptor_limit(&found) > found.rlim_cur) found_descriptors() = found;
}

MoreDescriptors::~MoreDescriptors() {
  if (found_descriptors()) (void)::setrlimit(RLIMIT_NOFILE, &*found_descriptors());
  found_descriptors().reset();
}

OrphanGuard::OrphanGuard() {
  const std::lock_guard lock(family().mutex);
  if (family().guards++ == 0) {
    // Before anybody can be adopted.
    const std::vector<pid_t> there = children();
    family().before = {{there.begin(), there.end()}, {::getpgrp()}};
    for (const pid_t pid : there) family().before.groups.insert(::getpgid(pid));
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

OrphanGuard::~OrphanGuard() {
  Others spared;
  {
    const std::lock_guard lock(family().mutex);
    spared = family().before;
    if (--family().guards == 0) family().before = {};
  }
  // Those that end leave their own children to this process.
  for (std::vector<pid_t> dying = kill_all_but(spared); !dying.empty();
       dying = kill_all_but(spared)) {
    for (const pid_t pid : dying) {
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

void end_orphans_of(std::string_view variable) {
  // Those that end leave their own children to this process.
  std::set<pid_t> dying;
  for (int look = 0; look < kLooksMost; ++look) {
    dying = kill_orphans(variable, dying);
    if (dying.empty()) return;
    const UniqueFd end(open_pidfd(*dying.begin()));
    pollfd polled{end.get(), POLLIN, 0};
    ::poll(&polled, 1, kLookMs);
  }
}

}  // namespace muster::embedded
