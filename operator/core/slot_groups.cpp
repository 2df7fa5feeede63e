#include "operator/core/slot_groups.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "operator/api/kueue.h"
#include "operator/core/copies.h"
#include "operator/core/placement_words.h"

namespace muster::core {

std::vector<SlotGroups> slot_groups_of(const api::TrainingJob& job) {
  const api::TopologyWish wish = api::topology_wanted(job);
  std::vector<SlotGroups> groups;
  if (!wish.slice_level.empty() && wish.slice_size > 1) {
    groups.push_back({"metadata.annotations." + std::string(api::kueue::kSliceTopology), "slice",
                      wish.slice_level, true, wish.slice_size});
  }
  const int processes = std::max(1, job.spec.worker.processes);
  const int of_slices = api::workers_together(api::split_of(job).tensor, processes);
  const int of_copy = workers_together(job);
  for (const char* of : {"Tensor", "Pipeline", "Data"}) {
    const auto found = std::find_if(wish.groups.begin(), wish.groups.end(),
                                    [&](const auto& one) { return one.of == of; });
    if (found == wish.groups.end()) continue;
    const bool is_required = !found->required.empty();
    SlotGroups made;
    made.field = "spec.topology.groups[" + std::to_string(found - wish.groups.begin()) + "]." +
                 (is_required ? "required" : "preferred");
    made.of = found->of + " group";
    made.level = is_required ? found->required : found->preferred;
    made.is_required = is_required;
    made.each = found->of == "Pipeline" ? of_copy : of_slices;
    if (found->of == "Data") made.apart = of_copy;
    // Slices of a stage must not lie across two groups, nor stages.
    const bool is_whole = made.apart == 0 || made.apart % made.each == 0;
    if (is_whole && (made.apart > 0 || made.each > 1)) groups.push_back(std::move(made));
  }
  return groups;
}

std::vector<int> slots_by_group(const std::vector<SlotGroups>& groups, int slots) {
  std::vector<int> order(as_index(slots));
  std::iota(order.begin(), order.end(), 0);
  for (const SlotGroups& one : groups) {
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return one.group_of(a) < one.group_of(b); });
  }
  return order;
}

LevelPlaces::LevelPlaces(const Topology& topology, const std::string& level)
    : topology_(topology), of_domain_(topology.domains.size(), -1) {
  if (names_host(level)) return;
  const std::vector<int> levels = topology.levels_named(level);
  for (std::size_t i = 0; i < of_domain_.size(); ++i) {
    const Domain& domain = topology.domains[i];
    const int above = domain.parent < 0 ? -1 : of_domain_[as_index(domain.parent)];
    const bool is_one = std::find(levels.begin(), levels.end(), domain.level) != levels.end();
    of_domain_[i] = above < 0 && is_one ? static_cast<int>(i) : above;
  }
}

WholeGroups whole_groups(const SlotGroups& groups, const Topology& topology,
                         const std::vector<int>& node_of_slot) {
  const LevelPlaces places(topology, groups.level);
  std::map<int, std::pair<int, bool>> found;  // by group its first place, and whether it is whole
  for (std::size_t slot = 0; slot < node_of_slot.size(); ++slot) {
    if (node_of_slot[slot] < 0) continue;
    const int place = places.of(node_of_slot[slot]);
    auto& group =
        found.try_emplace(groups.group_of(static_cast<int>(slot)), place, true).first->second;
    group.second = group.second && group.first == place;
  }
  WholeGroups whole;
  for (const auto& [number, group] : found) {
    ++whole.all;
    whole.whole += group.second ? 1 : 0;
  }
  return whole;
}

std::string groups_text(const std::vector<SlotGroups>& groups, const Topology& topology,
                        const std::vector<int>& node_of_slot) {
  std::string text;
  for (const SlotGroups& one : groups) {
    if (!text.empty()) text += "; ";
    const WholeGroups found = whole_groups(one, topology, node_of_slot);
    const std::string all = std::to_string(found.all);
    if (found.whole == found.all) {
      text += "every " + one.of + " (" + all + ") is within one " + one.level;
    } else if (!topology.knows(one.level)) {
      text += why_unknown_level(topology, one.field, one.level);
    } else {
      text += std::to_string(found.whole) + " of " + all + " " + one.of + "s are within one " +
              one.level + " (" + one.field + ")";
    }
  }
  return text;
}

}  // namespace muster::core
