#include "operator/core/mesh_order.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "common/check.h"
#include "operator/api/training_job.h"

namespace muster::core {
namespace {

/// What crosses one link out of a node or a domain.
struct Load {
  std::vector<int> inside;   ///< processes behind it, by stage that they have
  std::vector<int> workers;  ///< behind it, by stage that a process of theirs has
  int pairs = 0;             ///< of neighbours in a copy of which one is behind it
  double bytes_per_second = 0;
};

/// Loads of all links between the nodes of a gang: cards by node, uplinks by domain.
class Loads {
 public:
  Loads(const StepModel& model, const MeshWork& work, const std::vector<int>& nodes)
      : topology_(model.topology()), nodes_(nodes), work_(work) {
    const auto [low, high] = std::minmax_element(nodes.begin(), nodes.end());
    common_ = topology_.common_domain(leaf(*low), leaf(*high));
    for (const int node : nodes) {
      cards_[node].bytes_per_second = model.host_rate(common_);
      for (int d = leaf(node); d != common_; d = parent(d)) {
        uplinks_[d].bytes_per_second = model.uplink(d);
      }
    }
    for (auto* links : {&cards_, &uplinks_}) {
      for (auto& [number, load] : *links) {
        load.inside.assign(as_index(work.stages), 0);
        load.workers.assign(as_index(work.stages), 0);
      }
    }
    workers_.assign(as_index(work.stages), 0);
    for (int process = 0; process < copies() * work.stages; ++process) count(process);
    for (int copy = 0; copy < copies(); ++copy) hand_on(copy * work.stages);
  }

  int copies() const { return static_cast<int>(nodes_.size()) * work_.processes / work_.stages; }

  double seconds() const {
    const double handed_on = work_.activation_bytes / copies();
    double exchange = 0, hand_on = 0;
    for (const auto* links : {&cards_, &uplinks_}) {
      for (const auto& [number, load] : *links) {
        const double bytes =
            static_cast<double>(parts_sent(load)) * work_.gradient_bytes / work_.stages / copies();
        exchange = std::max(exchange, bytes / load.bytes_per_second);
        hand_on = std::max(hand_on, load.pairs * handed_on / load.bytes_per_second);
      }
    }
    return exchange + hand_on;
  }

 private:
  int leaf(int node) const { return topology_.leaf_of_node[as_index(node)]; }
  int parent(int domain) const { return topology_.domains[as_index(domain)].parent; }
  int node_of(int process) const { return nodes_[as_index(process / work_.processes)]; }

  /// Parts of stages' gradients, each what one copy adds up, that leave through it, and as many
  /// come. A worker adds up what its processes have of a stage: for each process elsewhere it sends
  /// a part once, and what each of its own has made of all once to each other worker.
  std::int64_t parts_sent(const Load& load) const {
    std::int64_t parts = 0;
    for (std::size_t stage = 0; stage < load.inside.size(); ++stage) {
      const std::int64_t inside = load.inside[stage], workers = load.workers[stage];
      parts += workers * (copies() - inside) + inside * (workers_[stage] - workers);
    }
    return parts;
  }

  void count(int process) {
    const int node = node_of(process);
    const std::size_t stage = as_index(process % work_.stages);
    const int first = process % work_.processes < work_.stages ? 1 : 0;  // of its stage and worker
    const auto add = [&](Load& load) {
      ++load.inside[stage];
      load.workers[stage] += first;
    };
    workers_[stage] += first;
    add(cards_[node]);
    for (int d = leaf(node); d != common_; d = parent(d)) add(uplinks_[d]);
  }

  /// What the copy whose first process this is hands on.
  void hand_on(int first) {
    for (int stage = 0; stage < work_.stages - (work_.is_ring ? 0 : 1); ++stage) {
      const int node = node_of(first + stage);
      const int next = node_of(first + (stage + 1) % work_.stages);
      if (next == node) continue;
      const int meet = topology_.common_domain(leaf(node), leaf(next));
      for (const int end : {node, next}) {
        ++cards_[end].pairs;
        for (int d = leaf(end); d != meet; d = parent(d)) ++uplinks_[d].pairs;
      }
    }
  }

  const Topology& topology_;
  const std::vector<int>& nodes_;
  const MeshWork& work_;
  int common_ = 0;
  std::map<int, Load> cards_, uplinks_;
  std::vector<int> workers_;  ///< of all, by stage that they have
};

}  // namespace

double mesh_seconds(const StepModel& model, const MeshWork& work, const std::vector<int>& nodes) {
  MUSTER_CHECK(!nodes.empty() && work.stages >= 1 && work.processes >= 1);
  MUSTER_CHECK(static_cast<int>(nodes.size()) * work.processes % work.stages == 0);
  return Loads(model, work, nodes).seconds();
}

MeshOrder order_mesh(const StepModel& model, const MeshWork& work, std::vector<int>& nodes) {
  // So many workers have whole copies together, and the same stages as those so many slots on.
  const int together = api::workers_together(work.stages, work.processes);
  const int slots = static_cast<int>(nodes.size());
  if (together == 1) return MeshOrder::kCopiesTogether;
  std::vector<int> by_stage;
  for (int slot = 0; slot < slots; ++slot) {
    const int at = slot % together * (slots / together) + slot / together;
    by_stage.push_back(nodes[as_index(at)]);
  }
  if (mesh_seconds(model, work, by_stage) >= mesh_seconds(model, work, nodes)) {
    return MeshOrder::kCopiesTogether;
  }
  nodes = std::move(by_stage);
  return MeshOrder::kStagesTogether;
}

}  // namespace muster::core
