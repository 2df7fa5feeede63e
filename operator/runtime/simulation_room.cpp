#include "operator/runtime/simulation_room.h"

#include <algorithm>

#include "operator/core/rooms.h"
#include "operator/runtime/what_if.h"

namespace muster::runtime {
namespace {

/// A processor, or a GPU.
int whole(std::int64_t amount, bool is_gpu) {
  return static_cast<int>(std::clamp<std::int64_t>(is_gpu ? amount : amount / 1000, 0, 1'000'000));
}

int needs(const api::Resources& one, bool is_gpu) {
  return is_gpu ? whole(one.gpus, true) : whole(one.cpu_millis + 999, false);
}

}  // namespace

RoomMeter::RoomMeter(const std::vector<Json>& objects, const std::vector<TraceJob>& trace)
    : trace_(trace) {
  const ScarceResource scarce = scarce_in(trace);
  counts_gpus_ = scarce.is_gpu;
  const std::vector<api::Node> nodes = nodes_among(objects);
  core::ClusterSnapshot cluster;
  for (const api::Node& node : nodes) cluster.nodes.push_back(&node);
  core::Rooms rooms(cluster);
  const bool is_flat = !rooms.knows_network();
  std::vector<std::int64_t> sizes;
  for (const TraceJob& one : trace) {
    const api::WorkerSpec& worker = one.job.spec.worker;
    const std::int64_t together = is_flat ? 1 : worker.count;
    sizes.push_back(together * needs(worker.resources, counts_gpus_));
  }
  sizes_ = core::UsualSizes(std::move(sizes));
  std::map<std::string, std::size_t> leaf_named;
  for (const api::Node& node : nodes) {
    const std::string path = is_flat ? node.meta.name : rooms.domains_of({node.meta.name}).front();
    const auto [entry, is_new] = leaf_named.try_emplace(path, leaves_.size());
    if (is_new) leaves_.emplace_back();
    const auto amount = node.allocatable.find(scarce.name);
    const int all = amount == node.allocatable.end() ? 0 : whole(amount->second, counts_gpus_);
    leaves_[entry->second].all += all;
    leaves_[entry->second].free += all;
    leaf_of_node_[node.meta.name] = entry->second;
    free_ += all;
  }
}

/// A gang that is larger than the whole domain would take all of it, if it were empty.
double RoomMeter::lost_in(const Leaf& leaf) const {
  const bool is_whole = leaf.free == leaf.all;
  return is_whole ? 0 : sizes_.lost(std::max(0, leaf.free));
}

void RoomMeter::take(std::size_t job, int sign) {
  const int each = needs(trace_[job].job.spec.worker.resources, counts_gpus_);
  for (const std::string& node : places_[job]) {
    const auto found = leaf_of_node_.find(node);
    if (found == leaf_of_node_.end()) continue;
    Leaf& leaf = leaves_[found->second];
    lost_ -= lost_in(leaf);
    leaf.free -= sign * each;
    free_ -= sign * each;
    lost_ += lost_in(leaf);
  }
}

void RoomMeter::place(std::size_t job, std::vector<std::string> nodes, milliseconds now) {
  if (since_) {
    free_time_ += free_ * seconds_of(now - *since_);
    lost_time_ += lost_ * seconds_of(now - *since_);
  }
  since_ = now;
  take(job, -1);
  places_[job] = std::move(nodes);
  take(job, 1);
}

std::optional<double> RoomMeter::lost() const {
  if (leaves_.empty() || free_time_ <= 0) return std::nullopt;
  return lost_time_ / free_time_;
}

}  // namespace muster::runtime
