#include "operator/embedded/child_process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>

namespace muster::embedded {
namespace {

constexpr int kDeadlineMs = 30'000;

ChildProcess start_shell(const std::string& script, const std::string& variable = "A=1") {
  auto child =
      ChildProcess::start({{"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin", variable}, "/"});
  if (!child) FAIL(child.error().message());
  return std::move(*child);
}

/// Everything written until the end of file.
std::string output_of(const ChildProcess& child) {
  std::string output;
  for (;;) {
    pollfd polled{child.output(), POLLIN, 0};
    REQUIRE(::poll(&polled, 1, kDeadlineMs) == 1);
    char piece[4096];
    const ssize_t got = ::read(child.output(), piece, sizeof piece);
    if (got <= 0) return output;
    output.append(piece, static_cast<std::size_t>(got));
  }
}

ProcessEnd end_of(ChildProcess& child) {
  pollfd polled{child.pidfd(), POLLIN, 0};
  REQUIRE(::poll(&polled, 1, kDeadlineMs) == 1);
  return child.reap();
}

/// One line of output, for children that go on living.
std::string line_of(const ChildProcess& child) {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    pollfd polled{child.output(), POLLIN, 0};
    REQUIRE(::poll(&polled, 1, kDeadlineMs) == 1);
    char byte = 0;
    REQUIRE(::read(child.output(), &byte, 1) == 1);
    line += byte;
  }
  line.pop_back();
  return line;
}

TEST_CASE("a process reports its output, exit code and signal") {
  ChildProcess child = start_shell("echo out; echo err >&2; pwd; echo $A; exit 7");
  CHECK(output_of(child) == "out\nerr\n/\n1\n");
  const ProcessEnd end = end_of(child);
  CHECK(end.exit_code == 7);
  CHECK(end.signal == 0);

  ChildProcess killed = start_shell("kill -KILL $$");
  const ProcessEnd by_signal = end_of(killed);
  CHECK(by_signal.exit_code == 128 + SIGKILL);
  CHECK(by_signal.signal == SIGKILL);
}

TEST_CASE("a process has no descriptor of its parent, no blocked signal and reads nothing") {
  const int leaked = ::open("/", O_RDONLY);  // deliberately not close-on-exec
  REQUIRE(leaked >= 0);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  REQUIRE(pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  ChildProcess child = start_shell("cat; ls /proc/self/fd | wc -l");
  // Not through a shell, which clears the mask itself.
  auto masked = ChildProcess::start({{"grep", "SigBlk", "/proc/self/status"}, {}, ""});
  REQUIRE(pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  // 0, 1, 2 and the directory that ls itself reads.
  CHECK(output_of(child) == "4\n");
  CHECK(end_of(child).exit_code == 0);
  REQUIRE(masked);
  CHECK(output_of(*masked) == "SigBlk:\t0000000000000000\n");
  CHECK(end_of(*masked).exit_code == 0);
  ::close(leaked);
}

TEST_CASE("a process may have as many descriptors as its parent before that took more") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{64, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  {
    const MoreDescriptors more;
    rlimit raised{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &raised) == 0);
    CHECK(raised.rlim_cur == before.rlim_max);
    ChildProcess child = start_shell("ulimit -Sn");
    CHECK(output_of(child) == "64\n");
    CHECK(end_of(child).exit_code == 0);
  }
  rlimit after{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == 64);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("what a process left behind in its group ends with it") {
  ChildProcess child = start_shell("sh -c 'trap \"\" TERM; echo ready; exec sleep 1000' & wait");
  REQUIRE(line_of(child).find("ready") != std::string::npos);
  child.signal_group(SIGTERM);  // the orphan ignores it, the shell does not
  CHECK(end_of(child).signal == SIGTERM);
  // The orphan holds the pipe: its end shows as the end of the file, and a living one would keep
  // this waiting until the deadline.
  output_of(child);
}

TEST_CASE("what a process left behind in another session is ended by its environment alone") {
  constexpr const char* kScript = "setsid sh -c 'sleep 1000 & echo $$; exec sleep 1000' & wait";
  const OrphanGuard guard;
  ChildProcess one = start_shell(kScript), other = start_shell(kScript, "A=11");
  line_of(one);
  const int left = std::stoi(line_of(other));
  for (ChildProcess* process : {&one, &other}) {
    process->signal_group(SIGTERM);
    CHECK(end_of(*process).signal == SIGTERM);
  }
  ChildProcess living = start_shell("echo ready; exec sleep 1000");  // it was started, not left
  line_of(living);
  end_orphans_of("A=1");
  CHECK(output_of(one).empty());  // until nobody holds it
  CHECK(::kill(left, 0) == 0);
  pollfd ended{living.pidfd(), POLLIN, 0};
  CHECK(::poll(&ended, 1, 0) == 0);
  end_orphans_of("A=11");
  CHECK(output_of(other).empty());
  CHECK(::kill(left, 0) != 0);  // nor is it a zombie
  living.signal_group(SIGKILL);
  CHECK(end_of(living).signal == SIGKILL);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // there is no child any more
}

TEST_CASE("a child that was there before the guard is none of its orphans") {
  std::string program = "/bin/sleep", seconds = "1000", variable = "A=1";
  char* const argv[] = {program.data(), seconds.data(), nullptr};
  char* const environment[] = {variable.data(), nullptr};
  pid_t before = -1;
  REQUIRE(::posix_spawn(&before, program.c_str(), nullptr, nullptr, argv, environment) == 0);
  {
    const OrphanGuard guard;
    ChildProcess child = start_shell("setsid sh -c 'echo ready; exec sleep 1000' & wait", "A=2");
    line_of(child);
    child.signal_group(SIGTERM);
    CHECK(end_of(child).signal == SIGTERM);
    end_orphans_of("A=1");
    CHECK(::waitpid(before, nullptr, WNOHANG) == 0);  // it lives
  }
  CHECK(::waitpid(-1, nullptr, WNOHANG) == 0);  // it lives, and what was left behind is collected
  CHECK(::kill(before, SIGKILL) == 0);
  CHECK(::waitpid(-1, nullptr, 0) == before);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("what a child that was there before the guard leaves behind is none of its orphans") {
  // As a shell's process substitution does that has something run on.
  FILE* const before = ::popen("sleep 1000 > /dev/null & echo $$ $!; wait", "r");
  REQUIRE(before != nullptr);
  int shell = -1, left = -1;
  REQUIRE(std::fscanf(before, "%d %d", &shell, &left) == 2);
  {
    const OrphanGuard guard;
    CHECK(::kill(shell, SIGKILL) == 0);
    ::pclose(before);
  }
  CHECK(::waitpid(left, nullptr, WNOHANG) == 0);  // it lives, and was adopted
  CHECK(::kill(left, SIGKILL) == 0);
  CHECK(::waitpid(left, nullptr, 0) == left);
}

TEST_CASE("a program that cannot be started is named with the system's words") {
  struct Row {
    std::vector<std::string> argv;
    std::string directory, message;
  };
  const Row rows[] = {
      {{"no-such-program"},
       "",
       "cannot start no-such-program: no such program along PATH (/usr/bin:/bin)"},
      {{"/no/such/program"}, "", "cannot start /no/such/program: No such file or directory"},
      {{"/etc/passwd"}, "", "cannot start /etc/passwd: Permission denied"},
      {{"/bin/sh"}, "/no/such", "cannot enter /no/such: No such file or directory"},
      {{""}, "", "the command is empty"},
  };
  for (const Row& row : rows) {
    auto child = ChildProcess::start({row.argv, {"PATH=/usr/bin:/bin"}, row.directory});
    REQUIRE_FALSE(child);
    CHECK(child.error().message() == row.message);
  }
}

}  // namespace
}  // namespace muster::embedded
