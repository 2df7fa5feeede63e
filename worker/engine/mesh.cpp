#include "worker/engine/mesh.h"

#include <algorithm>
#include <map>

#include "common/check.h"

namespace muster::engine {

std::vector<int> Mesh::members() const {
  std::vector<int> all;
  for (const auto& one : groups) all.insert(all.end(), one.begin(), one.end());
  return all;
}

std::vector<int> Mesh::copies_of(int place) const {
  std::vector<int> all;
  for (const auto& one : groups) all.push_back(one.at(static_cast<std::size_t>(place)));
  return all;
}

Mesh mesh_of(const View& view, int group_size) {
  MUSTER_CHECK(group_size >= 1);
  std::map<int, std::vector<int>> by_number;  // of the group; ranks by place, -1 for who is missing
  for (int rank = 0; rank < view.size(); ++rank) {
    const int number = group_size > 1 ? view.number_of(rank) : rank;
    auto& group = by_number[number / group_size];
    group.resize(static_cast<std::size_t>(group_size), -1);
    group[static_cast<std::size_t>(number % group_size)] = rank;
  }
  Mesh mesh;
  for (auto& [number, ranks] : by_number) {
    if (std::find(ranks.begin(), ranks.end(), -1) != ranks.end()) continue;
    const int group = mesh.copies();
    if (std::find(ranks.begin(), ranks.end(), view.rank) != ranks.end()) mesh.group = group;
    const int slot = view.slots[static_cast<std::size_t>(ranks.front())];
    if (slot == 0 && mesh.owner < 0) mesh.owner = group;
    mesh.groups.push_back(std::move(ranks));
  }
  return mesh;
}

}  // namespace muster::engine
