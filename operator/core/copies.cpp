#include "operator/core/copies.h"

#include <algorithm>
#include <numeric>

namespace muster::core {

int stages_of(const api::TrainingJob& job) {
  return job.spec.training ? std::max(1, job.spec.training->pipeline) : 1;
}

int workers_together(const api::TrainingJob& job) {
  return workers_together(stages_of(job), std::max(1, job.spec.worker.processes));
}

int workers_together(int stages, int processes_of_worker) {
  return stages / std::gcd(stages, processes_of_worker);
}

std::vector<int> waiting_for_their_copy(const api::TrainingJob& job,
                                        const std::vector<int>& running) {
  if (workers_together(job) == 1) return {};
  const int stages = job.spec.training->pipeline;
  const int processes = std::max(1, job.spec.worker.processes);
  const auto runs = [&](int slot) {
    return std::binary_search(running.begin(), running.end(), slot);
  };
  std::vector<int> waiting;
  for (const int slot : running) {
    const int first_copy = slot * processes / stages;
    const int last_copy = (slot * processes + processes - 1) / stages;
    const int first = first_copy * stages / processes;
    const int last = ((last_copy + 1) * stages - 1) / processes;
    bool all = true;
    for (int other = first; other <= last; ++other) all = all && runs(other);
    if (!all) waiting.push_back(slot);
  }
  return waiting;
}

}  // namespace muster::core
