#include "operator/core/pcie_use.h"

#include <algorithm>
#include <array>
#include <bitset>

#include "operator/core/placement_words.h"
#include "operator/core/text.h"

namespace muster::core {
namespace {

constexpr std::size_t kMaxHostsInText = 3;

/// Which sums of GPUs of a node some of its switches have together, or of its root ports, below
/// each of which is one.
std::bitset<api::kMaxPcieDevices + 1> sums_of_switches(const api::PcieNode& pcie) {
  std::array<std::uint8_t, api::kMaxPcieSwitches> below{};
  std::bitset<api::kMaxPcieDevices + 1> sums(1);
  for (const api::PcieDevice& gpu : pcie.gpus) {
    if (gpu.switch_index) {
      ++below[as_index(*gpu.switch_index)];
    } else {
      sums |= sums << 1;
    }
  }
  for (std::size_t i = 0; i < pcie.switches.size(); ++i) sums |= sums << below[i];
  return sums;
}

/// "team/a and team/b", or "team/a and others" where more is held than these have.
std::string holders_text(const GpusByJob& holders, std::int64_t held) {
  std::vector<api::ObjectKey> jobs;
  std::int64_t named = 0;
  for (const auto& [job, gpus] : holders) {
    jobs.push_back(job);
    named += gpus;
  }
  return jobs_text(jobs, named < held ? "others" : "");
}

/// "PCIe switch 0000:10:00.0 (31.5 GB/s) is shared", or of several "one of its 2 PCIe switches".
std::string shared_text(const api::PcieNode& pcie) {
  std::vector<std::int64_t> gpus(pcie.switches.size(), 0);
  for (const api::PcieDevice& gpu : pcie.gpus) {
    if (gpu.switch_index) ++gpus[as_index(*gpu.switch_index)];
  }
  const api::PcieSwitch* only = nullptr;
  int count = 0;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i] < 2) continue;
    only = &pcie.switches[i];
    ++count;
  }
  if (count != 1) return "one of its " + std::to_string(count) + " PCIe switches is shared";
  std::string text = "its PCIe switch " + only->address;
  if (only->uplink_bytes_per_second > 0) {
    text += " (" + decimal(static_cast<double>(only->uplink_bytes_per_second) / 1e9, 1) + " GB/s)";
  }
  return text + " is shared";
}

/// GPUs of the NUMA node that has most of several; 0: there are none such, or nothing is known.
std::int64_t largest_numa_node(const api::PcieNode& pcie) {
  const std::vector<int> numbers = api::numa_nodes_of_gpus(pcie);
  if (numbers.size() < 2) return 0;
  std::int64_t largest = 0;
  for (const int number : numbers) {
    const auto gpus =
        std::count_if(pcie.gpus.begin(), pcie.gpus.end(),
                      [&](const api::PcieDevice& gpu) { return gpu.numa_node == number; });
    largest = std::max<std::int64_t>(largest, gpus);
  }
  return largest;
}

/// Whether GPUs of the node send each other nothing over PCIe.
bool is_linked_inside(const Topology& topology, int node) {
  const int leaf = topology.leaf_of_node[as_index(node)];
  const int level = topology.domains[as_index(leaf)].level;
  return have_own_links(topology.host) || (level >= 0 && topology.levels[as_index(level)].is_fast);
}

}  // namespace

bool PcieUse::must_share(int node, int pods) const {
  const std::int64_t own = per_worker_.gpus * pods;
  if (own <= 0) return false;
  const auto [all, free] = inventory_.amount_on(node, number_);
  const std::int64_t others = all - free;
  if (others <= 0 || own > free) return false;
  const std::optional<api::PcieNode>& pcie = inventory_.node(node).pcie;
  if (!pcie || all != static_cast<std::int64_t>(pcie->gpus.size())) return false;
  // A sum that holds the others and leaves enough for us keeps us apart.
  const auto sums = sums_of_switches(*pcie);
  for (std::int64_t sum = others; sum <= all - own; ++sum) {
    if (sums[static_cast<std::size_t>(sum)]) return false;
  }
  return true;
}

bool PcieUse::must_cross(int node, int pods) const {
  const std::int64_t own = per_worker_.gpus * pods;
  if (pods < 2 || own <= 0 || is_linked_inside(inventory_.topology(), node)) return false;
  const auto [all, free] = inventory_.amount_on(node, number_);
  const std::optional<api::PcieNode>& pcie = inventory_.node(node).pcie;
  if (own > free || !pcie || all != static_cast<std::int64_t>(pcie->gpus.size())) return false;
  const std::int64_t largest = largest_numa_node(*pcie);
  return largest > 0 && own > largest;
}

std::string PcieUse::why_crossed(const std::vector<HostShare>& hosts) const {
  const HostShare* first = nullptr;
  std::size_t count = 0;
  for (const HostShare& host : hosts) {
    if (!must_cross(host.node, host.pods)) continue;
    if (first == nullptr) first = &host;
    ++count;
  }
  if (first == nullptr) return "";
  std::string text = "on " + inventory_.node(first->node).meta.name + " no NUMA node has " +
                     std::to_string(per_worker_.gpus * first->pods) +
                     " GPUs, so workers send to each other between NUMA nodes";
  if (count > 1) {
    text += ", as on " + std::to_string(count - 1) + (count == 2 ? " host more" : " hosts more");
  }
  return text;
}

std::string PcieUse::why(const std::vector<HostShare>& hosts, const HoldersOn& holders) const {
  std::string text;
  std::size_t count = 0;
  for (const HostShare& host : hosts) {
    if (!must_share(host.node, host.pods) || ++count > kMaxHostsInText) continue;
    const auto [all, free] = inventory_.amount_on(host.node, number_);
    const std::int64_t others = all - free;
    const api::Node& node = inventory_.node(host.node);
    const GpusByJob by_job = holders(host.node);
    text += (text.empty() ? "on " : "; on ") + node.meta.name + " " + holders_text(by_job, others) +
            (by_job.size() == 1 && by_job.begin()->second >= others ? " holds " : " hold ") +
            std::to_string(others) + " of " + std::to_string(all) + " GPUs, so " +
            shared_text(*node.pcie);
  }
  if (count > kMaxHostsInText) {
    text += "; and so on " + std::to_string(count - kMaxHostsInText) + " hosts more";
  }
  const std::string crossed = why_crossed(hosts);
  if (!crossed.empty()) text += (text.empty() ? "" : "; ") + crossed;
  return text;
}

}  // namespace muster::core
