#include "worker/sentinel/strangers.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace muster::sentinel {
namespace {

constexpr milliseconds kBeat{50};

class Knocks {
 public:
  /// `host` sends all the while; how often it was to be told of.
  int knock(const std::string& host, milliseconds time) {
    int told = 0;
    for (milliseconds gone{0}; gone < time; gone += kBeat) {
      now_ += kBeat;
      told += strangers.note(now_, host) ? 1 : 0;
    }
    return told;
  }
  void pass(milliseconds time) { now_ += time; }

  Strangers strangers;

 private:
  MonoTime now_ = MonoTime{} + seconds(100);
};

TEST_CASE("a stranger is told of once it has gone on for a while, and again ten minutes later") {
  Knocks door;
  CHECK(door.knock("10.0.0.7", Strangers::kLasts) == 0);
  CHECK(door.knock("10.0.0.7", kBeat) == 1);
  CHECK(door.knock("10.0.0.7", Strangers::kAgain - kBeat) == 0);
  CHECK(door.knock("10.0.0.7", kBeat) == 1);
}

TEST_CASE("what comes now and then is nobody who wants in") {
  Knocks door;
  int told = 0;
  for (int i = 0; i < 100; ++i) {
    told += door.knock("10.0.0.7", kBeat);
    door.pass(Strangers::kPause);
  }
  CHECK(told == 0);
}

TEST_CASE("a flood of made-up addresses is neither kept nor told, and hides no lasting stranger") {
  Knocks door;
  int told = 0, told_of_flood = 0;
  std::size_t kept = 0;
  for (int i = 0; i < 3'000; ++i) {
    const std::string made_up = "10.1." + std::to_string(i / 256) + "." + std::to_string(i % 256);
    told_of_flood += door.knock(made_up, kBeat);
    if (i % 16 == 0) told += door.knock("10.0.0.7", kBeat);
    kept = std::max(kept, door.strangers.size());
  }
  CHECK(told == 1);
  CHECK(told_of_flood == 0);
  CHECK(kept == Strangers::kMost);
}

TEST_CASE("of many lasting strangers few are told of in a minute, the others later") {
  Knocks door;
  std::map<std::string, int> told;
  const auto all_knock = [&](milliseconds time) {
    int count = 0;
    for (milliseconds gone{0}; gone < time; gone += 10 * kBeat) {
      for (int i = 0; i < 10; ++i) {
        const std::string host = "10.0.0." + std::to_string(i);
        const int more = door.knock(host, kBeat);
        told[host] += more;
        count += more;
      }
    }
    return count;
  };
  CHECK(all_knock(seconds(30)) == Strangers::kMostInWindow);
  CHECK(all_knock(seconds(60)) == Strangers::kMostInWindow);
  CHECK(all_knock(seconds(60)) == 2);
  for (const auto& [host, count] : std::as_const(told)) CHECK(count == 1);
}

}  // namespace
}  // namespace muster::sentinel
