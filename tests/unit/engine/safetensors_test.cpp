#include "worker/engine/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::engine;

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes with_header(const std::string& json, std::size_t data_bytes) {
  Bytes file;
  for (int byte = 0; byte < 8; ++byte) {
    file.push_back(static_cast<std::uint8_t>(json.size() >> (8 * byte)));
  }
  file.insert(file.end(), json.begin(), json.end());
  file.resize(file.size() + data_bytes);
  return file;
}

Bytes example() {
  static const std::vector<float> weight{1, 2, 3, 4, 5, 6};
  static const std::vector<float> bias{7, 8, 9};
  const std::vector<TensorRef> tensors{{"b.weight", {2, 3}, weight.size()},
                                       {"a.bias", {3}, bias.size()}};
  const std::string head = safetensors_header(tensors, {{"format", "pt"}});
  Bytes file(head.begin(), head.end());
  for (const auto* values : {&weight, &bias}) {
    const std::size_t at = file.size();
    file.resize(at + values->size() * sizeof(float));
    std::memcpy(file.data() + at, values->data(), values->size() * sizeof(float));
  }
  return file;
}

std::string refused(const Bytes& file) {
  const auto parsed = parse_safetensors(file);
  REQUIRE_FALSE(parsed.has_value());
  CHECK(parsed.error().code() == ErrorCode::kCorrupt);
  return parsed.error().message();
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

}  // namespace

TEST_CASE("what was written is read, and the data starts aligned") {
  const Bytes file = example();
  const auto parsed = parse_safetensors(file);
  REQUIRE(parsed.has_value());
  CHECK(parsed->metadata.at("format") == "pt");
  const auto& weight = parsed->tensors.at("b.weight");
  CHECK(weight.shape == std::vector<std::size_t>{2, 3});
  CHECK((weight.bytes.data() - file.data()) % 64 == 0);
  float value = 0;
  std::memcpy(&value, parsed->tensors.at("a.bias").bytes.data() + 8, 4);
  CHECK(value == 9);
}

TEST_CASE("tensors that lie wrong are refused") {
  const auto file = [](const std::string& a, const std::string& b, std::size_t bytes) {
    return with_header("{" + a + (b.empty() ? "" : "," + b) + "}", bytes);
  };
  const std::string good = tensor("a", "F32", "[2]", "[0,8]");
  CHECK(parse_safetensors(file(good, "", 8)).has_value());
  refused(file(good, "", 7));
  refused(file(good, "", 12));
  refused(file(good, tensor("b", "F32", "[2]", "[4,12]"), 12));
  refused(file(good, tensor("b", "F32", "[1]", "[12,16]"), 16));
  refused(file(tensor("a", "F32", "[3]", "[0,8]"), "", 8));
  refused(file(tensor("a", "F32", "[2]", "[8,0]"), "", 8));
  refused(file(tensor("a", "F32", "[-2]", "[0,8]"), "", 8));
  refused(file(tensor("a", "F32", "[4294967296,4294967296,4294967296]", "[0,8]"), "", 8));
  refused(file(tensor("a", "F32", "[2]", "[0,18446744073709551615]"), "", 8));
  refused(file(good, good, 8));
  CHECK(refused(file(tensor("a", "F4", "[1]", "[0,8]"), "", 8)) ==
        "tensor \"a\" has an unknown dtype; must be one such as F32");
}

TEST_CASE("headers that are none are refused") {
  refused({});
  refused({1, 0, 0});
  refused(Bytes(8, 0xff));
  refused(with_header("[]", 0));
  refused(with_header("{", 0));
  refused(with_header("{\"__metadata__\":{\"a\":1}}", 0));
  CHECK(parse_safetensors(with_header("{}", 0)).has_value());
}

TEST_CASE("a file damaged anywhere is refused or still lies within itself") {
  Rng rng(test::seed());
  const Bytes whole = example();
  for (int i = 0; i < 5000; ++i) {
    Bytes file = whole;
    file.resize(rng.below(file.size() + 1));
    for (std::uint64_t flips = rng.below(3); flips > 0 && !file.empty(); --flips) {
      file[rng.below(file.size())] = static_cast<std::uint8_t>(rng());
    }
    const auto parsed = parse_safetensors(file);
    if (!parsed) continue;
    for (const auto& [name, found] : parsed->tensors) {
      CHECK(found.bytes.data() >= file.data());
      CHECK(found.bytes.data() + found.bytes.size() <= file.data() + file.size());
    }
  }
}
