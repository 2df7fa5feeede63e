// Carries out plans: the actions of one job in order, each with its preconditions, up to the first
// that fails, unless that is a pod that may not be deleted. Decides nothing.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/core/plan.h"
#include "operator/kube/api_client.h"
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

/// Threads that outlive neither `client` nor `mailbox`. Observations go before other plans, and
/// decisions last, and namespaces take turns; events are written after everything else, and are
/// lost when it stops. Three of four threads at most make pods at a time.
std::unique_ptr<Executor> make_thread_executor(kube::ApiClient& client, Mailbox& mailbox,
                                               int threads);

}  // namespace muster::runtime
