// Jobs of a trace on a cluster, in virtual time, under the operator's own rules or under models of
// others'. Pure: a scheduler is told what comes and ends, and tells who has places.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "operator/api/training_job.h"

namespace muster::runtime {

/// A job of the past: what it asked for, when, and how long it ran with all of its workers. One of
/// the engine's (spec.training) with a `min` below its count is elastic; with fewer workers it runs
/// in proportion longer.
struct TraceJob {
  Json manifest;          ///< of a TrainingJob, with the cluster's way of saying who it is
  api::TrainingJob job;   ///< the same, read
  milliseconds submit{};  ///< after the start of the trace
  milliseconds duration{};
};

/// Who has places.
class SimulatedScheduler {
 public:
  struct Change {
    std::size_t job = 0;  ///< in the trace
    int workers = 0;      ///< that run from now on
    int leaves = 0;       ///< leaf domains they stand in; 0: nothing is known of the network
    std::vector<std::string> nodes{};  ///< of the workers
    bool is_given_up = false;  ///< the scheduler has ended it before it was done, by its deadline
  };
  virtual ~SimulatedScheduler() = default;
  /// Both only take note: deciding is run()'s, so that it can be timed.
  virtual void submit(std::size_t job) = 0;
  virtual void end(std::size_t job) = 0;
  /// Decides until then, but no longer than until somebody's places have changed; when it stopped.
  virtual milliseconds run(milliseconds until) = 0;
  virtual std::vector<Change> take_changes() = 0;
};

/// The operator itself (operator/runtime/what_if.h), every pod running as soon as it is made.
/// `objects`: nodes, queues and what else the operator watches; jobs and pods among them are left
/// out.
std::unique_ptr<SimulatedScheduler> make_operator(const std::vector<Json>& objects,
                                                  const std::vector<TraceJob>& trace);

/// Models of what others do with gangs; none of them knows of queues or priorities, and of the
/// network but one.
enum class PeerRule {
  kStrictFifo,   ///< whole gangs in the order of submission; the first that waits holds up the rest
  kAnyThatFits,  ///< whole gangs in that order; whoever fits goes
  kBestFit,      ///< likewise, each in the tightest domain that holds it, as Kueue's BestFit does
  kPods,  ///< pods one by one; a gang that has some of its places keeps them until it has all
};
std::unique_ptr<SimulatedScheduler> make_peer(PeerRule rule, const std::vector<Json>& objects,
                                              const std::vector<TraceJob>& trace);

struct SimulatedJob {
  std::optional<milliseconds> started, ended;  ///< first start; never ended where it was given up
  milliseconds lost{};                         ///< of running, because it had to stop
  int stops = 0;
  int resizes = 0;  ///< how often it went on with more or fewer workers
  int leaves = 0;   ///< when it started
};

/// What a trace is short of: GPUs, where any job asks for them, else processors.
struct ScarceResource {
  bool is_gpu = false;
  std::string name = "cpu";  ///< as nodes call it
};
ScarceResource scarce_in(const std::vector<TraceJob>& trace);

struct Simulation {
  std::vector<SimulatedJob> jobs;  ///< as in the trace
  milliseconds end{};              ///< when the last that did has ended
  /// Of the free room that which gangs (workers) of the trace's sizes could not use: RoomMeter.
  std::optional<double> room_lost;
  std::vector<double> decision_seconds;  ///< of this machine, by job that came or ended
};

/// Until all have ended, or nobody runs and nobody starts any more. A job that has to stop goes on
/// from the last multiple of `checkpoint_every` of what it has run. `objects` are the scheduler's;
/// `clock` measures decisions.
Simulation simulate(SimulatedScheduler& scheduler, const std::vector<Json>& objects,
                    const std::vector<TraceJob>& trace, milliseconds checkpoint_every,
                    const Clock& clock);

}  // namespace muster::runtime
