#include "operator/agent/sysfs.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "tests/unit/agent/sysfs_tree.h"

using namespace muster;
using namespace muster::test;
using agent::read_pcie;

namespace {

const std::string kRootPort = "pci0000:00/0000:00:01.0";

/// What one switch's uplink is read as when its upstream port and the root port above say this.
std::int64_t uplink_of(const Attributes& upstream, const Attributes& root_port = kPort) {
  SysfsTree tree;
  tree.add(kRootPort, root_port);
  tree.add(kRootPort + "/0000:01:00.0", upstream);
  for (const std::string port : {"0000:02:00.0", "0000:02:01.0"}) {
    tree.add(kRootPort + "/0000:01:00.0/" + port, kPort);
  }
  tree.add(kRootPort + "/0000:01:00.0/0000:02:00.0/0000:03:00.0", kGpu);
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  REQUIRE(node->switches.size() == 1);
  return node->switches.front().uplink_bytes_per_second;
}

/// The GPUs of a machine with one good one, at 0000:01:00.0, and what `spoil` adds.
template <typename Spoil>
std::vector<api::PcieDevice> gpus_beside(Spoil spoil) {
  SysfsTree tree;
  tree.add(kRootPort, kPort);
  tree.add(kRootPort + "/0000:01:00.0", kGpu);
  spoil(tree);
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  return node->gpus;
}

const std::vector<api::PcieDevice> kGoodAlone{{"0000:01:00.0", 0, std::nullopt}};

}  // namespace

TEST_CASE("eight GPUs below two switches share an uplink in fours, each with its network card") {
  SysfsTree tree;
  add_two_switches(tree);
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  constexpr std::int64_t kGen4x16 = 31'507'692'307;
  CHECK(node->switches ==
        std::vector<api::PcieSwitch>{{"0000:10:00.0", kGen4x16}, {"0000:50:00.0", kGen4x16}});
  REQUIRE(node->gpus.size() == 8);
  for (int i = 0; i < 8; ++i) {
    const api::PcieDevice& gpu = node->gpus[static_cast<std::size_t>(i)];
    CHECK(gpu.address == SysfsTree::address(i < 4 ? 0x12 + i : 0x52 + i - 4, 0));
    CHECK(gpu.numa_node == i / 4);
    CHECK(gpu.switch_index == i / 4);
  }
  CHECK(node->nics == std::vector<api::PcieDevice>{{"0000:16:00.0", 0, 0}, {"0000:56:00.0", 1, 1}});
}

TEST_CASE("on a plain machine everything stands straight below a root port or on the root bus") {
  SysfsTree tree;
  tree.add(kRootPort, kPort);
  tree.add(kRootPort + "/0000:01:00.0", with(kGpu, {{"numa_node", "-1"}}));
  tree.add("pci0000:00/0000:00:1e.0", with(kGpu, {{"class", "0x030000"}}));
  tree.add("pci0000:00/0000:00:05.0", kNic);
  tree.add("pci0000:00/0000:00:06.0", {{"class", "0x010802"}, {"vendor", "0x144d"}});
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  CHECK(node->switches.empty());
  CHECK(node->gpus == std::vector<api::PcieDevice>{{"0000:00:1e.0", 0, std::nullopt},
                                                   {"0000:01:00.0", std::nullopt, std::nullopt}});
  CHECK(node->nics == std::vector<api::PcieDevice>{{"0000:00:05.0", 0, std::nullopt}});
}

TEST_CASE("of nested switches the uppermost counts, whose uplink all below it share") {
  SysfsTree tree;
  const std::string up = tree.add_switch(kRootPort, 0x10, 2, port_of("32.0 GT/s PCIe", "8"));
  for (int port = 0; port < 2; ++port) {
    const int bus = 0x20 + 0x10 * port;
    const std::string down = up + "/" + SysfsTree::address(0x11, port);
    const std::string inner = tree.add_switch(down + "/" + SysfsTree::address(0x60, port), bus, 2);
    tree.add(inner + "/" + SysfsTree::address(bus + 1, 0) + "/" + SysfsTree::address(bus + 2, 0),
             kGpu);
  }
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  REQUIRE(node->switches.size() == 1);
  CHECK(node->switches[0].address == "0000:10:00.0");
  CHECK(node->gpus == std::vector<api::PcieDevice>{{"0000:22:00.0", 0, 0}, {"0000:32:00.0", 0, 0}});
}

TEST_CASE("a GPU's own bridges with one port each are no switch") {
  SysfsTree tree;
  const std::string up = tree.add_switch(kRootPort, 0x01, 1);
  tree.add(up + "/0000:02:00.0/0000:03:00.0", with(kGpu, {{"vendor", "0x1002"}}));
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  CHECK(node->switches.empty());
  CHECK(node->gpus == std::vector<api::PcieDevice>{{"0000:03:00.0", 0, std::nullopt}});
}

TEST_CASE("accelerators of any maker count, and display controllers of those who make GPUs") {
  const auto is_gpu = [](const std::string& class_code, const std::string& vendor) {
    return gpus_beside([&](SysfsTree& tree) {
             tree.add("pci0000:00/0000:00:02.0", {{"class", class_code}, {"vendor", vendor}});
           }).size() == 2;
  };
  CHECK(is_gpu("0x120000", "0x1ae0"));
  CHECK(is_gpu("0x038000", "0x1002"));
  CHECK(is_gpu("0x030000", "0x8086"));
  CHECK_FALSE(is_gpu("0x030000", "0x1a03"));  // what a board's own controller shows its screen with
  CHECK_FALSE(is_gpu("0x040300", "0x10de"));  // a GPU's sound
  CHECK_FALSE(is_gpu("0x068000", "0x10de"));  // an NVSwitch
}

TEST_CASE("an uplink carries what lanes and encoding leave, by the slower of its ends") {
  CHECK(uplink_of(port_of("2.5 GT/s PCIe", "1")) == 250'000'000);
  CHECK(uplink_of(port_of("5 GT/s", "8")) == 4'000'000'000);
  CHECK(uplink_of(port_of("8.0 GT/s PCIe", "16")) == 15'753'846'153);
  CHECK(uplink_of(port_of("16.0 GT/s PCIe", "8")) == 15'753'846'153);
  CHECK(uplink_of(port_of("64.0 GT/s PCIe", "16")) == 31'507'692'307);
  CHECK(uplink_of(port_of("64.0 GT/s PCIe", "16"), port_of("64.0 GT/s PCIe", "16")) ==
        126'030'769'230);
}

TEST_CASE("an uplink that is asleep is as wide as it will be when it wakes") {
  const Attributes asleep = with(kPort, {{"current_link_speed", "2.5 GT/s PCIe"}});
  const Attributes awake = with(kPort, {{"current_link_speed", "16.0 GT/s PCIe"}});
  CHECK(uplink_of(asleep) == uplink_of(awake));
  // Where the ends do not say what they are made for, the present is all there is.
  CHECK(uplink_of(with(awake, {{"max_link_speed", "Unknown"}})) == 31'507'692'307);
}

TEST_CASE("an uplink of which nothing sensible is told is not known") {
  for (const std::string speed : {"", "Unknown", "-16.0 GT/s", "17 GT/s", "1e9 GT/s", "GT/s"}) {
    const Attributes port = with(kPort, {{"max_link_speed", speed}, {"current_link_speed", speed}});
    CHECK(uplink_of(port) == 0);
  }
  for (const std::string width : {"", "0", "-1", "63", "16x", "99999999999999999999"}) {
    const Attributes port = with(kPort, {{"max_link_width", width}, {"current_link_width", width}});
    CHECK(uplink_of(port) == 0);
  }
}

TEST_CASE("a NUMA node that cannot be one is not known") {
  for (const std::string number : {"-1", "1024", "x", "", "0x1", "99999999999999999999"}) {
    SysfsTree tree;
    tree.add("pci0000:00/0000:00:02.0", with(kGpu, {{"numa_node", number}}));
    const auto node = read_pcie(tree.root());
    REQUIRE(node);
    CHECK(node->gpus == std::vector<api::PcieDevice>{{"0000:00:02.0", std::nullopt, std::nullopt}});
  }
}

TEST_CASE("two sockets without switches tell their NUMA nodes, through the annotation, too") {
  SysfsTree tree;
  for (int socket = 0; socket < 2; ++socket) {
    const std::string domain = socket == 0 ? "pci0000:00/0000:00" : "pci0000:80/0000:80";
    for (int i = 0; i < 2; ++i) {
      const std::string port = domain + ":0" + std::to_string(i + 1) + ".0";
      tree.add(port, kPort);
      tree.add(port + "/" + SysfsTree::address(0x80 * socket + i + 1, 0),
               with(kGpu, {{"numa_node", std::to_string(socket)}}));
    }
  }
  const auto node = read_pcie(tree.root());
  REQUIRE(node);
  const auto told = api::parse_pcie_annotation(api::pcie_annotation(*node));
  REQUIRE(told);
  CHECK(told->switches.empty());
  CHECK(told->gpus.size() == 4);
  CHECK(api::numa_nodes_of_gpus(*told) == std::vector<int>{0, 1});
  // One that does not say so leaves it open between which of them something is sent.
  tree.add("pci0000:00/0000:00:05.0", with(kGpu, {{"numa_node", "-1"}}));
  const auto open = read_pcie(tree.root());
  REQUIRE(open);
  CHECK(api::numa_nodes_of_gpus(*open).empty());
}

TEST_CASE("a device whose files are missing or no files is left out, and the others are not") {
  for (const auto& broken :
       {Attributes{}, Attributes{{"class", "0x030200"}}, Attributes{{"vendor", "0x10de"}},
        with(kGpu, {{"class", "gpu"}}), with(kGpu, {{"class", std::string(100'000, '0')}})}) {
    CHECK(gpus_beside([&](SysfsTree& tree) { tree.add("pci0000:00/0000:00:02.0", broken); }) ==
          kGoodAlone);
  }
  CHECK(gpus_beside([](SysfsTree& tree) {
          tree.add("pci0000:00/0000:00:02.0", {});
          const std::string device = tree.root() + "/devices/pci0000:00/0000:00:02.0";
          REQUIRE(::mkfifo((device + "/class").c_str(), 0600) == 0);
          std::filesystem::create_directory(device + "/vendor");
        }) == kGoodAlone);
}

TEST_CASE("links that lead in circles, nowhere or past the tree are left out") {
  CHECK(gpus_beside([](SysfsTree& tree) {
          tree.link("0000:02:00.0", "0000:02:00.0");
          tree.link("0000:03:00.0", "0000:04:00.0");
          tree.link("0000:04:00.0", "0000:03:00.0");
          tree.link("0000:05:00.0", "../../../devices/pci0000:00/0000:00:09.0/0000:05:00.0");
          tree.link("0000:06:00.0", "../../../devices/" + kRootPort + "/0000:01:00.0");
          tree.link("0000:07:00.0", "/");
          tree.link("not an address", "../../../devices/" + kRootPort + "/0000:01:00.0");
          std::filesystem::create_directory(tree.devices() + "/0000:08:00.0");
        }) == kGoodAlone);
}

TEST_CASE("a device below something that is no bridge is left out") {
  CHECK(gpus_beside([](SysfsTree& tree) {
          tree.add(kRootPort + "/0000:01:00.0/0000:02:00.0", kGpu);
          tree.add("pci0000:00/0000:00:03.0/0000:03:00.0", kGpu);
        }) == kGoodAlone);
}

TEST_CASE("bridges stand 32 deep at most") {
  const auto gpus_below = [](int bridges) {
    SysfsTree tree;
    std::string path = "pci0000:00";
    for (int i = 0; i < bridges; ++i) {
      path += "/" + SysfsTree::address(i, 1);
      tree.add(path, kPort);
    }
    tree.add(path + "/0000:ff:00.0", kGpu);
    const auto node = read_pcie(tree.root());
    REQUIRE(node);
    return node->gpus.size();
  };
  CHECK(gpus_below(32) == 1);
  CHECK(gpus_below(33) == 0);
}

TEST_CASE("virtual functions are not devices of the node") {
  CHECK(gpus_beside([](SysfsTree& tree) {
          tree.add(kRootPort + "/0000:01:00.1", kGpu);
          std::filesystem::create_symlink(
              "../0000:01:00.0", tree.root() + "/devices/" + kRootPort + "/0000:01:00.1/physfn");
        }) == kGoodAlone);
}

TEST_CASE("a machine without PCI is an error that names the directory") {
  const TemporaryDirectory empty;
  const auto node = read_pcie(empty.path);
  REQUIRE_FALSE(node);
  CHECK(node.error().code() == ErrorCode::kNotFound);
  CHECK(node.error().message().starts_with(empty.path + "/bus/pci/devices: cannot list"));
}

TEST_CASE("thousands of devices are read, and more than any machine has are refused") {
  const auto with_links = [](int count) {
    SysfsTree tree;
    tree.add("pci0000:00/0000:00:02.0", kGpu);
    for (int i = 0; i < count; ++i) {
      const std::string name = "0001:" + SysfsTree::address(i, i / 256).substr(5);
      tree.link(name, "../../../devices/pci0001:00/" + name);
    }
    return read_pcie(tree.root());
  };
  const auto thousands = with_links(5'000);
  REQUIRE(thousands);
  CHECK(thousands->gpus.size() == 1);
  const auto more = with_links(16'384);
  REQUIRE_FALSE(more);
  CHECK(more.error().code() == ErrorCode::kTooLarge);
}

TEST_CASE("a node with more GPUs, network cards or switches than can be told is refused") {
  const auto with_devices = [](int count, const Attributes& device) {
    SysfsTree tree;
    for (int i = 0; i < count; ++i) {
      tree.add("pci0000:00/" + SysfsTree::address(0, i), device);
    }
    return read_pcie(tree.root());
  };
  for (const Attributes& device : {kGpu, kNic}) {
    CHECK(with_devices(64, device));
    const auto more = with_devices(65, device);
    REQUIRE_FALSE(more);
    CHECK(more.error().code() == ErrorCode::kTooLarge);
  }
  SysfsTree tree;
  for (int i = 0; i < 65; ++i) {
    const std::string up = tree.add_switch("pci0000:00/" + SysfsTree::address(0, i), 3 * i + 1, 2);
    tree.add(up + "/" + SysfsTree::address(3 * i + 2, 0) + "/" + SysfsTree::address(3 * i + 3, 0),
             i % 2 == 0 ? kGpu : kNic);
  }
  const auto switches = read_pcie(tree.root());
  REQUIRE_FALSE(switches);
  CHECK(switches.error().message() == "the node has more than 64 PCIe switches");
}
