// One operator, one API server, one node and its pods in a single thread under a clock that moves
// only when told to: nothing here depends on real time or on the order of threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/training_queue.h"
#include "operator/embedded/api_server.h"
#include "operator/kube/api_client.h"
#include "tests/sim/one_operator.h"

namespace muster::sim {

class World {
 public:
  /// `wrap` puts faults between operator and API server.
  explicit World(std::uint64_t seed,
                 std::function<kube::HttpTransport*(kube::HttpTransport&)> wrap = nullptr);

  ManualClock clock;
  embedded::ApiServer server;
  std::unique_ptr<kube::ApiClient> user;  ///< the user's own client, without faults
  std::unique_ptr<OneOperator> op;
  std::optional<api::PriceList> prices;  ///< of operators that start from now on

  /// Kills the operator and starts a fresh one.
  void restart_operator();
  void add_node(const std::string& name, int cpus);
  /// Creates a job of `count` workers of one cpu each; `more` edits the manifest.
  api::TrainingJob create_job(const std::string& name, int count,
                              const std::function<void(Json&)>& more = nullptr);
  api::TrainingJob job(const std::string& name) const;
  /// A queue of so many processors; `more` edits the manifest.
  void create_queue(const std::string& name, int cpus,
                    const std::function<void(Json&)>& more = nullptr);
  void create_priority(const std::string& name, int value);
  api::TrainingQueue queue(const std::string& name) const;
  std::vector<api::Pod> pods() const;
  bool has_pod(const std::string& name) const;
  /// Status patches of jobs that the API server has been asked for, by anybody.
  std::int64_t status_writes() const;

  /// One thing of what could happen next, chosen by `choice`: a line of one watch, a decision, an
  /// action. So what the operator sees is old, in part, and in any order across kinds.
  void stagger(std::uint64_t choice);
  /// Lets the operator see and do everything it can without time passing.
  void settle();
  /// Moves the clock in steps no longer than the operator's own waits.
  void pass(seconds time);

  // ---- the kubelet's part
  void bind_pod(const std::string& name);  ///< as the scheduler of the required node
  void run_pod(const std::string& name);
  void run_all_pods();
  void end_pod(const std::string& name, int exit_code, const std::string& message = "");
  /// Ends pods that are asked to leave, as a node would.
  void reap(int exit_code);

 private:
  Json job_json(const std::string& name) const;
  void patch_pod(const std::string& name, const Json& status);
  std::function<kube::HttpTransport*(kube::HttpTransport&)> wrap_;
  std::uint64_t seed_;
};

}  // namespace muster::sim
