#include "worker/gpu_list.h"

#include <algorithm>
#include <vector>

namespace muster::worker {
namespace {

constexpr std::string_view kInstance = "MIG-";
constexpr std::size_t kListedMost = 128;

}  // namespace

std::optional<GpuInstance> own_instance(std::string_view listed, int rank) {
  std::vector<std::string_view> names;
  while (!listed.empty() && names.size() < kListedMost) {
    const std::size_t end = std::min(listed.find(','), listed.size());
    names.push_back(listed.substr(0, end));
    if (!names.back().starts_with(kInstance)) return std::nullopt;
    listed.remove_prefix(std::min(end + 1, listed.size()));
  }
  if (names.size() < 2) return std::nullopt;
  const std::string_view own = names[static_cast<std::size_t>(rank) % names.size()];
  return GpuInstance{std::string(own), static_cast<int>(names.size())};
}

}  // namespace muster::worker
