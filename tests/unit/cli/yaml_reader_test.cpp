#include "cli/yaml_reader.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "cli/files.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

Json value_of(const std::string& yaml) {
  auto parsed = parse_yaml("v: " + yaml, "f");
  if (!parsed) FAIL(parsed.error().message());
  return (*parsed)["v"];
}

std::string refusal_of(const std::string& yaml) {
  auto parsed = parse_yaml(yaml, "job.yaml");
  if (parsed) return "accepted: " + dump_json(*parsed);
  CHECK(parsed.error().exit_code() == contract::exit_code::kInvalidSpec);
  return parsed.error().message();
}

TEST_CASE("plain scalars have the types of YAML 1.2's core schema") {
  struct Row {
    const char* yaml;
    Json value;
  };
  const Row rows[] = {
      {"3", 3},
      {"-3", -3},
      {"+3", 3},
      {"0", 0},
      {"-0", 0},
      {"0.5", 0.5},
      {"00.5", 0.5},
      {"0o17", 15},
      {"0xfF", 255},
      {"9223372036854775807", std::int64_t{9223372036854775807}},
      {"0.1", 0.1},
      {"+.5", 0.5},
      {"1.", 1.0},
      {"1e3", 1000.0},
      {"-1.5E-2", -0.015},
      {"true", true},
      {"False", false},
      {"null", nullptr},
      {"~", nullptr},
      {"", nullptr},
      // Not of the core schema: words.
      {"yes", "yes"},
      {"off", "off"},
      {"1_000", "1_000"},
      {"0b11", "0b11"},
      {"12:30", "12:30"},
      {"1e", "1e"},
      {".", "."},
      {"-", Json::array({nullptr})},
      {"512Mi", "512Mi"},
      {"-0x1", "-0x1"},
      // Quoted: strings, whatever they look like.
      {"\"3\"", "3"},
      {"'true'", "true"},
      {"\"\"", ""},
      {"\"0.1\"", "0.1"},
      {"\"007\"", "007"},
      {"!!str 0.1", "0.1"},
      {"[64, '32', x]", Json::array({64, "32", "x"})},
      {"{a: 1, b: {c: [true]}}", Json{{"a", 1}, {"b", {{"c", {true}}}}}},
      {"[]", Json::array()},
      {"{}", Json::object()},
  };
  for (const Row& row : rows) {
    CAPTURE(row.yaml);
    if (std::string(row.yaml) == "-") {
      CHECK((*parse_yaml("v:\n  -", "f"))["v"] == row.value);
      continue;
    }
    CHECK(value_of(row.yaml) == row.value);
    CHECK(value_of(row.yaml).type() == row.value.type());
  }
}

TEST_CASE("a block scalar is a string and a key is its text") {
  CHECK(*parse_yaml("1: a\ntrue: b\nt: |\n  12\n", "f") ==
        Json{{"1", "a"}, {"true", "b"}, {"t", "12\n"}});
}

TEST_CASE("documents beside the one that is meant may be empty") {
  for (const char* text : {"---\na: 1\n---\n", "a: 1\n---\n# no more\n---\n", "---\n---\na: 1\n"}) {
    const auto parsed = parse_yaml(text, "f");
    REQUIRE_MESSAGE(parsed, parsed.error().message());
    CHECK(*parsed == Json{{"a", 1}});
  }
  CHECK(parse_yaml("~", "f").value() == nullptr);
}

TEST_CASE("an alias stands for a copy of its anchor") {
  CHECK(*parse_yaml("a: &x {n: 1}\nb: *x\nc: [*x, *x]", "f") ==
        Json{{"a", {{"n", 1}}}, {"b", {{"n", 1}}}, {"c", {{{"n", 1}}, {{"n", 1}}}}});
}

TEST_CASE("what is no manifest is refused with the line") {
  CHECK(refusal_of("spec:\n  a: 1\n  b: 2\n  a: 3\n") ==
        "job.yaml:4: the key \"a\" stands here twice");
  CHECK(refusal_of("a: {b: 1, b: 2}") == "job.yaml:1: the key \"b\" stands here twice");
  CHECK(refusal_of("") == "job.yaml:1: is empty; a manifest starts with apiVersion and kind");
  CHECK(refusal_of("# only a comment\n") ==
        "job.yaml:1: is empty; a manifest starts with apiVersion and kind");
  CHECK(refusal_of("a: 1\n---\nb: 2\n") ==
        "job.yaml:2: holds more than one document; keep one and remove the rest");
  CHECK(refusal_of("a: 1\n---\n---\n---\nb: 2\n").starts_with("job.yaml:4: holds more than one "));
  std::string many = "a: 1\n";
  for (int i = 0; i < 1000; ++i) many += "---\n";
  CHECK(refusal_of(many).find(": holds more than one document") != std::string::npos);
  CHECK(refusal_of("a: 1\nb: [1, 2\nc: 3\n").starts_with("job.yaml:3: is not YAML: "));
  CHECK(refusal_of("a: *nowhere").starts_with("job.yaml:1: is not YAML: "));
  CHECK(refusal_of("a: &x [*x]") == "job.yaml:1: an alias stands inside its anchor");
  CHECK(refusal_of("a: &x {n: 1}\nb:\n  <<: *x") ==
        "job.yaml:3: merge keys (<<) are not supported; write the fields out");
  CHECK(refusal_of("a: !!python/object x").starts_with("job.yaml:1: the tag "));
  CHECK(refusal_of("a: !!binary aGk=").starts_with("job.yaml:1: the tag "));
  CHECK(refusal_of("? [a, b]\n: 1") == "job.yaml:1: a key must be a word, not a list or a map");
  CHECK(refusal_of("a: 1\nb: .inf") == "job.yaml:2: .inf is no value that JSON can hold");
  CHECK(refusal_of("a: 9223372036854775808") ==
        "job.yaml:1: 9223372036854775808 does not fit a 64-bit integer");
  CHECK(refusal_of("a: 1e999").starts_with("job.yaml:1: 1e999 does not fit"));
  CHECK(refusal_of("a: \"\xff\xfe\"") == "job.yaml:1: is not UTF-8 text");
  CHECK(refusal_of("a: \"\\uD800\"").starts_with("job.yaml:1: "));
  // yaml-cpp would end at this byte and lose the rest.
  CHECK(refusal_of("a: 1\n\x04"
                   "b: 2\n") == "job.yaml:2: holds a control character; YAML is text");
}

TEST_CASE("a number that begins with 0 is octal, as to kubectl, or refused") {
  for (const auto& [number, value] :
       {std::pair("0400", 256), std::pair("010", 8), std::pair("-010", -8), std::pair("+064", 52),
        std::pair("007", 7), std::pair("00", 0)}) {
    CAPTURE(number);
    const auto read = parse_yaml("a: " + std::string(number), "job.yaml");
    REQUIRE_MESSAGE(read, read.error().message());
    CHECK(*read == Json{{"a", value}});
  }
  for (const char* number : {"08", "-08", "0190"}) {
    CHECK(refusal_of("a: 1\nb: " + std::string(number)) ==
          "job.yaml:2: " + std::string(number) +
              " begins with 0 and is no octal number; write it without the 0, or in quotes");
  }
}

TEST_CASE("bombs are refused: bytes, aliases, depth") {
  CHECK(refusal_of(std::string(kMaxManifestBytes + 1, 'a')).find("at most 262144") !=
        std::string::npos);
  std::string laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string name = "a" + std::to_string(i), last = "*a" + std::to_string(i - 1);
    laughs += name + ": &" + name + " [" + last + ", " + last + ", " + last + ", " + last + "]\n";
  }
  CHECK(refusal_of(laughs).find("more than 20000 values") != std::string::npos);
  CHECK(refusal_of(std::string(5000, '[')).starts_with("job.yaml:1: "));
  CHECK(refusal_of(std::string(60, '[') + std::string(60, ']'))
            .find("nested deeper than 48 levels") != std::string::npos);
  // Depth that only aliases make.
  std::string chain = "a0: &a0 [1]\n";
  for (int i = 1; i < 60; ++i) {
    const std::string n = std::to_string(i);
    chain += "a" + n + ": &a" + n + " [*a" + std::to_string(i - 1) + "]\n";
  }
  CHECK(refusal_of(chain).find("nested deeper than 48 levels") != std::string::npos);
  std::string keys;
  for (int i = 0; i < 3000; ++i) keys += "? ";
  CHECK(refusal_of(keys).starts_with("job.yaml:1"));
}

TEST_CASE("ten thousand mutated manifests are read or refused, never more") {
  const std::string sample =
      "apiVersion: muster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: digits}\nspec:\n"
      "  worker: &w\n    count: 2   # wish\n    args: [\"a\", 'b', !!str 1]\n"
      "  training: {lr: \"0.1\", hidden: [128, 64], same: *w}\n  text: |\n    line\n";
  Rng rng(test::seed());
  int accepted = 0;
  for (int round = 0; round < 10'000; ++round) {
    std::string text = sample;
    for (std::uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const std::size_t at = rng.below(text.size());
      static constexpr char kBytes[] = "{}[]:,-?&*!|>'\"#%@`\n\t ~<ax019.\\";
      switch (rng.below(3)) {
        case 0:
          text[at] = kBytes[rng.below(sizeof kBytes - 1)];
          break;
        case 1:
          text.erase(at, 1 + rng.below(5));
          break;
        default:
          text.insert(at, 1, kBytes[rng.below(sizeof kBytes - 1)]);
          break;
      }
      if (text.empty()) text = "x";
    }
    auto parsed = parse_yaml(text, "m");
    if (parsed) ++accepted;
  }
  MESSAGE("accepted ", accepted, " of 10000");
  CHECK(accepted > 100);
  CHECK(accepted < 9'900);
}

TEST_CASE("a pipe is read once, however often it is asked for") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  {
    const UniqueFd writer(ends[1]);
    REQUIRE(::write(writer.get(), "a: 1", 4) == 4);
  }
  const std::string path = "/dev/fd/" + std::to_string(reader.get());
  CHECK(is_read_once(path));
  read_ahead(path);
  for (int i = 0; i < 2; ++i) {
    const auto read = read_yaml_file(path);
    REQUIRE_MESSAGE(read, read.error().message());
    CHECK(*read == Json{{"a", 1}});
  }
  CHECK(is_read_once(kStandardInput));
  for (const char* other : {"examples/digits.yaml", "/", "/nowhere/job.yaml"}) {
    CHECK_FALSE(is_read_once(other));
  }
}

TEST_CASE("a file may be JSON, also with characters that are two of its escapes") {
  const test::TemporaryDirectory directory;
  const std::string file = directory.path + "/job.json";
  REQUIRE(write_file_atomically(file, "\n {\"a\": \"\\ud83d\\ude80\"}\n"));
  const auto read = read_yaml_file(file);
  REQUIRE_MESSAGE(read, read.error().message());
  CHECK(*read == Json{{"a", "\xf0\x9f\x9a\x80"}});
  // What is neither is told of as the YAML that it may have been meant to be.
  for (const auto& [text, sentence] :
       {std::pair("{a: 1, a: 2}", ":1: the key \"a\" stands here twice"),
        std::pair("{\"a\": 018}", ":1: 018 begins with 0"), std::pair("{\"a\": 1", ":1: ")}) {
    REQUIRE(write_file_atomically(file, text));
    const auto refused = read_yaml_file(file);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().message().starts_with(file + sentence));
  }
  REQUIRE(write_file_atomically(file, "{a: 1, b: [x]}"));
  CHECK(read_yaml_file(file).value() == Json{{"a", 1}, {"b", Json::array({"x"})}});
}

TEST_CASE("a file that is not there is named with the system's words") {
  auto missing = read_yaml_file("/nowhere/job.yaml");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message() == "/nowhere/job.yaml: cannot open: No such file or directory");
  CHECK(missing.error().exit_code() == contract::exit_code::kUsage);
  auto directory = read_yaml_file("/");
  REQUIRE_FALSE(directory);
  CHECK(directory.error().message() == "/: cannot read: Is a directory");
}

}  // namespace
}  // namespace muster::cli
