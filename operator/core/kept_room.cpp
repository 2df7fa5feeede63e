#include "operator/core/kept_room.h"

#include <algorithm>
#include <utility>

namespace muster::core {

KeptRoom::KeptRoom(const api::Resources& per_worker, const NodeCaps& workers) {
  for (const auto& [resource, amount] : amounts_of(per_worker)) {
    if (amount <= 0) continue;
    std::vector<std::int64_t>& kept = amounts_[resource];
    kept.reserve(workers.size());
    for (const std::int64_t here : workers) kept.push_back(amount * here);
  }
}

void KeptRoom::add(const KeptRoom& other) {
  for (const auto& [resource, amounts] : other.amounts_) {
    std::vector<std::int64_t>& sum = amounts_[resource];
    sum.resize(amounts.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += amounts[i];
  }
}

bool KeptRoom::is_on(int node) const {
  return node >= 0 && std::any_of(amounts_.begin(), amounts_.end(),
                                  [&](const auto& one) { return one.second[as_index(node)] > 0; });
}

const std::vector<std::int64_t>* KeptRoom::of(const std::string& resource) const {
  const auto found = amounts_.find(resource);
  return found == amounts_.end() ? nullptr : &found->second;
}

std::optional<NodeCaps> caps_beside(const KeptRooms& kept, const WaitingGang& gang,
                                    const Inventory& inventory) {
  if (gang.unplaced) return std::nullopt;
  std::optional<NodeCaps> caps;
  std::vector<std::int64_t> left;
  for (const auto& [resource, amount] : amounts_of(gang.per_worker)) {
    const auto* free = inventory.free_of(resource);
    if (amount <= 0 || free == nullptr) continue;
    bool is_any = false;
    for (const auto& [part, times] : kept) {
      const auto* amounts = part->of(resource);
      if (amounts == nullptr) continue;
      if (!std::exchange(is_any, true)) left = *free;
      for (std::size_t i = 0; i < left.size(); ++i) left[i] -= times * (*amounts)[i];
    }
    if (!is_any) continue;
    if (!caps) caps.emplace(inventory.size(), kManyWorkers);
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (left[i] == (*free)[i]) continue;
      const std::int64_t fit = left[i] < amount ? 0 : left[i] / amount;
      (*caps)[i] = std::min((*caps)[i], fit);
    }
  }
  return caps;
}

}  // namespace muster::core
