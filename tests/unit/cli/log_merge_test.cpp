#include "cli/log_merge.h"

#include <doctest/doctest.h>

#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

namespace muster::cli {
namespace {

MonoTime at(int ms) { return MonoTime(milliseconds(ms)); }

std::vector<std::string> taken(LogMerger& merger, MonoTime now) {
  std::vector<std::string> texts;
  merger.take(now, [&](const LogLine& line) { texts.push_back(line.text); });
  return texts;
}

using Texts = std::vector<std::string>;

TEST_CASE("stamps are instants, whatever their zone and digits") {
  const auto base = parse_stamp("2026-11-21T12:00:00Z");
  REQUIRE(base);
  CHECK(parse_stamp("2026-11-21T14:00:00+02:00") == base);
  CHECK(parse_stamp("2026-11-21T06:30:00.000000000-05:30") == base);
  CHECK(*parse_stamp("2026-11-21T12:00:00.000000001Z") == *base + 1);
  CHECK(*parse_stamp("2026-11-21T12:00:00.5Z") == *base + 500'000'000);
  for (const char* bad :
       {"", "x", "2026-11-21T12:00:00", "2026-11-21T12:00:00.", "2026-11-21 12:00:00Z",
        "2026-11-21T12:00:00+2:00", "2026-11-21T12:00:00Zx", "9999-11-21T12:00:00+99:00"}) {
    CHECK_MESSAGE(!parse_stamp(bad), bad);
  }
}

TEST_CASE("logs that end come in the order of their times, however their pieces arrive") {
  Rng rng(test::seed());
  for (int round = 0; round < 100; ++round) {
    LogMerger merger(std::nullopt);
    std::vector<std::string> input(4);
    std::vector<std::pair<int, std::string>> expected;
    for (int time = 0; time < 60; ++time) {
      const auto stream = static_cast<std::size_t>(rng() % 4);
      char stamp[40];
      std::snprintf(stamp, sizeof stamp, "2026-11-21T12:00:%02d.%03dZ ", time, time);
      const std::string text = "line " + std::to_string(time);
      input[stream] += stamp + text + (time > 55 && rng() % 2 == 0 ? "" : "\n");
      if (input[stream].back() != '\n') input[stream] += "\n";
      expected.emplace_back(time, text);
    }
    for (int id = 0; id < 4; ++id) merger.open(id);
    Texts got;
    std::vector<std::size_t> fed(4, 0);
    for (int open = 4; open > 0;) {
      const auto id = static_cast<std::size_t>(rng() % 4);
      if (fed[id] > input[id].size()) continue;
      const auto piece = std::string_view(input[id]).substr(fed[id], 1 + rng() % 90);
      if (piece.empty()) {
        merger.close(static_cast<int>(id), at(0));
        fed[id] = input[id].size() + 1;
        --open;
      } else {
        merger.feed(static_cast<int>(id), piece, at(0));
        fed[id] += piece.size();
      }
      for (std::string& text : taken(merger, at(0))) got.push_back(std::move(text));
    }
    Texts wanted;
    for (const auto& [time, text] : expected) wanted.push_back(text);
    CHECK(got == wanted);
    CHECK(merger.is_empty());
  }
}

TEST_CASE("a followed line waits for a silent worker only so long") {
  LogMerger merger(milliseconds(300));
  merger.open(0);
  merger.open(1);
  merger.feed(0, "2026-11-21T12:00:02Z later\n", at(1000));
  CHECK(taken(merger, at(1299)).empty());
  CHECK(merger.due() == at(1300));
  merger.feed(1, "2026-11-21T12:00:01Z earlier\n2026-11-21T12:00:03Z last\n", at(1299));
  CHECK(taken(merger, at(1299)) == Texts{"earlier", "later"});
  CHECK(taken(merger, at(1598)).empty());
  CHECK(taken(merger, at(1599)) == Texts{"last"});
  CHECK_FALSE(merger.due());
}

TEST_CASE("what waits is bounded, and a line without end is cut up") {
  LogMerger merger(std::nullopt);
  merger.open(0);
  merger.open(1);
  CHECK_FALSE(merger.is_full(0));
  merger.feed(0, std::string(3 * LogMerger::kLongestLine, 'x'), at(0));
  CHECK(merger.is_full(0));
  merger.close(1, at(0));
  const Texts texts = taken(merger, at(0));
  CHECK(texts.size() == 3);
  for (const std::string& text : texts) CHECK(text.size() == LogMerger::kLongestLine);
  CHECK_FALSE(merger.is_full(0));
}

TEST_CASE("lines without a time, and times that go back, stay in their worker's order") {
  LogMerger merger(std::nullopt);
  merger.open(0);
  merger.feed(0, "2026-11-21T12:00:05Z a\nno stamp\n\n2026-11-21T12:00:01Z back\nunfinished",
              at(0));
  merger.close(0, at(0));
  CHECK(taken(merger, at(0)) == Texts{"a", "no stamp", "", "back", "unfinished"});
}

}  // namespace
}  // namespace muster::cli
