// A kubectl of the user's as a child: its output and errors on two pipes. It stays in muster's
// process group and keeps its terminal, because logins may ask there; it dies with muster.
#pragma once

#include <string>
#include <vector>

#include "common/file.h"
#include "common/result.h"

namespace muster::cli {

struct KubeProcessSpec {
  std::string program;                   ///< path of the program
  std::vector<std::string> arguments;    ///< without the program's name
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string input;                     ///< its standard input
  bool has_input = false;                ///< false: it inherits muster's
  bool inherits_output = false;          ///< its output goes where muster's goes
};

/// Threads: one; the process is killed when the thread that started it ends.
class KubeProcess {
 public:
  /// Blocks: until the program is being run (milliseconds). Errors: kIo with the system's words.
  static Result<KubeProcess> start(const KubeProcessSpec& spec);
  KubeProcess(KubeProcess&& other) noexcept;
  KubeProcess& operator=(KubeProcess&& other) noexcept;
  /// Kills a process that still runs.
  ~KubeProcess() { kill_and_reap(); }

  int pidfd() const { return pidfd_.get(); }    ///< readable once it has ended
  int output() const { return output_.get(); }  ///< non-blocking; -1 once closed
  int errors() const { return errors_.get(); }  ///< non-blocking; -1 once closed
  void close_output() { output_.reset(); }
  void close_errors() { errors_.reset(); }

  /// Its exit code; 128 + signal when a signal ended it. Blocks: until it has ended, so only once
  /// pidfd() is readable.
  int reap();
  /// As reap(), after SIGKILL.
  void kill_and_reap();

 private:
  KubeProcess() = default;
  int pid_ = -1;
  UniqueFd pidfd_, output_, errors_;
};

}  // namespace muster::cli
