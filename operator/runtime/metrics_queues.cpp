#include "operator/runtime/metrics_queues.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <string_view>

#include "common/contract.h"
#include "operator/api/training_job.h"

namespace muster::runtime {
namespace {

namespace name = contract::metric;
using QueueLabel = prometheus::ClientMetric::Label;

constexpr double kThousandths = 1000;

double in_base_units(const std::string& resource, std::int64_t amount) {
  return static_cast<double>(amount) / (resource == "cpu" ? kThousandths : 1);
}

/// An amount of a status, which nobody has to have written yet: none of it.
double amount_in_base_units(const std::string& resource, const std::string& text) {
  const auto amount = api::parse_amount(resource, text);
  return amount ? in_base_units(resource, *amount) : 0;
}

/// Gauges of queues, family after family.
class QueueFamilies {
 public:
  void begin(std::string_view called, const char* help) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = std::string(called);
    family.help = help;
    family.type = prometheus::MetricType::Gauge;
  }
  void add(const QueueFigures& queue, double value, std::vector<QueueLabel> more = {}) {
    prometheus::ClientMetric metric;
    metric.label = std::move(more);
    metric.label.insert(metric.label.begin(), {"training_queue", queue.queue});
    metric.gauge.value = value;
    families_.back().metric.push_back(std::move(metric));
  }
  std::string text() {
    std::erase_if(families_, [](const auto& family) { return family.metric.empty(); });
    return prometheus::TextSerializer().Serialize(families_);
  }

 private:
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace

QueueFigures queue_figures(const api::TrainingQueue& queue,
                           const api::TrainingQueueStatus& status) {
  QueueFigures figures{queue.meta.name, status.waiting, status.admitted};
  for (const api::QueueResource& one : queue.spec.resources) {
    QueueFigures::Resource& made = figures.resources.emplace_back();
    made.name = one.name;
    made.quota = in_base_units(one.name, one.nominal);
    const auto said = std::find_if(status.resources.begin(), status.resources.end(),
                                   [&](const auto& other) { return other.name == one.name; });
    if (said == status.resources.end()) continue;
    made.used = amount_in_base_units(one.name, said->used);
    made.borrowed = amount_in_base_units(one.name, said->borrowed);
  }
  if (const auto& budget = queue.spec.budget) {
    const double spent = status.budget ? api::plain(status.budget->spent) : 0;
    figures.budget = QueueFigures::Budget{budget->currency, api::plain(budget->amount), spent};
  }
  return figures;
}

std::string render(const std::vector<QueueFigures>& queues) {
  QueueFamilies families;
  families.begin(name::kTrainingQueueWaiting, "Jobs that wait for their turn.");
  for (const auto& queue : queues) families.add(queue, queue.waiting);
  families.begin(name::kTrainingQueueAdmitted, "Jobs that hold some of it.");
  for (const auto& queue : queues) families.add(queue, queue.admitted);

  const auto each_resource = [&](const auto& value_of) {
    for (const auto& queue : queues) {
      for (const auto& one : queue.resources) {
        families.add(queue, value_of(one), {{"resource", one.name}});
      }
    }
  };
  using Resource = QueueFigures::Resource;
  families.begin(name::kTrainingQueueQuota, "Its nominal quota.");
  each_resource([](const Resource& one) { return one.quota; });
  families.begin(name::kTrainingQueueUsed, "What its jobs hold.");
  each_resource([](const Resource& one) { return one.used; });
  families.begin(name::kTrainingQueueBorrowed, "What they hold beyond the quota.");
  each_resource([](const Resource& one) { return one.borrowed; });

  const auto each_budget = [&](const auto& value_of) {
    for (const auto& queue : queues) {
      if (!queue.budget) continue;
      families.add(queue, value_of(*queue.budget), {{"currency", queue.budget->currency}});
    }
  };
  using Budget = QueueFigures::Budget;
  families.begin(name::kTrainingQueueBudget, "What its jobs may cost in a period.");
  each_budget([](const Budget& budget) { return budget.amount; });
  families.begin(name::kTrainingQueueSpent, "What they have cost in this one.");
  each_budget([](const Budget& budget) { return budget.spent; });
  return families.text();
}

}  // namespace muster::runtime
