#include "operator/core/copies.h"

#include <algorithm>

namespace muster::core {

int processes_of_copy(const api::TrainingJob& job) { return api::split_of(job).processes(); }

int workers_together(const api::TrainingJob& job) {
  return api::workers_together(processes_of_copy(job), std::max(1, job.spec.worker.processes));
}

bool are_whole_copies(const std::vector<int>& slots, int together) {
  const auto step = static_cast<std::size_t>(together);
  bool are_whole = slots.size() % step == 0;
  for (std::size_t i = 0; are_whole && i < slots.size(); i += step) {
    are_whole = slots[i] % together == 0 && slots[i + step - 1] == slots[i] + together - 1;
  }
  return are_whole;
}

std::vector<int> waiting_for_their_copy(const api::TrainingJob& job,
                                        const std::vector<int>& running) {
  if (workers_together(job) == 1) return {};
  const int of_copy = processes_of_copy(job);
  const int processes = std::max(1, job.spec.worker.processes);
  const auto runs = [&](int slot) {
    return std::binary_search(running.begin(), running.end(), slot);
  };
  std::vector<int> waiting;
  for (const int slot : running) {
    const int first_copy = slot * processes / of_copy;
    const int last_copy = (slot * processes + processes - 1) / of_copy;
    const int first = first_copy * of_copy / processes;
    const int last = ((last_copy + 1) * of_copy - 1) / processes;
    bool all = true;
    for (int other = first; other <= last; ++other) all = all && runs(other);
    if (!all) waiting.push_back(slot);
  }
  return waiting;
}

}  // namespace muster::core
