// Carries out plans: the actions of one job in order, each with its preconditions, up to the first
// that fails, unless that is a pod that may not be deleted. Decides nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/core/plan.h"
#include "operator/kube/api_client.h"
#include "operator/runtime/fair_queue.h"
#include "operator/runtime/mailbox.h"

namespace muster::runtime {

struct Work {
  api::ObjectKey key;
  std::string uid;
  core::Plan plan;
  std::string reporting_instance;                      ///< of events; empty = the codec's
  std::vector<std::string> host_network_namespaces{};  ///< of PodOptions
};

/// Does the work; `stopping` is looked at before each action. Blocks: one exchange per action.
ApplyDone apply(kube::ApiClient& client, const Work& work, const std::atomic<bool>& stopping);

/// Who does the work: threads in the operator, the caller itself in a simulation.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Never blocks for long; the result comes through the mailbox. At most one work per key is given
  /// at a time.
  virtual void execute(Work work) = 0;
  /// Ends; no action is begun afterwards. Blocks: until the actions under way have ended.
  virtual void stop() = 0;
};

/// Work that waits, and what of it is next. First comes what users wait to see, then gangs that
/// were begun, then other decisions, then new gangs, then news of it all: so a burst of jobs flows
/// through instead of every job waiting for the first step of all others. A job's next plan comes
/// after this one, so nobody is overtaken for ever. Of what is equally urgent, namespaces take
/// turns. Three of four threads at most make pods at a time, and the others begin no more gangs
/// than kPodPlansMost lets them. Threads: the caller's lock.
class WorkTurns {
 public:
  /// Plans of one namespace that make pods and wait; while there are as many, its new gangs wait.
  static constexpr std::size_t kPodPlansMost = 8;

  /// Of one who carries work out.
  struct Turn {
    Work work;
    bool is_news = false, makes_pods = false;
  };

  explicit WorkTurns(int threads);
  /// Bounded by the number of jobs: the loop gives one work per job at a time.
  void push(Work work);
  /// Events that can wait. False: too many do, and these are lost.
  bool push_news(Work events);
  /// Nothing: there is nothing that may be done now.
  std::optional<Turn> pop();
  /// Of a turn that `makes_pods`, once: another may make some now.
  void let_another_make_pods() { --making_pods_; }
  void clear();

 private:
  enum class Urgency : std::size_t { kObservation, kActions, kDecision, kStart, kEvents };
  static constexpr std::array kByUrgency{Urgency::kObservation, Urgency::kActions,
                                         Urgency::kDecision, Urgency::kStart, Urgency::kEvents};
  /// What waits and is equally urgent. Not all threads may make pods at once, so plans that do
  /// stand apart, and take turns with the rest.
  struct Waiting {
    FairQueue<Work> making_pods, rest;
    bool is_rest_next = false;
  };

  static Urgency urgency_of(const core::Plan& plan);
  std::optional<Work> pop_rest(Urgency urgency);
  Waiting& waiting_of(Urgency urgency) { return waiting_.at(static_cast<std::size_t>(urgency)); }

  /// A webhook that nobody answers for holds whoever makes a pod for half a minute, and decisions,
  /// which come last, are not to wait for that.
  const int making_pods_most_;
  int making_pods_ = 0;  ///< threads
  std::array<Waiting, kByUrgency.size()> waiting_;
};

/// Threads that outlive neither `client` nor `mailbox`, and take their work by WorkTurns. Events
/// are lost when it stops.
std::unique_ptr<Executor> make_thread_executor(kube::ApiClient& client, Mailbox& mailbox,
                                               int threads);

}  // namespace muster::runtime
