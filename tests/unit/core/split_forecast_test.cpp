// The step of a split model, by hand: its pipeline, its slices and its copies on given hosts.
#include "operator/core/split_forecast.h"

#include <doctest/doctest.h>

#include <limits>

#include "operator/core/step_forecast.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

constexpr double kCardRate = 1e6;  ///< of a card
constexpr double kLatency = 1e-3;
constexpr std::int64_t kParameters = 4 * 4096;  ///< of a part: four blocks, 65,536 bytes

Topology rack_of(int hosts) {
  TopologyInput input = tree_of({"rack"});
  input.levels[0].latency_seconds = kLatency;
  input.host.bytes_per_second = kCardRate;
  input.host.latency_seconds = kLatency;
  input.host.local_bytes_per_second = 1e30;
  input.host.local_latency_seconds = 1e-30;
  add_hosts(input, {"r1"}, hosts);
  return built(std::move(input));
}

SplitWork work_of(Split split, int processes = 1) {
  SplitWork work{split, processes, 16, false, {}};
  PartReport part;
  part.counts.parameters = kParameters;
  part.counts.micro_batches = 4;
  part.compute_seconds = 0.4;
  part.update_seconds = 0.01;
  work.parts.assign(as_index(split.processes()), part);
  return work;
}

double step_of(const Topology& topology, const SplitWork& work, const std::vector<int>& nodes) {
  const auto told = split_step_seconds(topology, work, nodes);
  REQUIRE(told);
  return *told;
}

/// Of a part between two copies on hosts of their own.
constexpr double kExchange = 2 * (kLatency + 2 * 16384 / kCardRate);
/// A copy's processes tell each other what rides behind the gradients.
constexpr double kTail = kLatency;

}  // namespace

TEST_CASE("a pipeline's step is its stages with what they hand on, its exchange and its update") {
  const Topology topology = rack_of(4);
  SplitWork work = work_of({1, 2});
  // Five times a tenth of a second; each micro-batch that is waited for has its way there and back.
  CHECK(step_of(topology, work, {0, 1}) ==
        doctest::Approx(0.5 + 5 * kLatency + kTail + 0.01).epsilon(0.01));
  CHECK(step_of(topology, work, {0, 1, 2, 3}) ==
        doctest::Approx(0.5 + 5 * kLatency + kExchange + kTail + 0.01).epsilon(0.01));
  // A micro-batch of 25,000 bytes is on its way for a quarter of the time that a stage takes for
  // it.
  work.parts[0].counts.handed_on_bytes = 100'000;
  const double handing_on = step_of(topology, work, {0, 1});
  CHECK(handing_on > 0.5 + 4 * 0.025);
  CHECK(handing_on < 0.5 + 6 * 0.03 + 0.02);
  // Twice as much where both copies' first stages are on one host.
  CHECK(step_of(topology, work, {0, 1, 0, 1}) > handing_on + 4 * 0.02);
  // Not at all within one worker.
  work.processes = 2;
  CHECK(step_of(topology, work, {0}) == doctest::Approx(0.51));
}

TEST_CASE("parts whose exchange goes over the same links share them") {
  const Topology topology = rack_of(2);
  SplitWork work = work_of({1, 2}, 2);
  CHECK(step_of(topology, work, {0, 1}) ==
        doctest::Approx(0.5 + 2 * (kLatency + 2 * 2 * 16384 / kCardRate) + 0.01));
  // The larger part ends last.
  work.parts[1].counts.parameters = 2 * kParameters;
  CHECK(step_of(topology, work, {0, 1}) > 0.4 + 2 * (kLatency + 2 * 3 * 16384 / kCardRate) + 0.01);
}

TEST_CASE("slices wait for each other's sums by turns") {
  const Topology topology = rack_of(2);
  SplitWork work = work_of({2, 1});
  const auto with_bytes = [&](std::int64_t bytes) {
    for (PartReport& part : work.parts) part.counts.turn_bytes = bytes;
    return step_of(topology, work, {0, 1});
  };
  for (PartReport& part : work.parts) {
    part.counts.sums = 5;
    part.counts.turns = 50;
    part.counts.busy_turns = 40;
    part.turn_seconds = 0.2;
  }
  const double others = 0.2 + kTail + 0.01, of_turn = 0.005;
  const double first_and_last = 5 * (of_turn + kLatency);
  // What takes 1 + 2.5 ms is on its way while the next is computed, in ten turns by others.
  CHECK(with_bytes(100'000) == doctest::Approx(others + 50 * of_turn + first_and_last));
  // More to send than to compute.
  const double sent = others + 50 * 0.025 + first_and_last;
  CHECK(with_bytes(1'000'000) == doctest::Approx(sent));
  // The norm of all: two rounds more, and half of each slice's gradient.
  work.is_clipped = true;
  CHECK(with_bytes(1'000'000) == doctest::Approx(sent + 2 * kTail + 2 * 16384 / kCardRate));
  work.is_clipped = false;
  // Little of either, and a long way: two are on it at once.
  for (PartReport& part : work.parts) part.turn_seconds = 0;
  CHECK(with_bytes(0) == doctest::Approx(0.4 + kTail + 0.01 + (25 + 5) * kLatency));
  // In one worker nothing is on its way.
  work.processes = 2;
  CHECK(step_of(topology, work, {0}) == doctest::Approx(0.41));
}

TEST_CASE("nothing is foretold of parts that do not fit together") {
  const Topology topology = rack_of(4);
  const SplitWork good = work_of({1, 2});
  REQUIRE(split_step_seconds(topology, good, {0, 1}));
  CHECK_FALSE(split_step_seconds(topology, good, {}));
  CHECK_FALSE(split_step_seconds(topology, good, {0, 1, 2}));
  CHECK_FALSE(split_step_seconds(topology, work_of({1, 4}, 3), {0, 1, 2, 3}));
  SplitWork none = good;
  none.parts[1] = {};
  CHECK_FALSE(split_step_seconds(topology, none, {0, 1}));
  none.parts.pop_back();
  CHECK_FALSE(split_step_seconds(topology, none, {0, 1}));
  for (const double wrong :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (double PartReport::* field :
         {&PartReport::compute_seconds, &PartReport::turn_seconds, &PartReport::update_seconds}) {
      SplitWork hostile = good;
      hostile.parts[0].*field = wrong;
      CHECK_FALSE(split_step_seconds(topology, hostile, {0, 1}));
    }
  }
  SplitWork hostile = good;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() >> 10;
  hostile.parts[0].counts = {kMost, 2'000'000'000, kMost, kMost, kMost, kMost, kMost};
  CHECK(split_step_seconds(topology, hostile, {0, 1}));
  hostile.parts[0].counts.micro_batches = kMost;
  CHECK_FALSE(split_step_seconds(topology, hostile, {0, 1}));
}
