// A page shared by a trainer and its sentinel: how far the trainer has come, and that it lives. The
// kernel tells of its death through a robust lock at once; its sockets close and SIGCHLD comes only
// after its memory is freed, which takes up to seconds.
#pragma once

#include <cstdint>
#include <memory>

#include "common/clock.h"
#include "common/result.h"

namespace muster::sentinel {

struct PulsePage;

/// The trainer's end.
class Pulse {
 public:
  /// Maps the page behind `fd` and closes it. The calling thread holds the page's lock until it
  /// ends, so it must be one that lives as long as the process. Errors: kIo.
  static Result<Pulse> open(int fd);
  ~Pulse();
  Pulse(Pulse&& other) noexcept;
  Pulse& operator=(Pulse&&) = delete;

  /// The training thread is alive: to be called at least once between any two long pieces of work,
  /// and in every waiting loop. A trainer that has made a step and then does not beat for three
  /// times its longest steps, at least two seconds, counts as hung; so does one that others wait
  /// for, and that has made none, after a minute. Threads: any. Blocks: no.
  void beat();
  /// Whether the model is being evaluated: a pass of that may have far more rows than a step's, and
  /// has more time. Threads: any. Blocks: no.
  void set_evaluating(bool is_evaluating);

 private:
  explicit Pulse(PulsePage* page) : page_(page) {}
  PulsePage* page_;
};

/// The sentinel's end. Owns its descriptor and mapping.
class PulseMonitor {
 public:
  /// Errors: kIo.
  static Result<std::unique_ptr<PulseMonitor>> make();
  ~PulseMonitor();
  PulseMonitor(const PulseMonitor&) = delete;
  PulseMonitor& operator=(const PulseMonitor&) = delete;

  /// For the trainer, which inherits it.
  int fd() const { return fd_; }
  std::uint64_t beats() const;
  bool is_evaluating() const;
  enum class Life { kNotYet, kAlive, kDead };
  /// Whether a trainer holds the page's lock. kDead is told once seen, for ever. Blocks: until the
  /// holder dies or `timeout` has passed, when it is alive.
  Life wait(milliseconds timeout);

 private:
  PulseMonitor(int fd, PulsePage* page) : fd_(fd), page_(page) {}
  int fd_;
  PulsePage* page_;
};

}  // namespace muster::sentinel
