#include "worker/engine/record.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/json.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/run_files.h"

using namespace muster;
using namespace muster::engine;

namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

void write_steps(const std::string& path, std::int64_t restored, std::int64_t last) {
  Record record;
  REQUIRE(record.open(path, restored).has_value());
  for (std::int64_t step = restored + 1; step <= last; ++step) {
    REQUIRE(record.add(RecordedStep{step, 0, 64, 2, 0.5f, step % 2 == 0 ? "ab" : "", 0.25})
                .has_value());
    if (step % 5 == 0) REQUIRE(record.add(RecordedEvaluation{step, 0.75, 1.5f}).has_value());
  }
  REQUIRE(record.sync()().has_value());
}

}  // namespace

TEST_CASE("a line holds what became of a step") {
  const test::TempDirectory directory;
  write_steps(directory / "r", 0, 5);
  const auto lines = lines_of(directory / "r");
  REQUIRE(lines.size() == 6);
  const Json step = *parse_json(lines[1]);
  CHECK(step["step"] == 2);
  CHECK(step["loss"] == "0.5");
  CHECK(step["samples"] == 64);
  CHECK(step["workers"] == 2);
  CHECK(step["sha256"] == "ab");
  CHECK(step["seconds"] == 0.25);
  CHECK_FALSE(parse_json(lines[0])->contains("sha256"));
  const Json evaluation = (*parse_json(lines[5]))["evaluation"];
  CHECK(evaluation["accuracy"] == 0.75);
  CHECK(evaluation["loss"] == "1.5");
}

TEST_CASE("a record goes on after the restored step, with no step twice") {
  const test::TempDirectory directory;
  write_steps(directory / "whole", 0, 20);
  write_steps(directory / "cut", 0, 17);
  write_steps(directory / "cut", 10, 20);
  CHECK(lines_of(directory / "cut") == lines_of(directory / "whole"));
  write_steps(directory / "cut", 0, 1);
  CHECK(lines_of(directory / "cut").size() == 1);
}

TEST_CASE("a line cut by a crash is dropped") {
  const test::TempDirectory directory;
  write_steps(directory / "r", 0, 3);
  std::ofstream(directory / "r", std::ios::app) << R"({"step":4,"lo)";
  write_steps(directory / "r", 10, 11);
  CHECK(lines_of(directory / "r").size() == 4);
}

TEST_CASE("of a long record no more is looked at than is cut off") {
  const test::TempDirectory directory;
  const std::string path = directory / "r";
  write_steps(path, 0, 5'000);
  {
    std::fstream damaged(path);
    damaged.seekp(200);
    damaged << std::string(50, '\n');
  }
  Record record;
  REQUIRE(record.open(path, 4'900).has_value());
  CHECK(record.last_step() == 4'900);
  CHECK(record.last_evaluation() == 4'900);
  record.close();
  CHECK(lines_of(path).back().starts_with("{\"evaluation\":{\"step\":4900,"));
}

TEST_CASE("a record is cut at any step, however far that is from its end") {
  const test::TempDirectory directory;
  const std::string whole = directory / "whole", path = directory / "cut";
  write_steps(whole, 0, 2'000);
  const auto lines = lines_of(whole);
  REQUIRE(std::filesystem::file_size(whole) > 150'000);
  // Some of these lines begin in one piece of what is read, and end in the next.
  for (std::int64_t step = 1; step <= 1'600; step += step < 1'000 ? 333 : 1) {
    std::filesystem::copy_file(whole, path, std::filesystem::copy_options::overwrite_existing);
    Record record;
    REQUIRE(record.open(path, step).has_value());
    CHECK(record.last_step() == step);
    record.close();
    const auto kept = static_cast<std::size_t>(step + step / 5);
    CHECK(lines_of(path) == std::vector(lines.begin(), lines.begin() + std::ptrdiff_t(kept)));
  }
}

TEST_CASE("what is no line at the end of a record is cut off, however much it is") {
  const test::TempDirectory directory;
  const std::string path = directory / "r";
  const std::string longer = R"({"step":3,"rest":")" + std::string(300'000, 'x') + "\"}\n";
  for (const std::string& rest :
       {std::string(200'000, '\0'), longer, longer + longer + R"({"step":4,)",
        std::string("{\"step\":3,}\n{\"step\":-1}\n\n{}\n"), std::string(70'000, '\n')}) {
    CAPTURE(rest.size());
    write_steps(path, 0, 3);
    const auto whole = lines_of(path);
    std::ofstream(path, std::ios::app) << rest;
    Record record;
    REQUIRE(record.open(path, 10).has_value());
    CHECK(record.last_step() == 3);
    record.close();
    CHECK(lines_of(path) == whole);
  }
  // And where nothing else is there.
  std::ofstream(path) << longer;
  Record record;
  REQUIRE(record.open(path, 10).has_value());
  CHECK(record.last_step() == 0);
  record.close();
  CHECK(lines_of(path).empty());
}

TEST_CASE(
    "who is late with its lines does not write over those of who has opened the record since") {
  const test::TempDirectory directory;
  const std::string path = directory / "r";
  const auto step = [](std::int64_t number, double seconds) {
    return RecordedStep{number, 0, 64, 2, 0.5f, "", seconds};
  };
  write_steps(path, 0, 5);
  // Cut off, and its disk gives no answer.
  bool is_held = true;
  Record late;
  REQUIRE(late.open(path, 5, {false, [&] { return is_held; }}).has_value());
  for (int i = 6; i <= 8; ++i) REQUIRE(late.add(step(i, 12.5)).has_value());
  Record next;
  REQUIRE(next.open(path, 5, {false}).has_value());
  for (int i = 6; i <= 10; ++i) REQUIRE(next.add(step(i, 0.25)).has_value());
  const std::string right = test::bytes_of(path);
  is_held = false;
  REQUIRE(late.sync()().has_value());
  late.close();
  CHECK(test::bytes_of(path) == right);
  next.close();
  CHECK(lines_of(path).size() == 11);
  CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 1);
}

TEST_CASE("who has given a record up has what is not written, and finds what others wrote") {
  const test::TempDirectory directory;
  const std::string path = directory / "r";
  const auto add = [](Record& record, std::int64_t number) {
    REQUIRE(record.add(RecordedStep{number, 0, 64, 2, 0.5f, "", 0.25}).has_value());
  };
  write_steps(path, 0, 5);
  Record first, second;
  REQUIRE(second.open(path, 5, {false, [] { return true; }}).has_value());
  for (const int step : {6, 7}) add(second, step);
  second.give_up();
  CHECK_FALSE(second.is_open());
  REQUIRE(first.open(path, 5).has_value());
  REQUIRE(first.merge({second.lines()}).has_value());
  add(first, 8);
  first.end();
  second.forget_lines();
  add(second, 9);
  const std::string kept = second.lines();
  REQUIRE(second.open(path, 9).has_value());
  CHECK(second.lines().empty());
  REQUIRE(second.merge({kept}).has_value());
  second.end();
  CHECK(second.take_missing() == 0);
  CHECK(lines_of(path).size() == 10);  // an evaluation among them
}

TEST_CASE("lines are numbered by their steps, and evaluations come behind") {
  const auto numbers = [](std::string_view lines) {
    const LineNumbers found = line_numbers(lines);
    return std::pair(found.first, found.last);
  };
  using Numbers = std::pair<std::int64_t, std::int64_t>;
  CHECK(numbers("") == Numbers(0, 0));
  CHECK(numbers("{\"step\":5}") == Numbers(0, 0));
  CHECK(numbers("{\"step\":5}\n") == Numbers(10, 10));
  CHECK(numbers("{\"evaluation\":{\"step\":5}}\n{\"step\":6}\n{\"step\":7}\n") == Numbers(11, 14));
  CHECK(numbers("{\"step\":5}\n{\"evaluation\":{\"step\":5}}\n") == Numbers(10, 11));
}

TEST_CASE("a decimal reads back as the same float") {
  CHECK(decimal(0.1f) == "0.1");
  CHECK(decimal(2.3025851f) == "2.3025851");
  CHECK(std::stof(decimal(1.5e-37f)) == 1.5e-37f);
}

TEST_CASE("a record that is closed forgets what it has, and can be opened again") {
  const test::TempDirectory directory;
  Record record;
  REQUIRE(record.add(RecordedStep{3, 0, 64, 2, 0.5f, "", 0.25}).has_value());
  record.close();
  CHECK(record.lines().empty());
  CHECK(record.last_step() == 0);
  write_steps(directory / "r", 0, 20);
  REQUIRE(record.open(directory / "r", 20).has_value());
  REQUIRE(record.add(RecordedStep{21, 0, 64, 2, 0.5f, "", 0.25}).has_value());
  record.close();
  CHECK_FALSE(record.is_open());
  REQUIRE(record.open(directory / "r", 10).has_value());
  CHECK(record.last_step() == 10);
  CHECK(lines_of(directory / "r").size() == 12);
}

TEST_CASE("lines that a disk has lost before the step of a checkpoint are counted") {
  const test::TempDirectory directory;
  const std::string path = directory / "record.jsonl";
  write_steps(path, 0, 3);
  Record record;
  REQUIRE(record.open(path, 5));
  record.skip_to(5);
  CHECK(record.last_step() == 5);
  CHECK(record.take_missing() == 2);
  record.skip_to(5);
  CHECK(record.take_missing() == 0);
}

TEST_CASE("of what several have kept, each line that is one is taken once, in order") {
  const test::TempDirectory directory;
  const auto step = [](int number, const char* rest) {
    return "{\"step\":" + std::to_string(number) + rest + "\n";
  };
  const std::string evaluation = "{\"evaluation\":{\"step\":3,\"accuracy\":1}}\n";
  const std::vector<std::string> texts = {
      step(4, ",\"loss\":}") + step(2, "}") + step(5, ",\"loss\":1}") + "\n{\"step\":-3}\n",
      step(1, "}") + evaluation + step(4, "}") + step(3, "}") + step(5, ",\"loss\":2}") +
          step(6, "7}{") + "{\"steps\":9}\n" + step(7, "")};
  Record record;
  REQUIRE(record.open(directory / "r", 0).has_value());
  REQUIRE(record.merge(texts).has_value());
  CHECK(record.take_missing() == 0);
  CHECK(lines_of(directory / "r") ==
        std::vector<std::string>{"{\"step\":1}", "{\"step\":2}", "{\"step\":3}",
                                 evaluation.substr(0, evaluation.size() - 1), "{\"step\":4}",
                                 "{\"step\":5,\"loss\":1}"});
}

TEST_CASE("steps of which nobody has kept a line are counted when lines are handed over") {
  const test::TempDirectory directory;
  Record kept;
  for (std::int64_t step = 6; step <= 20'000; ++step) {
    REQUIRE(kept.add(RecordedStep{step, 0, 64, 2, 0.5f, std::string(64, 'a'), 0.25}).has_value());
  }
  const auto first = (*parse_json(kept.lines().substr(0, kept.lines().find('\n'))))["step"];
  REQUIRE(first > 6);
  write_steps(directory / "r", 0, 5);
  Record record;
  REQUIRE(record.open(directory / "r", 5).has_value());
  REQUIRE(record.merge({kept.lines()}).has_value());
  CHECK(record.take_missing() == first.get<std::int64_t>() - 6);
  CHECK(record.take_missing() == 0);
  REQUIRE(kept.add(RecordedStep{20'001, 0, 64, 2, 0.5f, "", 0.25}).has_value());
  REQUIRE(record.merge({kept.lines()}).has_value());
  CHECK(record.take_missing() == 0);
}
