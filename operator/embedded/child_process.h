// One process of this machine, started in its own process group with its output on a pipe. It is
// killed by the kernel when the thread that started it ends, so nothing outlives a killed muster.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/file.h"
#include "common/result.h"

namespace muster::embedded {

struct ProcessSpec {
  std::vector<std::string> argv;  ///< at least one; the first is looked for along PATH of env
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string working_directory;         ///< empty = that of muster
};

/// How a process ended.
struct ProcessEnd {
  int exit_code = 0;  ///< 128 + signal when a signal ended it, as a container runtime reports it
  int signal = 0;
};

class ChildProcess {
 public:
  /// Starts the program. Threads: the process is killed when the calling thread ends. Blocks: until
  /// the program is being run (milliseconds). Errors: kInvalid or kIo with a sentence that names
  /// the program and the system's words.
  static Result<ChildProcess> start(const ProcessSpec& spec);

  int pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }    ///< readable once the process has ended
  int output() const { return output_.get(); }  ///< its stdout and stderr, non-blocking
  void close_output() { output_.reset(); }

  /// Sends a signal to the whole process group. Only before reap().
  void signal_group(int signal) const;
  /// Kills what is left of the group, as the end of a container does, and collects the process.
  /// Only once pidfd() is readable. Blocks: no.
  ProcessEnd reap();

 private:
  int pid_ = -1;
  UniqueFd pidfd_, output_;
};

/// While it lives, this process may open as many descriptors as its hard limit lets it, for it
/// holds several of each process. Those that it starts have the soft limit of before: they may go
/// through all descriptors that there can be, or call select(). One at a time, beside no other
/// thread.
class MoreDescriptors {
 public:
  MoreDescriptors();
  ~MoreDescriptors();
  MoreDescriptors(const MoreDescriptors&) = delete;
  MoreDescriptors& operator=(const MoreDescriptors&) = delete;
};

/// What a process leaves behind, in whatever group or session, becomes a child of this one while
/// this lives, and is killed with it. For a program whose children are all started and reaped
/// within its life. Children that were there before it are let alone, what they leave in their
/// process groups and in this process's own, and whoever may not be killed. Blocks: in its end,
/// until the last of the others is gone.
/// What of it dies or is killed earlier: end_orphans_of().
class OrphanGuard {
 public:
  OrphanGuard();
  ~OrphanGuard();
  OrphanGuard(const OrphanGuard&) = delete;
  OrphanGuard& operator=(const OrphanGuard&) = delete;
};

/// Kills what a ChildProcess that has ended has left to the OrphanGuard, in whatever group or
/// session: children of this process that it did not start itself and that have `variable`
/// ("NAME=value", of that one program alone) in their environment. All other adopted children go on
/// and are collected when they have died. Without an OrphanGuard: nothing. Blocks: until they are
/// gone, five seconds at most; whoever is not by then goes with the guard.
void end_orphans_of(std::string_view variable);

}  // namespace muster::embedded
