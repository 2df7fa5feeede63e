// A tree like /sys in a temporary directory: as much of it as PCIe is read from.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::test {

using Attributes = std::map<std::string, std::string>;

inline const Attributes kGpu{{"class", "0x030200"}, {"vendor", "0x10de"}, {"numa_node", "0"}};
inline const Attributes kNic{{"class", "0x020000"}, {"vendor", "0x15b3"}, {"numa_node", "0"}};

/// `device` with other attributes or more of them.
inline Attributes with(Attributes device, const Attributes& more) {
  for (const auto& [name, value] : more) device[name] = value;
  return device;
}

/// A bridge whose link is made for `speed` and has come up with `width` lanes.
inline Attributes port_of(const std::string& speed, const std::string& width) {
  return {{"class", "0x060400"},
          {"max_link_speed", speed},
          {"current_link_speed", "2.5 GT/s PCIe"},
          {"max_link_width", "16"},
          {"current_link_width", width}};
}

inline const Attributes kPort = port_of("16.0 GT/s PCIe", "16");

class SysfsTree {
 public:
  SysfsTree() { std::filesystem::create_directories(devices()); }

  std::string root() const { return directory_.path; }
  std::string devices() const { return directory_.path + "/bus/pci/devices"; }

  /// `path` below devices/: "pci0000:00/0000:00:01.0/0000:01:00.0".
  void add(const std::string& path, const Attributes& attributes) {
    const std::string full = directory_.path + "/devices/" + path;
    std::filesystem::create_directories(full);
    for (const auto& [name, value] : attributes) std::ofstream(full + "/" + name) << value << '\n';
    link(path.substr(path.rfind('/') + 1), "../../../devices/" + path);
  }

  void link(const std::string& address, const std::string& target) {
    std::filesystem::create_symlink(target, devices() + "/" + address);
  }

  /// A switch below the root port at `root_port` with one upstream port on `bus` and downstream
  /// ports 00 ... on the bus after it; gives the path of its upstream port.
  std::string add_switch(const std::string& root_port, int bus, int downstream_ports,
                         const Attributes& upstream = kPort) {
    add(root_port, kPort);
    const std::string up = root_port + "/" + address(bus, 0);
    add(up, upstream);
    for (int port = 0; port < downstream_ports; ++port) {
      add(up + "/" + address(bus + 1, port), kPort);
    }
    return up;
  }

  static std::string address(int bus, int device) {
    constexpr const char* kDigits = "0123456789abcdef";
    const auto two = [&](int number) {
      return std::string{kDigits[number / 16 % 16], kDigits[number % 16]};
    };
    return "0000:" + two(bus) + ":" + two(device) + ".0";
  }

 private:
  TemporaryDirectory directory_;
};

/// 8 GPUs on 2 NUMA nodes, each with a switch for 4 of them and a network card.
inline void add_two_switches(SysfsTree& tree) {
  for (int half = 0; half < 2; ++half) {
    const int bus = 0x10 + 0x40 * half;
    const Attributes near{{"numa_node", std::to_string(half)}};
    const std::string domain = half == 0 ? "pci0000:00/0000:00:01.0" : "pci0000:40/0000:40:01.0";
    const std::string up = tree.add_switch(domain, bus, 5);
    for (int port = 0; port < 5; ++port) {
      tree.add(up + "/" + SysfsTree::address(bus + 1, port) + "/" +
                   SysfsTree::address(bus + 2 + port, 0),
               with(port < 4 ? kGpu : kNic, near));
    }
  }
}

}  // namespace muster::test
