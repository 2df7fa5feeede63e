#include "operator/core/kept_gangs.h"

#include <utility>

namespace muster::core {

void KeptGangs::take(const api::ObjectKey& job, std::optional<RunningGang> gang) {
  if (gang) {
    gangs_.insert_or_assign(job, Kept{*std::move(gang), std::nullopt});
  } else {
    gangs_.erase(job);
  }
}

std::vector<const SendingGang*> KeptGangs::on(const Inventory& inventory) {
  // Nodes have their numbers by the tree alone.
  const bool is_known = numbered_by_ == inventory.shared_topology();
  numbered_by_ = inventory.shared_topology();
  std::vector<const SendingGang*> all;
  all.reserve(gangs_.size());
  for (auto& [job, kept] : gangs_) {
    if (!is_known || !kept.sending) kept.sending = sending_gang(kept.gang, inventory);
    all.push_back(&*kept.sending);
  }
  return all;
}

}  // namespace muster::core
