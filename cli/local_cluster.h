// A cluster inside one process: API server in memory, the operator, the workers' endpoint on
// loopback and a kubelet that starts processes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "common/result.h"
#include "operator/api/price_list.h"
#include "operator/kube/api_client.h"

namespace muster::cli {

struct LocalClusterOptions {
  const Clock* clock = nullptr;  ///< outlives the cluster
  std::string namespace_name;
  std::string worker_program;                                  ///< of the built-in engine
  std::map<std::string, std::string> base_environment;         ///< what workers inherit
  std::vector<std::pair<std::string, std::string>> extra_env;  ///< over what the job says
  std::string log_directory, working_directory;
  std::string token_file;  ///< written with mode 0600, removed at the end
  int ports = 0;           ///< of own programs, one per slot; 0 for the built-in engine
  /// Port of the operator's /metrics on loopback, with the worker of slot i at the (i+1)th behind
  /// it; 0: none.
  int metrics_port = 0;
  std::optional<api::PriceList> prices;  ///< absent: cost is not counted
  /// Called on the endpoint's thread; must return at once.
  std::function<void(const ProgressReport&)> on_progress;
};

class LocalCluster {
 public:
  /// Everything runs and every store is synced. Blocks: milliseconds, 10 s at most. Errors: kIo,
  /// kUnavailable.
  static Result<std::unique_ptr<LocalCluster>> start(LocalClusterOptions options);
  virtual ~LocalCluster() = default;

  virtual kube::ApiClient& client() = 0;
  /// Changes spec.worker.count of a job while it runs, as `kubectl scale` would; the operator
  /// decides within min and max. `job` is "<namespace>/<name>". Blocks: no. Errors: kNotFound,
  /// kInvalid (the schema's own sentence).
  Status set_workers(const std::string& job, int count);
  /// Process ids by pod name.
  virtual std::map<std::string, int> running() const = 0;
  /// Ends all processes (SIGTERM, SIGKILL after `grace`), then all threads. Idempotent; a second
  /// call from another thread may shorten the grace.
  virtual void stop(milliseconds grace) = 0;
};

}  // namespace muster::cli
