// How the GPUs and network cards of one node hang together on PCIe: what the node agent finds out
// and the operator reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "operator/api/object_meta.h"

namespace muster::api {

/// Most of each list; a node with more is not described.
inline constexpr std::size_t kMaxPcieSwitches = 64;
inline constexpr std::size_t kMaxPcieDevices = 64;
/// One more than the highest number that Linux gives a NUMA node.
inline constexpr int kMaxNumaNodes = 1024;
/// More than 32 lanes of the fastest PCIe carry.
inline constexpr std::int64_t kMaxPcieBytesPerSecond = 1'000'000'000'000;

/// What shares one way up to the root port: everything below it meets there.
struct PcieSwitch {
  std::string address;                       ///< of the upstream port: "0000:01:00.0"
  std::int64_t uplink_bytes_per_second = 0;  ///< one direction; 0 = not known
  bool operator==(const PcieSwitch&) const = default;
};

struct PcieDevice {
  std::string address;
  std::optional<int> numa_node;  ///< nullopt: the machine does not say
  std::optional<int>
      switch_index;  ///< into PcieNode::switches; nullopt: straight below a root port
  bool operator==(const PcieDevice&) const = default;
};

/// All lists in the order of addresses.
struct PcieNode {
  std::vector<PcieSwitch> switches;
  std::vector<PcieDevice> gpus;
  std::vector<PcieDevice> nics;
  bool operator==(const PcieNode&) const = default;
};

/// "<domain>:<bus>:<device>.<function>" as Linux writes it, in small hexadecimal digits.
bool is_pci_address(std::string_view text);

inline constexpr std::size_t kMaxPcieAnnotationBytes = 16 * 1024;

/// Numbers of the NUMA nodes that its GPUs are on, ascending. Empty: not all of these say theirs,
/// or those below one switch differ, so that nothing is known.
std::vector<int> numa_nodes_of_gpus(const PcieNode& node);

/// The value of the annotation: compact JSON, never longer than kMaxPcieAnnotationBytes for what
/// keeps to the bounds above.
std::string pcie_annotation(const PcieNode& node);

/// Whoever may write nodes may have written it. Errors: kInvalid naming the field, kTooLarge.
Result<PcieNode> parse_pcie_annotation(std::string_view text);

/// What a node's annotation says; nullopt where there is none or none that can be used.
std::optional<PcieNode> pcie_of(const ObjectMeta& node);

}  // namespace muster::api
