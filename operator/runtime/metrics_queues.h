// What the metrics say about TrainingQueues, as plain data: series are made of it only when
// somebody scrapes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_queue.h"

namespace muster::runtime {

/// Amounts as kube-state-metrics has them: cpu in cores, memory in bytes, everything else counted.
struct QueueFigures {
  struct Resource {
    std::string name;
    double quota = 0, used = 0, borrowed = 0;
    bool operator==(const Resource&) const = default;
  };
  struct Budget {
    std::string currency;
    double amount = 0, spent = 0;
    bool operator==(const Budget&) const = default;
  };
  std::string queue;
  int waiting = 0, admitted = 0;
  std::vector<Resource> resources{};
  std::optional<Budget> budget{};
  bool operator==(const QueueFigures&) const = default;
};

/// `status`: what the queue's shall say.
QueueFigures queue_figures(const api::TrainingQueue& queue, const api::TrainingQueueStatus& status);

/// The families of these queues in the text format; nothing where there are none.
std::string render(const std::vector<QueueFigures>& queues);

}  // namespace muster::runtime
