#include "operator/api/pcie.h"

#include <algorithm>

#include "common/contract.h"
#include "common/json.h"
#include "operator/api/fields.h"

namespace muster::api {
namespace {

constexpr int kPcieVersion = 1;

constexpr std::size_t kLeastDomainDigits = 4;
constexpr std::size_t kMostDomainDigits = 8;

bool are_hex_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Json device_to_json(const PcieDevice& device) {
  Json json{{"address", device.address}};
  if (device.numa_node) json["numa"] = *device.numa_node;
  if (device.switch_index) json["switch"] = *device.switch_index;
  return json;
}

Json devices_to_json(const std::vector<PcieDevice>& devices) {
  Json json = Json::array();
  for (const PcieDevice& device : devices) json.push_back(device_to_json(device));
  return json;
}

/// Reads an address that comes after `before`, so that none stands twice in its list.
void read_address(JsonReader& in, const std::string& before, std::string& out) {
  in.required("address", out);
  if (!in.status()) return;
  if (!is_pci_address(out)) return in.fail("address", "must be a PCI address, like 0000:01:00.0");
  if (out <= before) in.fail("address", "must come after the one before it");
}

void read_index(JsonReader& in, std::string_view field, int count, std::optional<int>& out) {
  if (!in.has(field)) return;
  int number = 0;
  in.required(field, number, {0, count - 1});
  out = number;
}

void read_switches(JsonReader& in, std::vector<PcieSwitch>& out) {
  std::string before;
  read_list(in, "switches", kMaxPcieSwitches, [&](const Json& item, const std::string& at) {
    JsonReader entry(item, at);
    PcieSwitch& shared = out.emplace_back();
    read_address(entry, before, shared.address);
    entry.optional("bytesPerSecond", shared.uplink_bytes_per_second, {0, kMaxPcieBytesPerSecond});
    entry.no_other_fields();
    before = shared.address;
    return entry.status();
  });
}

void read_devices(JsonReader& in, std::string_view field, std::size_t switches,
                  std::vector<PcieDevice>& out) {
  std::string before;
  read_list(in, field, kMaxPcieDevices, [&](const Json& item, const std::string& at) {
    JsonReader entry(item, at);
    PcieDevice& device = out.emplace_back();
    read_address(entry, before, device.address);
    read_index(entry, "numa", kMaxNumaNodes, device.numa_node);
    read_index(entry, "switch", static_cast<int>(switches), device.switch_index);
    entry.no_other_fields();
    before = device.address;
    return entry.status();
  });
}

}  // namespace

bool is_pci_address(std::string_view text) {
  constexpr std::size_t kTail = std::string_view(":01:00.0").size();
  if (text.size() < kLeastDomainDigits + kTail || text.size() > kMostDomainDigits + kTail) {
    return false;
  }
  const std::string_view domain = text.substr(0, text.size() - kTail);
  const std::string_view tail = text.substr(domain.size());
  return are_hex_digits(domain) && tail[0] == ':' && are_hex_digits(tail.substr(1, 2)) &&
         tail[3] == ':' && are_hex_digits(tail.substr(4, 2)) && tail[6] == '.' && tail[7] >= '0' &&
         tail[7] <= '7';
}

std::vector<int> numa_nodes_of_gpus(const PcieNode& node) {
  std::vector<int> numbers;
  numbers.reserve(node.gpus.size());
  std::vector<std::optional<int>> of_switch(node.switches.size());
  for (const PcieDevice& gpu : node.gpus) {
    if (!gpu.numa_node) return {};
    numbers.push_back(*gpu.numa_node);
    if (!gpu.switch_index) continue;
    std::optional<int>& told = of_switch[static_cast<std::size_t>(*gpu.switch_index)];
    if (told && told != gpu.numa_node) return {};
    told = gpu.numa_node;
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::string pcie_annotation(const PcieNode& node) {
  Json switches = Json::array();
  for (const PcieSwitch& shared : node.switches) {
    Json& entry = switches.emplace_back(Json{{"address", shared.address}});
    if (shared.uplink_bytes_per_second > 0) {
      entry["bytesPerSecond"] = shared.uplink_bytes_per_second;
    }
  }
  return dump_json({{"version", kPcieVersion},
                    {"switches", std::move(switches)},
                    {"gpus", devices_to_json(node.gpus)},
                    {"nics", devices_to_json(node.nics)}});
}

Result<PcieNode> parse_pcie_annotation(std::string_view text) {
  if (text.size() > kMaxPcieAnnotationBytes) {
    return Error(ErrorCode::kTooLarge, "must have at most 16 KiB");
  }
  MUSTER_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  PcieNode node;
  JsonReader in(json, "");
  int version = 0;
  in.required("version", version, {kPcieVersion, kPcieVersion});
  read_switches(in, node.switches);
  read_devices(in, "gpus", node.switches.size(), node.gpus);
  read_devices(in, "nics", node.switches.size(), node.nics);
  in.no_other_fields();
  MUSTER_RETURN_IF_ERROR(in.status());
  return node;
}

std::optional<PcieNode> pcie_of(const ObjectMeta& node) {
  const auto found = node.annotations.find(std::string(contract::kAnnotationPcie));
  if (found == node.annotations.end()) return std::nullopt;
  auto parsed = parse_pcie_annotation(found->second);
  if (!parsed) return std::nullopt;
  return std::move(*parsed);
}

}  // namespace muster::api
