#include "operator/agent/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "common/file.h"

namespace muster::agent {
namespace {

constexpr std::size_t kMaxPciFunctions = 16'384;
constexpr std::size_t kMaxBridgesAbove = 32;
constexpr std::size_t kMaxAttributeBytes = 64;
constexpr int kMaxLanes = 32;

// Base class and subclass, as the PCI Code and ID Assignment Specification numbers them.
constexpr std::uint32_t kClassNetwork = 0x02;
constexpr std::uint32_t kClassVga = 0x0300;
constexpr std::uint32_t kClass3d = 0x0302;
constexpr std::uint32_t kClassOtherDisplay = 0x0380;
constexpr std::uint32_t kClassPciBridge = 0x0604;
constexpr std::uint32_t kClassAccelerator = 0x1200;
/// Whose display controllers compute: NVIDIA, AMD, Intel. Those of a board's controller do not.
constexpr std::array<std::uint32_t, 3> kGpuVendors{0x10de, 0x1002, 0x8086};

/// Speed of a lane in tenths of GT/s by the texts that kernels wrote for it over the years.
struct LaneSpeed {
  std::string_view text;
  std::int64_t tenths;
};
constexpr LaneSpeed kLaneSpeeds[] = {{"2.5", 25},   {"5", 50},   {"5.0", 50},   {"8", 80},
                                     {"8.0", 80},   {"16", 160}, {"16.0", 160}, {"32", 320},
                                     {"32.0", 320}, {"64", 640}, {"64.0", 640}};
constexpr std::int64_t kFirstTenthsOf128b130b = 80;

struct Function {
  std::vector<std::string> above;  ///< from the root port down to the bridge that it is below
  std::uint32_t class_code = 0;    ///< base class and subclass
};
using Functions = std::map<std::string, Function>;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

/// The directory <root>/bus/pci/devices, whose entries are links named by address.
class Bus {
 public:
  explicit Bus(Directory directory) : directory_(std::move(directory)) {}

  DIR* stream() const { return directory_.get(); }

  /// Without the line's end; nullopt where it cannot be read or is longer than any attribute.
  std::optional<std::string> attribute(const std::string& address, const char* name) const {
    // O_NONBLOCK: a pipe in its place must not keep us waiting.
    const UniqueFd file(
        ::openat(descriptor(), (address + "/" + name).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about{};
    if (!file || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
    std::array<char, kMaxAttributeBytes + 1> bytes;
    const ssize_t got = ::read(file.get(), bytes.data(), bytes.size());
    if (got <= 0 || static_cast<std::size_t>(got) > kMaxAttributeBytes) return std::nullopt;
    std::string text(bytes.data(), static_cast<std::size_t>(got));
    if (text.back() == '\n') text.pop_back();
    return text;
  }

  std::optional<std::string> link(const std::string& address) const {
    std::array<char, PATH_MAX> bytes;
    const ssize_t got = ::readlinkat(descriptor(), address.c_str(), bytes.data(), bytes.size());
    if (got <= 0 || static_cast<std::size_t>(got) == bytes.size()) return std::nullopt;
    return std::string(bytes.data(), static_cast<std::size_t>(got));
  }

  bool is_virtual(const std::string& address) const {
    struct stat about{};
    return ::fstatat(descriptor(), (address + "/physfn").c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0;
  }

 private:
  int descriptor() const { return ::dirfd(directory_.get()); }

  Directory directory_;
};

/// "0x030200"; nullopt for anything else.
std::optional<std::uint32_t> parse_id(const std::optional<std::string>& text) {
  if (!text || !text->starts_with("0x")) return std::nullopt;
  std::uint32_t id = 0;
  const auto [end, failure] =
      std::from_chars(text->data() + 2, text->data() + text->size(), id, 16);
  if (failure != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return id;
}

/// A number from `least` to `most`; nullopt for anything else, -1 ("none") and 255 lanes included.
std::optional<int> parse_number(const std::optional<std::string>& text, int least, int most) {
  if (!text) return std::nullopt;
  int number = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool is_right = failure == std::errc() && end == text->data() + text->size();
  if (!is_right || number < least || number > most) return std::nullopt;
  return number;
}

/// "16.0 GT/s PCIe" in tenths of GT/s; nullopt for "Unknown" and anything else.
std::optional<std::int64_t> parse_speed(const std::optional<std::string>& text) {
  const auto unit = text ? text->find(" GT/s") : std::string::npos;
  if (unit == std::string::npos) return std::nullopt;
  const auto found =
      std::find_if(std::begin(kLaneSpeeds), std::end(kLaneSpeeds), [&](const LaneSpeed& speed) {
        return speed.text == std::string_view(*text).substr(0, unit);
      });
  if (found == std::end(kLaneSpeeds)) return std::nullopt;
  return found->tenths;
}

/// The addresses behind "pci<domain>:<bus>" in a link's text, ending in `address` itself; nullopt
/// where the text is not such a path. The text alone is read, so links that lead in circles lead
/// nowhere.
std::optional<std::vector<std::string>> parse_path(const std::string& link,
                                                   const std::string& address) {
  std::vector<std::string> path;
  std::string_view rest = link;
  while (!rest.empty()) {
    const auto slash = rest.rfind('/');
    const std::string_view part = slash == std::string_view::npos ? rest : rest.substr(slash + 1);
    if (!api::is_pci_address(part)) {
      if (!part.starts_with("pci")) return std::nullopt;
      break;
    }
    if (path.size() > kMaxBridgesAbove) return std::nullopt;
    path.emplace_back(part);
    rest = slash == std::string_view::npos ? std::string_view() : rest.substr(0, slash);
  }
  if (rest.empty() || path.empty() || path.front() != address) return std::nullopt;
  std::reverse(path.begin(), path.end());
  return path;
}

Result<Functions> read_functions(const Bus& bus, const std::string& path) {
  Functions functions;
  std::size_t count = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(bus.stream());
    if (entry == nullptr && errno != 0) return os_error(path, "list", errno);
    if (entry == nullptr) return functions;
    if (++count > kMaxPciFunctions) {
      return Error(ErrorCode::kTooLarge,
                   path + ": has more than " + std::to_string(kMaxPciFunctions) + " entries");
    }
    const std::string address = entry->d_name;
    if (!api::is_pci_address(address)) continue;
    const auto link = bus.link(address);
    auto above = link ? parse_path(*link, address) : std::nullopt;
    const auto class_code = parse_id(bus.attribute(address, "class"));
    if (!above || !class_code) continue;
    above->pop_back();
    functions[address] = {std::move(*above),
                          *class_code >> 8};  // without the programming interface
  }
}

class Reading {
 public:
  Reading(const Bus& bus, const Functions& functions) : bus_(bus), functions_(functions) {
    for (const auto& [address, function] : functions) {
      if (is_bridge(address) && !function.above.empty()) ++ports_below_[function.above.back()];
    }
  }

  Result<api::PcieNode> read() {
    for (const auto& [address, function] : functions_) {
      const bool is_nic = function.class_code >> 8 == kClassNetwork;
      if (!is_nic && !is_gpu(address, function.class_code)) continue;
      if (!stands_below_bridges(function) || bus_.is_virtual(address)) continue;
      std::vector<api::PcieDevice>& list = is_nic ? node_.nics : node_.gpus;
      if (list.size() == api::kMaxPcieDevices) {
        return Error(ErrorCode::kTooLarge, "the node has more than " +
                                               std::to_string(api::kMaxPcieDevices) +
                                               (is_nic ? " network cards" : " GPUs"));
      }
      list.push_back({address,
                      parse_number(bus_.attribute(address, "numa_node"), 0, api::kMaxNumaNodes - 1),
                      std::nullopt});
      if (const auto port = switch_above(function)) enter_switch(address, function, *port);
    }
    return finish();
  }

 private:
  bool is_bridge(const std::string& address) const {
    const auto found = functions_.find(address);
    return found != functions_.end() && found->second.class_code == kClassPciBridge;
  }

  bool is_gpu(const std::string& address, std::uint32_t class_code) const {
    if (class_code == kClassAccelerator) return true;
    if (class_code != kClassVga && class_code != kClass3d && class_code != kClassOtherDisplay) {
      return false;
    }
    const auto vendor = parse_id(bus_.attribute(address, "vendor"));
    return vendor &&
           std::find(kGpuVendors.begin(), kGpuVendors.end(), *vendor) != kGpuVendors.end();
  }

  bool stands_below_bridges(const Function& function) const {
    return std::all_of(function.above.begin(), function.above.end(),
                       [&](const std::string& address) { return is_bridge(address); });
  }

  /// Which bridge above is the switch that all others below it share. The first is the root port.
  /// A card with a single port inside, as some GPUs are built, shares its way with nobody.
  std::optional<std::size_t> switch_above(const Function& function) const {
    for (std::size_t i = 1; i < function.above.size(); ++i) {
      const auto ports = ports_below_.find(function.above[i]);
      if (ports != ports_below_.end() && ports->second > 1) return i;
    }
    return std::nullopt;
  }

  void enter_switch(const std::string& device, const Function& function, std::size_t port) {
    const std::string& address = function.above[port];
    switch_of_[device] = address;
    if (!uplinks_.contains(address)) uplinks_[address] = uplink(address, function.above[port - 1]);
  }

  /// Bytes a second in one direction between the switch's port and the one above it; 0: not known.
  /// Lanes by what the link has come up with, because a lost lane stays lost; speed by what both
  /// ends are made for, because links are slowed down to save power and this must not follow.
  std::int64_t uplink(const std::string& port, const std::string& above) const {
    const auto made_for = parse_speed(bus_.attribute(port, "max_link_speed"));
    const auto above_made_for = parse_speed(bus_.attribute(above, "max_link_speed"));
    const auto speed = made_for && above_made_for
                           ? std::optional(std::min(*made_for, *above_made_for))
                           : parse_speed(bus_.attribute(port, "current_link_speed"));
    auto lanes = parse_number(bus_.attribute(port, "current_link_width"), 1, kMaxLanes);
    if (!lanes) lanes = parse_number(bus_.attribute(port, "max_link_width"), 1, kMaxLanes);
    if (!speed || !lanes) return 0;
    const std::int64_t bits = *speed * 100'000'000 * *lanes;
    return *speed < kFirstTenthsOf128b130b ? bits / 10 : bits / 8 * 128 / 130;
  }

  Result<api::PcieNode> finish() {
    if (uplinks_.size() > api::kMaxPcieSwitches) {
      return Error(
          ErrorCode::kTooLarge,
          "the node has more than " + std::to_string(api::kMaxPcieSwitches) + " PCIe switches");
    }
    std::map<std::string, int> index;
    for (const auto& [address, bytes_per_second] : uplinks_) {
      index[address] = static_cast<int>(node_.switches.size());
      node_.switches.push_back({address, bytes_per_second});
    }
    for (std::vector<api::PcieDevice>* list : {&node_.gpus, &node_.nics}) {
      for (api::PcieDevice& device : *list) {
        const auto found = switch_of_.find(device.address);
        if (found != switch_of_.end()) device.switch_index = index.at(found->second);
      }
    }
    return std::move(node_);
  }

  const Bus& bus_;
  const Functions& functions_;
  std::map<std::string, int> ports_below_;        ///< bridges by the bridge that they are below
  std::map<std::string, std::string> switch_of_;  ///< by the device's address
  std::map<std::string, std::int64_t> uplinks_;   ///< by the switch's address
  api::PcieNode node_;
};

}  // namespace

Result<api::PcieNode> read_pcie(const std::string& root) {
  const std::string path = root + "/bus/pci/devices";
  Directory directory(::opendir(path.c_str()));
  if (!directory) return os_error(path, "list", errno);
  const Bus bus(std::move(directory));
  MUSTER_ASSIGN_OR_RETURN(const Functions functions, read_functions(bus, path));
  return Reading(bus, functions).read();
}

}  // namespace muster::agent
