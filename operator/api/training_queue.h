// TrainingQueue: how much the jobs of a queue may use together, and what they use. Field by field
// the queue's reference; crds/trainingqueue.yaml is its schema, and a test keeps the two equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "common/result.h"
#include "operator/api/decimal.h"
#include "operator/api/object_meta.h"

namespace muster::api {

/// Amounts in base units: cpu in thousandths, memory in bytes, everything else counted.
struct QueueResource {
  std::string name;
  std::int64_t nominal = 0;
  std::optional<std::int64_t> borrowing_limit;  ///< absent: as much as the cohort lends
  std::optional<std::int64_t> lending_limit;    ///< absent: all of nominal
  bool operator==(const QueueResource&) const = default;
};

/// When a budget begins anew, in UTC: at midnight, on Monday, on the first of the month, never.
enum class BudgetPeriod { kDay, kWeek, kMonth, kForever };

/// What the queue's jobs may cost together, by the operator's price list.
struct QueueBudget {
  std::string currency;  ///< the price list's
  Billionths amount = 0;
  BudgetPeriod period = BudgetPeriod::kMonth;
  bool operator==(const QueueBudget&) const = default;
};

/// When its jobs may be preempted for others.
struct QueuePreemption {
  /// Not before they have had their places for so long; shrinking is no preemption.
  std::int64_t minimum_run_seconds = 0;
  bool operator==(const QueuePreemption&) const = default;
};

struct TrainingQueueSpec {
  std::string cohort;                    ///< empty: alone
  std::vector<QueueResource> resources;  ///< names differ; what is not named is not limited
  int weight = 1;
  std::vector<std::string> namespaces;  ///< empty: all
  bool suspend = false;
  std::optional<QueueBudget> budget;
  QueuePreemption preemption;
  bool operator==(const TrainingQueueSpec&) const = default;
};

/// Amounts as quantities.
struct QueueResourceStatus {
  std::string name, used, borrowed;
  bool operator==(const QueueResourceStatus&) const = default;
};

/// What the queue's jobs have cost since `since`, as far as it is known.
struct QueueSpending {
  std::string currency;
  Billionths spent = 0;          ///< until `updated_at`
  Billionths rate_per_hour = 0;  ///< since then
  std::optional<WallTime> since, updated_at;
  std::string unknown;  ///< which jobs' costs are not counted, and why; empty: all are
  bool operator==(const QueueSpending&) const = default;
};

struct TrainingQueueStatus {
  std::int64_t observed_generation = 0;
  std::vector<Condition> conditions;
  std::string phase;  ///< display only: Active, Closed
  int admitted = 0, waiting = 0;
  std::string use;  ///< display only
  std::vector<QueueResourceStatus> resources;
  std::optional<QueueSpending> budget;
  bool operator==(const TrainingQueueStatus&) const = default;
};

struct TrainingQueue {
  ObjectMeta meta;
  TrainingQueueSpec spec;
  TrainingQueueStatus status;
  bool operator==(const TrainingQueue&) const = default;
};

/// Reads and validates a TrainingQueue. Errors: kInvalid naming the field and what would be right.
Result<TrainingQueue> parse_training_queue(const Json& json);
/// As above for an object of the API server whose spec an older schema admitted: metadata and
/// status are read even when the spec is refused. The Status is the spec's verdict.
std::pair<TrainingQueue, Status> read_training_queue(const Json& json);

Json to_json(const TrainingQueue& queue);
Json status_to_json(const TrainingQueueStatus& status);

/// scheduling.k8s.io/v1 PriorityClass.
struct PriorityClass {
  ObjectMeta meta;
  int value = 0;
  bool is_default = false;  ///< of jobs that name none
  bool preempts = true;     ///< false: preemptionPolicy is Never
  bool operator==(const PriorityClass&) const = default;
};
Result<PriorityClass> parse_priority_class(const Json& json);

}  // namespace muster::api
