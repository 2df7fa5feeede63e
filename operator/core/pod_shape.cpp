#include "operator/core/pod_shape.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/topology.h"

namespace muster::core {
namespace {

/// Whether, from the first slot on, each so many stand on one node.
bool stand_together(const std::vector<std::string>& nodes, std::size_t size) {
  if (nodes.empty() || nodes.size() % size != 0) return false;
  for (std::size_t slot = 0; slot < nodes.size(); ++slot) {
    if (nodes[slot].empty() || nodes[slot] != nodes[slot - slot % size]) return false;
  }
  return true;
}

void keep_every(std::vector<std::string>& of_slot, std::size_t size) {
  std::vector<std::string> kept;
  for (std::size_t slot = 0; slot < of_slot.size(); slot += size) {
    kept.push_back(std::move(of_slot[slot]));
  }
  of_slot = std::move(kept);
}

}  // namespace

int largest_worker(const WaitingGang& gang, const api::TrainingJob& job) {
  const bool starts = gang.wish.slots.empty() && !gang.wish.not_yet && !gang.unplaced;
  return starts ? api::largest_size(job.spec.worker) : 1;
}

void enlarge_workers(GangPlacement& placement, int largest) {
  int size = largest;
  while (size > 1 && !stand_together(placement.node_of_slot, as_index(size))) --size;
  if (size <= 1) return;
  keep_every(placement.node_of_slot, as_index(size));
  keep_every(placement.domain_of_slot, as_index(size));
  placement.worker_size = size;
  std::string& why = placement.why;
  why += why.empty() ? "" : "; ";
  why += "each is " + std::to_string(size) + " workers in one (spec.worker.shape: Free)";
}

api::WorkerSpec sized_workers(const api::TrainingJob& job, const api::TrainingJobStatus& status) {
  const bool is_as_read =
      status.worker_size == job.status.worker_size && status.start_count == job.status.start_count;
  if (is_as_read) return job.spec.worker;
  api::WorkerSpec workers = api::with_size(job.spec.worker, 1);
  const int size = api::started_size(workers, status);
  return api::with_size(std::move(workers), size);
}

api::TrainingJob as_written(const api::TrainingJob& job) {
  api::TrainingJob written = job;
  const int size = job.spec.worker.size;
  written.spec.worker = api::with_size(job.spec.worker, 1);
  written.status.last_nodes.clear();
  for (const std::string& node : job.status.last_nodes) {
    written.status.last_nodes.insert(written.status.last_nodes.end(), as_index(size), node);
  }
  return written;
}

}  // namespace muster::core
