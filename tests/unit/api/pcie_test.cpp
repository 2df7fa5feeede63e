#include "operator/api/pcie.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/json.h"

using namespace muster;
using namespace muster::api;

namespace {

PcieNode two_switches() {
  PcieNode node;
  node.switches = {{"0000:10:00.0", 31'507'692'307}, {"0000:50:00.0", 0}};
  node.gpus = {{"0000:12:00.0", 0, 0}, {"0000:52:00.0", 1, 1}, {"0000:80:00.0", {}, {}}};
  node.nics = {{"0000:16:00.0", 0, 0}};
  return node;
}

/// The sentence about the annotation of `two_switches` after `spoil` had its way with it.
template <typename Spoil>
std::string refusal(Spoil spoil) {
  auto json = parse_json(pcie_annotation(two_switches()));
  REQUIRE(json);
  spoil(*json);
  const auto node = parse_pcie_annotation(dump_json(*json));
  REQUIRE_FALSE(node);
  CHECK(node.error().code() == ErrorCode::kInvalid);
  return node.error().message();
}

std::string numbered_address(std::size_t number) {
  constexpr const char* kDigits = "0123456789abcdef";
  return std::string("ffffffff:") + kDigits[number / 16] + kDigits[number % 16] + ":00.0";
}

}  // namespace

TEST_CASE("what the annotation says is what was written into it") {
  CHECK(pcie_annotation(two_switches()) ==
        R"({"gpus":[{"address":"0000:12:00.0","numa":0,"switch":0},)"
        R"({"address":"0000:52:00.0","numa":1,"switch":1},{"address":"0000:80:00.0"}],)"
        R"("nics":[{"address":"0000:16:00.0","numa":0,"switch":0}],)"
        R"("switches":[{"address":"0000:10:00.0","bytesPerSecond":31507692307},)"
        R"({"address":"0000:50:00.0"}],"version":1})");
  for (const PcieNode& node : {two_switches(), PcieNode{}}) {
    const auto read = parse_pcie_annotation(pcie_annotation(node));
    REQUIRE(read);
    CHECK(*read == node);
  }
}

TEST_CASE("the largest node that can be described fits") {
  PcieNode node;
  for (std::size_t i = 0; i < kMaxPcieSwitches; ++i) {
    node.switches.push_back({numbered_address(i), kMaxPcieBytesPerSecond});
  }
  for (std::size_t i = 0; i < kMaxPcieDevices; ++i) {
    const PcieDevice device{numbered_address(i), kMaxNumaNodes - 1, kMaxPcieSwitches - 1};
    node.gpus.push_back(device);
    node.nics.push_back(device);
  }
  const std::string text = pcie_annotation(node);
  CHECK(text.size() <= kMaxPcieAnnotationBytes);
  const auto read = parse_pcie_annotation(text);
  REQUIRE(read);
  CHECK(*read == node);
}

TEST_CASE("an annotation that cannot be right is refused with the field's name") {
  CHECK(refusal([](Json& json) { json["version"] = 2; }).starts_with("version: "));
  CHECK(refusal([](Json& json) { json.erase("version"); }).starts_with("version: "));
  CHECK(refusal([](Json& json) { json["more"] = 1; }).starts_with("more: "));
  CHECK(refusal([](Json& json) { json["gpus"] = 8; }).starts_with("gpus: "));
  CHECK(refusal([](Json& json) { json["gpus"][0] = 8; }).starts_with("gpus[0]: "));
  CHECK(refusal([](Json& json) { json["gpus"][0]["more"] = 1; }).starts_with("gpus[0].more: "));
  CHECK(refusal([](Json& json) { json["gpus"][1]["switch"] = 2; }).starts_with("gpus[1].switch: "));
  CHECK(
      refusal([](Json& json) { json["nics"][0]["switch"] = -1; }).starts_with("nics[0].switch: "));
  CHECK(refusal([](Json& json) { json["nics"][0]["numa"] = 1024; }).starts_with("nics[0].numa: "));
  CHECK(refusal([](Json& json) { json["nics"][0]["numa"] = 0.5; }).starts_with("nics[0].numa: "));
  CHECK(refusal([](Json& json) { json["switches"] = nullptr; }).starts_with("gpus[0].switch: "));
  CHECK(refusal([](Json& json) {
          json["switches"][0]["bytesPerSecond"] = kMaxPcieBytesPerSecond + 1;
        }).starts_with("switches[0].bytesPerSecond: "));
  CHECK(refusal([](Json& json) { json["switches"][1]["address"] = "0000:10:00.0"; }) ==
        "switches[1].address: must come after the one before it");
  for (const std::string address :
       {"", "0000:12:00", "0000:12:00.8", "0000:1G:00.0", "000:12:00.0", "000000000:12:00.0",
        "0000:12:00.0 ", "0000-12:00.0", "../../etc/pass", "0000:AB:00.0"}) {
    CHECK(refusal([&](Json& json) {
            json["gpus"][0]["address"] = address;
          }).starts_with("gpus[0].address: "));
  }
}

TEST_CASE("lists that are too long are refused") {
  const auto with = [](const char* list, std::size_t count) {
    Json json{{"version", 1}};
    for (std::size_t i = 0; i < count; ++i) json[list][i] = {{"address", numbered_address(i)}};
    return parse_pcie_annotation(dump_json(json)).has_value();
  };
  for (const char* list : {"switches", "gpus", "nics"}) {
    CHECK(with(list, 64));
    CHECK_FALSE(with(list, 65));
  }
}

TEST_CASE("texts that are no such annotation are refused") {
  for (const std::string text : {"", "null", "[]", "1", "{", "{}", "\"\"", "\xff",
                                 R"({"version":1,"version":1})", R"({"version":"1"})"}) {
    CHECK_FALSE(parse_pcie_annotation(text));
  }
  CHECK_FALSE(parse_pcie_annotation(std::string(16 * 1024, '[')));
  const std::string padded = R"({"version":1})" + std::string(kMaxPcieAnnotationBytes, ' ');
  CHECK(parse_pcie_annotation(padded).error().code() == ErrorCode::kTooLarge);
}

TEST_CASE("a node whose annotation cannot be used is a node without one") {
  ObjectMeta node;
  CHECK_FALSE(pcie_of(node));
  std::string& text = node.annotations[std::string(contract::kAnnotationPcie)];
  CHECK_FALSE(pcie_of(node));
  text = pcie_annotation(two_switches());
  CHECK(pcie_of(node) == two_switches());
  text.pop_back();
  CHECK_FALSE(pcie_of(node));
}

TEST_CASE("NUMA nodes are known where all GPUs say theirs, and those below a switch the same") {
  const auto numbers = [](const std::vector<PcieDevice>& gpus) {
    PcieNode node = two_switches();
    node.gpus = gpus;
    return numa_nodes_of_gpus(node);
  };
  using Numbers = std::vector<int>;
  CHECK(numbers({{"a", 3, 0}, {"b", 3, 0}, {"c", 0, 1}, {"d", 1, {}}}) == Numbers{0, 1, 3});
  CHECK(numbers({{"a", 1, 0}, {"b", 1, 1}}) == Numbers{1});
  CHECK(numbers({{"a", 0, 0}, {"b", {}, 1}}).empty());
  CHECK(numbers({{"a", 0, 0}, {"b", 1, 0}}).empty());
  CHECK(numbers({}).empty());
}
