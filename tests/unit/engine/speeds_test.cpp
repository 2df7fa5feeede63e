#include "worker/engine/speeds.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/lengths.h"

using namespace muster;
using namespace muster::engine;
using test::digits;
using test::digits_with_layers;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::lengths_of;
using test::Trial;

namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
/// Parameters take no time beside so many products with each.
const Work kManyProducts(1e12);

/// Of processes that take so many milliseconds for a logical rank.
std::vector<Speed> speeds_of(const std::vector<int>& milliseconds, std::uint64_t exchange_ns = 0) {
  std::vector<Speed> speeds;
  for (const int one : milliseconds) {
    speeds.push_back({static_cast<std::uint64_t>(one) * kMillisecond, exchange_ns});
  }
  return speeds;
}

int between(Rng& rng, int least, int most) {
  return least + static_cast<int>(rng.below(static_cast<std::uint64_t>(most - least + 1)));
}

/// "8 6 2".
std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int one : numbers) text += (text.empty() ? "" : " ") + std::to_string(one);
  return text;
}

Division even(int logical_ranks, std::size_t processes) {
  return {*assign(logical_ranks, static_cast<int>(processes)),
          std::vector<std::uint8_t>(processes, kWeightMost)};
}

/// How many logical ranks each gets, as "12 4"; empty where the even division stays.
std::string divided(int logical_ranks, const std::vector<Speed>& speeds, Work work = kManyProducts,
                    const Hosts& hosts = {}) {
  const auto faster =
      faster_division(even(logical_ranks, speeds.size()), work, speeds, Movable::kRanks, hosts);
  return faster ? text_of(lengths_of(faster->assignment)) : "";
}

/// The same, and how much of the sum each adds up, as "12 4, 8 1".
std::string divided_with_sums(const Division& present, const std::vector<Speed>& speeds) {
  const auto faster = faster_division(present, kManyProducts, speeds, Movable::kRanksAndSums);
  if (!faster) return "";
  return text_of(lengths_of(faster->assignment)) + ", " +
         text_of({faster->weights.begin(), faster->weights.end()});
}

/// Of processes that take so long for a logical rank and for an update, all in milliseconds.
std::vector<Speed> speeds_with_updates(const std::vector<int>& ranks,
                                       const std::vector<int>& updates) {
  auto speeds = speeds_of(ranks);
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    speeds[p].update_ns = static_cast<std::uint64_t>(updates[p]) * kMillisecond;
  }
  return speeds;
}

std::uint64_t longest_of(const Assignment& assignment, const std::vector<Speed>& speeds) {
  std::uint64_t longest = 0;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    const auto ranks = static_cast<std::uint64_t>(count_ranks(assignment.nodes[p]));
    longest = std::max(longest, ranks * speeds[p].work_ns);
  }
  return longest;
}

}  // namespace

TEST_CASE("shares follow speed: who takes three times as long gets a third") {
  CHECK(divided(16, speeds_of({10, 30})) == "12 4");
  CHECK(divided(16, speeds_of({30, 10})) == "4 12");
  CHECK(divided(16, speeds_of({10, 10, 40})) == "8 6 2");
  CHECK(divided(64, speeds_of({10, 10, 10, 1000})).ends_with(" 1"));
}

TEST_CASE("shares stay even where another division gains little, or nothing is known") {
  CHECK(divided(16, speeds_of({10, 10})).empty());
  CHECK(divided(16, speeds_of({10, 11, 10, 10})).empty());
  CHECK(divided(16, speeds_of({10, 0})).empty());
  CHECK(divided(16, speeds_of({10})).empty());
  CHECK(divided(2, speeds_of({10, 30})).empty());
  // 6 ms of 8, but for a step of 0.08 ms.
  CHECK(divided(16, {{1'000, 0}, {9'000, 0}}).empty());
  // A spare computes nothing.
  CHECK(divided(2, speeds_of({10, 30, 10})).empty());
  CHECK(divided(2048, speeds_of({10, 30})).empty());
}

TEST_CASE("an exchange that more nodes of the sum make longer outweighs what computing gains") {
  const std::vector<int> times = {10, 10, 10, 40};
  CHECK(divided(16, speeds_of(times)) == "5 5 5 1");
  // Each has one node, as when all have the same share.
  CHECK(divided(16, speeds_of(times, 300 * kMillisecond)) == "8 4 2 2");
  CHECK(divided(16, speeds_of(times, 1000 * kMillisecond)).empty());
}

TEST_CASE("what a host sends together counts once in the exchange, whoever of it computes it") {
  const auto speeds = speeds_of({20, 10, 10, 10}, 40 * kMillisecond);
  CHECK(divided(16, speeds).empty());
  // Both hosts send one node as before: what the first process does not compute the second one
  // does.
  CHECK(divided(16, speeds, kManyProducts, Hosts({0, 0, 1, 1})) == "2 6 4 4");
  // Without others beside it, or with all on one host, nothing is sent together.
  CHECK(divided(16, speeds, kManyProducts, Hosts({0, 1, 2, 3})).empty());
  CHECK(divided(16, speeds, kManyProducts, Hosts({0, 0, 0, 0})).empty());
}

TEST_CASE("what takes as long for one logical rank as for all is no reason to move them") {
  // A rank, half of one for the parameters, and half of one for each node.
  const Work work(10);
  CHECK(work.of({}) == 0);
  CHECK(work.of({{0, 4}}) == doctest::Approx(5));
  CHECK(work.of({{0, 4}, {4, 6}}) == doctest::Approx(7.5));
  // So slow for (8 + 1): of 4 it takes not half as long.
  CHECK(divided(16, speeds_of({10, 30}), work) == "13 3");
  CHECK(divided(16, speeds_of({10, 13}), kManyProducts) == "9 7");
  CHECK(divided(16, speeds_of({10, 13}), work).empty());
}

TEST_CASE("who takes long over the update, whatever is computed, gets fewer logical ranks for it") {
  const auto with_updates = [](const std::vector<int>& updates) {
    return divided(16, speeds_with_updates({10, 30}, updates));
  };
  CHECK(with_updates({0, 0}) == "12 4");
  CHECK(with_updates({10, 30}) == "13 3");
  CHECK(with_updates({30, 900}).empty());
}

TEST_CASE("who is slow adds up less of the sum, as long as others are not slower with it") {
  const auto moved = [](const std::vector<int>& ranks, const std::vector<int>& updates) {
    return divided_with_sums(even(16, ranks.size()), speeds_with_updates(ranks, updates));
  };
  CHECK(moved({10, 30}, {0, 0}) == "12 4, 8 8");
  CHECK(moved({10, 30}, {30, 90}) == "14 2, 8 1");
  CHECK(moved({10, 10, 10, 30}, {30, 30, 30, 90}) == "8 4 3 1, 8 8 8 1");
  CHECK(moved({10, 10}, {30, 30}).empty());
  // Where nobody has a logical rank to give.
  const auto last_is_slow = speeds_with_updates({1, 1, 1, 3}, {30, 30, 30, 90});
  CHECK(divided_with_sums(even(4, 4), last_is_slow) == "1 1 1 1, 8 8 8 1");
  const Division present{*assign(4, 4), {8, 8, 8, 1}};
  CHECK(divided_with_sums(present, last_is_slow).empty());
  const auto first_is_slow = speeds_with_updates({3, 1, 1, 1}, {90, 30, 30, 30});
  CHECK(divided_with_sums(present, first_is_slow) == "1 1 1 1, 1 8 8 8");
}

TEST_CASE("whatever the speeds: a division of all logical ranks, never slower, the same again") {
  Rng rng(test::seed());
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    const int logical_ranks = 1 << between(rng, 1, 6);
    const int processes = between(rng, 2, std::min(8, logical_ranks));
    std::vector<int> milliseconds;
    for (int p = 0; p < processes; ++p) {
      milliseconds.push_back(between(rng, 1, 100));
    }
    auto speeds = speeds_of(milliseconds);
    for (Speed& one : speeds) {
      one.update_ns = round % 2 * one.work_ns * static_cast<std::uint64_t>(between(rng, 0, 9));
    }
    CAPTURE(round);
    const Movable movable = round % 3 == 0 ? Movable::kRanks : Movable::kRanksAndSums;
    Division division = even(logical_ranks, speeds.size());
    int times = 0;
    while (const auto faster = faster_division(division, kManyProducts, speeds, movable)) {
      held_nodes(faster->assignment);  // crashes unless each logical rank is held once
      const auto lengths = lengths_of(faster->assignment);
      CHECK(*std::ranges::min_element(lengths) >= 1);
      CHECK(*std::ranges::min_element(faster->weights) >= 1);
      CHECK(*std::ranges::max_element(faster->weights) <= kWeightMost);
      if (round % 2 == 0) {
        const auto longest = longest_of(faster->assignment, speeds);
        CHECK(longest * 10 <= longest_of(division.assignment, speeds) * 9);
      }
      const auto again = faster_division(division, kManyProducts, speeds, movable);
      CHECK(lengths_of(again->assignment) == lengths);
      CHECK(again->weights == faster->weights);
      division = *faster;
      REQUIRE(++times < 10);
    }
    if (times > 0) ++found;
  }
  CHECK(found > 100);
}

TEST_CASE("speeds are medians of the newest steps, and compared about every two seconds") {
  SpeedBook book;
  for (int step = 0; step < kSpeedSteps; ++step) {
    CHECK(book.usual().work_ns == 0);
    book.add({0.4, 0.05, 0.02}, 4);
  }
  for (int step = 0; step < 40; ++step) book.add({step < 30 ? 0.8 : 0.4, 0.05, 0.02}, 4);
  CHECK(book.usual().work_ns == 100 * kMillisecond);
  for (int step = 0; step < 40; ++step) book.add({9, 9, 9}, 0);
  book.add({9, 9, 9}, 4);
  CHECK(book.usual().work_ns == 100 * kMillisecond);
  CHECK(book.usual().exchange_ns == 50 * kMillisecond);
  CHECK(book.usual().update_ns == 20 * kMillisecond);

  const auto two = even(16, 2);
  CHECK(steps_to_look(two, kManyProducts, speeds_of({1, 2}, 4 * kMillisecond), 16) == 100);
  CHECK(steps_to_look(two, kManyProducts, speeds_of({1000, 1}), 16) == 16);
  CHECK(steps_to_look(two, kManyProducts, speeds_of({0, 1}), 16) == 16);
  CHECK(steps_to_look(two, kManyProducts, std::vector<Speed>{{1, 1}, {1, 1}}, 16) == 256);
  CHECK(steps_to_look(even(16, 1), kManyProducts, speeds_of({1}), 16) == 125);
}

TEST_CASE("a worker that is four times as slow computes less, and its share again when it is not") {
  for (const bool is_sharded : {false, true}) {
    for (const auto config_of : {test::small_gpt, digits_with_layers}) {
      CAPTURE(is_sharded);
      Trial trial;
      trial.steps = 180;
      trial.config = config_of(trial.steps);
      trial.config.is_sharded = is_sharded;
      trial.config.look_steps = kSpeedSteps;
      std::mutex mutex;
      std::map<std::int64_t, std::vector<int>> ranks_of;  // by step and trainer
      std::map<int, std::uint64_t> before;
      trial.before = [&](ElasticWorld& world) {
        world.set_speed([](int trainer, std::int64_t step) {
          return std::chrono::seconds(trainer == 2 && step <= 60 ? 400 : 100);
        });
        world.watch_reports([&](int trainer, const StepReport& report) {
          const std::lock_guard lock(mutex);
          auto& ranks = ranks_of[report.step];
          ranks.resize(3);
          const auto computed = report.logical_rank_computations;
          ranks[static_cast<std::size_t>(trainer)] =
              static_cast<int>(computed - std::exchange(before[trainer], computed));
        });
      };
      const Ends ends = ends_of(*trial.run(3), trial.steps);
      CHECK(ends.complete == 3);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
      CHECK(text_of(ranks_of[16]) == "4 6 6");
      // Two looks in a row, after 16 steps each; in the first of all nobody knew anything.
      CHECK(text_of(ranks_of[33]) == "4 6 6");
      CHECK(text_of(ranks_of[34]) == "8 7 1");
      CHECK(text_of(ranks_of[60]) == "8 7 1");
      CHECK(*std::ranges::max_element(ranks_of[180]) <= 6);
    }
  }
}

TEST_CASE("a worker whose update alone takes long computes less, and adds up less where it may") {
  std::vector<std::uint64_t> sent_of;
  for (const bool is_sharded : {true, false}) {
    CAPTURE(is_sharded);
    Trial trial;
    trial.steps = 40;
    trial.config = test::small_gpt(trial.steps);
    trial.config.is_sharded = is_sharded;
    trial.config.look_steps = kSpeedSteps;
    std::mutex mutex;
    std::map<int, int> ranks_of;
    std::map<std::int64_t, std::uint64_t> sent;  // by the slow one, up to which step
    trial.before = [&](ElasticWorld& world) {
      world.set_speed([](int, std::int64_t) { return std::chrono::seconds(100); });
      world.set_update_time(
          [](int trainer, std::int64_t) { return std::chrono::seconds(trainer == 2 ? 250 : 10); });
      world.watch_divisions([&](int trainer, const DivisionChange& change) {
        const std::lock_guard lock(mutex);
        ranks_of[trainer] = change.ranks_now;
      });
      world.watch_reports([&](int trainer, const StepReport& report) {
        const std::lock_guard lock(mutex);
        if (trainer == 2) sent[report.step] = report.sent_bytes;
      });
    };
    CHECK(ends_of(*trial.run(3), trial.steps).complete == 3);
    CHECK(ranks_of == std::map<int, int>{{0, 7}, {1, 7}, {2, 2}});
    sent_of.push_back(sent[38] - sent[36]);
  }
  // Of the sum to two others next to nothing in place of a third, and a third more of its node.
  CHECK(sent_of[1] * 10 < sent_of[0] * 9);
}

TEST_CASE("shares follow speed while workers die, leave and join: the same bits, nothing twice") {
  for (int round = 0; round < 4; ++round) {
    CAPTURE(round);
    Rng rng(test::seed() + static_cast<std::uint64_t>(round));
    Trial trial;
    trial.steps = 160;
    trial.config = digits(trial.steps);
    trial.config.is_sharded = round % 2 == 1;
    trial.config.look_steps = kSpeedSteps;
    std::vector<std::int64_t> events;
    for (int i = 0; i < 3; ++i) events.push_back(40 * (i + 1) + between(rng, 0, 20));
    trial.before = [](ElasticWorld& world) {
      world.set_speed(
          [](int trainer, std::int64_t) { return std::chrono::seconds(100 * (trainer % 4 + 1)); });
      world.set_update_time(
          [](int trainer, std::int64_t) { return std::chrono::seconds(90 * (trainer % 4 + 1)); });
    };
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == events[0]) world.doom(2, point::kForward);
      if (step == events[1]) world.add(2);
      if (step == events[2]) world.leave(1);
    };
    const auto world = trial.run(4);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete + ends.left + ends.late == 4);
  }
}

TEST_CASE("those who stay divide by speed at once, and with one who joins when it knows its own") {
  Trial trial;
  trial.steps = 120;
  trial.config = test::small_gpt(trial.steps);
  trial.config.look_steps = kSpeedSteps;
  std::mutex mutex;
  std::map<int, std::vector<std::int64_t>> divided;  // by trainer, after which steps
  std::int64_t gone = 0, joined = 0;
  trial.before = [&](ElasticWorld& world) {
    world.set_speed(
        [](int trainer, std::int64_t) { return std::chrono::seconds(trainer == 2 ? 400 : 100); });
    world.watch_divisions([&](int trainer, const DivisionChange& change) {
      const std::lock_guard lock(mutex);
      divided[trainer].push_back(change.step);
    });
    world.watch_reports([&](int, const StepReport& report) {
      const std::lock_guard lock(mutex);
      if (gone == 0 && report.members == 2) gone = report.step;
      if (gone > 0 && joined == 0 && report.members == 3) joined = report.step;
    });
  };
  trial.at_step = [](ElasticWorld& world, std::int64_t step) {
    if (step == 50) world.leave(1);
    if (step == 70) world.wait_for(world.add(1));
  };
  CHECK(ends_of(*trial.run(3), trial.steps).complete == 3);
  REQUIRE(divided[0].size() >= 3);
  CHECK(divided[0][0] == 33);
  CHECK(divided[0][1] >= gone);
  CHECK(divided[0][1] <= gone + 1);
  CHECK(divided[0][2] >= joined + 2 * kSpeedSteps - 2);
  CHECK(divided[0] == divided[2]);
}
