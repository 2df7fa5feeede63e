// A system that gives a process few threads, for one test.
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <iterator>

namespace muster::test {

/// This process gets `more` threads and processes beside those that it has, for good; where another
/// user than root runs the test, none. Whether that could be done.
inline bool give_few_threads(rlim_t more) {
  rlim_t most = 0;
  if (geteuid() == 0) {
    // The limit is on all that a user has, and root is above it. What this process was allowed to
    // open, it still is.
    const uid_t nobody_else = 1'000'000 + static_cast<uid_t>(getpid());
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    if (setresuid(nobody_else, 0, 0) != 0 || syscall(SYS_capset, &header, none) != 0) return false;
    const std::filesystem::directory_iterator threads("/proc/self/task");
    most = static_cast<rlim_t>(std::distance(begin(threads), end(threads))) + more;
  }
  const rlimit limit{most, most};
  return setrlimit(RLIMIT_NPROC, &limit) == 0;
}

/// Whether `holds` says so in a process of its own that gets `more` threads.
inline bool with_few_threads(rlim_t more, const std::function<bool()>& holds) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would tell of it
    try {
      _exit(give_few_threads(more) && holds() ? 0 : 1);
    } catch (...) {
      _exit(2);
    }
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace muster::test
