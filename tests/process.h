// A child process of a test: started with exactly the given environment, waited for with a
// deadline, killed when the test ends early.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace muster::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Until process `pid` (any process) has ended, 30 s at most; whether it has.
inline bool wait_for_end(pid_t pid) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return true;
  pollfd state{fd, POLLIN, 0};
  const bool has_ended = poll(&state, 1, 30'000) == 1;
  close(fd);
  return has_ended;
}

class Process {
 public:
  /// `environment`: "NAME=value". stdout and stderr go to `log_path`.
  Process(const std::string& program, const std::vector<std::string>& arguments,
          const std::vector<std::string>& environment, const std::string& log_path) {
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const auto& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
    argv.push_back(nullptr);
    std::vector<char*> envp;
    for (const auto& one : environment) envp.push_back(const_cast<char*>(one.c_str()));
    envp.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      dup2(log, 1);
      dup2(log, 2);
      execve(program.c_str(), argv.data(), envp.data());
      _exit(126);
    }
  }
  ~Process() {
    if (pid_ <= 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  /// Nothing once it was waited for: a signal to -1 would go to every process of the machine.
  void kill(int signal_number) const {
    if (pid_ > 0) (void)::kill(pid_, signal_number);
  }

  /// Its exit code, or 1000 + n for signal n; nothing when it still runs after 30 s.
  std::optional<int> wait() {
    if (!wait_for_end(pid_)) return std::nullopt;
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return std::nullopt;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace muster::test
