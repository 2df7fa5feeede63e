// What an operator is told about its cluster and itself, and hands on to the loop that decides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/clock.h"
#include "operator/api/pod.h"
#include "operator/api/price_list.h"
#include "operator/core/words.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/metrics.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::runtime {

/// What is pointed to outlives the operator.
struct DecidingOptions {
  const Clock* clock = nullptr;
  WorkersEndpoint* endpoint = nullptr;  ///< nullptr: no worker joins (tests)
  api::PodOptions pods;
  MasterKeys master_keys;  ///< job key = HMAC(master, job uid)
  /// Where certificates are replaced: what pods and gangs are given of it, asked for at each step,
  /// in place of the two above.
  std::function<WorkerTrust()> trust;
  std::string reporting_instance = "muster-operator";
  std::uint64_t seed = 1;  ///< of back-off jitter
  seconds resync{300};
  /// How long a pod may be on its node without having started.
  seconds pod_start_timeout = core::words::kStartingMost;
  /// False: stores are kept warm and nothing is decided until a Lead arrives.
  bool is_leader = true;
  /// False: nodes are not watched and nothing is known of capacity; every gang is placed by the
  /// cluster's scheduler.
  bool sees_nodes = true;
  /// Whether the cluster may get other nodes than those that it has.
  bool nodes_may_come = true;
  /// True: volumes and claims are watched, and limit where slots may go. Needs sees_nodes, and the
  /// right to read them.
  bool sees_volumes = false;
  /// True: queues and priority classes are watched, and spec.queueName is heeded. Needs the right
  /// to read them, and the jobs of all namespaces: queues are shared by them.
  bool sees_queues = false;
  /// True: the kinds of TopologyBook are watched, and gangs that ask for topology wait until they
  /// are known. Needs sees_nodes.
  bool sees_topologies = false;
  const api::PriceList* prices = nullptr;  ///< nullptr: cost is not counted
  Metrics* metrics = nullptr;              ///< nullptr: nobody is told
};

}  // namespace muster::runtime
