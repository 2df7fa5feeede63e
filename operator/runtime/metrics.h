// The operator's metrics in Prometheus' text format. Names: common/contract.h, metric::. Whoever
// does something says so here; what a scrape shows is put together when it is asked for.
//
// Labels are bounded: by the jobs and queues that are there, and by words that stand in the code.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "operator/api/training_job.h"
#include "operator/core/kept_inventory.h"
#include "operator/core/plan.h"
#include "operator/core/work_queue.h"
#include "operator/runtime/metrics_queues.h"

namespace muster::runtime {

struct MetricsOptions {
  const Clock* clock = nullptr;  ///< outlives the metrics
  std::string version;
  std::string leader_name = "muster-operator";  ///< label of leader_election_master_status
};

enum class ReconcileResult { kSuccess, kError, kRequeue, kRequeueAfter };

/// One exchange with the API server.
struct RestExchange {
  std::string method, host;
  int code = 0;  ///< 0: no answer came
  double seconds = 0;
};

/// Threads: any for every method; outlives everybody who was given it. Blocks: only for a lock.
class Metrics final : public core::WorkQueueObserver {
 public:
  explicit Metrics(const MetricsOptions& options);
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  void set_leader(bool is_leader);
  void set_concurrency(int plans);
  /// Whether the admission policy of that name, or its binding, is gone or does not refuse.
  void set_guardrail_missing(const std::string& policy, bool is_missing);
  /// When the CA of the workers' endpoint expires.
  void set_ca_end(WallTime end);

  void on_add(const api::ObjectKey& key) override;
  void on_retry(const api::ObjectKey& key) override;
  void on_pop(const api::ObjectKey& key) override;
  void on_done(const api::ObjectKey& key) override;
  /// How a look at a job ended.
  void on_reconciled(ReconcileResult result);
  void on_scheduled(double seconds);
  void on_inventory_remade(core::Remade why);
  void on_status_written(core::Pass pass);
  /// Totals of one kind's watcher.
  void on_watch(api::Kind kind, std::int64_t relists, std::int64_t bad_lines);
  void on_rest(const RestExchange& exchange);
  /// An answer of the workers' endpoint.
  void on_endpoint(std::string_view path, int code);

  /// A job of this operator's as it stands now; its series live until on_job_gone. `queue`: the
  /// TrainingQueue, one that is there, that gives it its turn; empty: none.
  void on_job(const api::TrainingJob& job, std::string_view queue = {});
  /// What a job that was seen has cost by now.
  void on_cost(const api::ObjectKey& job, const api::JobCost& cost);
  /// A report that was accepted for a job that was seen; of slot 0, the others say the same.
  void on_progress(const api::ObjectKey& job, const ProgressReport& report);
  void on_job_gone(const api::ObjectKey& job);
  /// All queues that are there.
  void on_queues(std::vector<QueueFigures> queues);

  /// All families as text.
  std::string render() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::runtime
