#include "worker/engine/node_sums.h"

#include <algorithm>
#include <utility>

namespace muster::engine {

std::vector<float> NodeSums::take_buffer() {
  if (free_.empty()) return std::vector<float>(elements_);
  std::vector<float> buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void NodeSums::hold(const std::vector<RankRange>& nodes) {
  std::vector<Entry> old = std::move(entries_);
  entries_.clear();
  const auto find = [&](RankRange node) {
    return std::find_if(old.begin(), old.end(), [&](const Entry& e) { return e.node == node; });
  };
  for (const RankRange node : nodes) {
    const auto same = find(node);
    if (same != old.end()) {
      entries_.push_back(std::move(*same));
      old.erase(same);
    } else {
      entries_.push_back({node, false, {}});
    }
  }
  for (Entry& entry : old) free_.push_back(std::move(entry.values));
  for (Entry& entry : entries_) {
    if (entry.values.empty()) entry.values = take_buffer();
  }
}

std::span<float> NodeSums::spare(std::size_t number) {
  while (spares_.size() <= number) spares_.push_back(take_buffer());
  return spares_[number];
}

std::size_t NodeSums::unused_bytes() const {
  return (free_.size() + spares_.size()) * elements_ * sizeof(float);
}

void NodeSums::give_up_unused() {
  free_.clear();
  spares_.clear();
}

void NodeSums::forget() {
  for (Entry& entry : entries_) entry.is_computed = false;
}

void NodeSums::forget_all_but(const std::vector<RankRange>& nodes) {
  for (Entry& entry : entries_) {
    if (std::find(nodes.begin(), nodes.end(), entry.node) == nodes.end()) entry.is_computed = false;
  }
}

std::vector<RankRange> NodeSums::computed() const {
  std::vector<RankRange> nodes;
  for (const Entry& entry : entries_) {
    if (entry.is_computed) nodes.push_back(entry.node);
  }
  return nodes;
}

}  // namespace muster::engine
