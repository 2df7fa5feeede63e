// What a job costs: hours of the week, volume, nodes and their tiers, and what status says of it.
#include "operator/core/cost.h"

#include <doctest/doctest.h>

#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::test;
using api::kOne;
using Words = std::vector<std::string>;

namespace {

api::PriceList list_of(const char* tiers) {
  const Json json{{"currency", "EUR"}, {"tiers", *parse_json(tiers)}};
  auto list = api::parse_price_list(json);
  REQUIRE_MESSAGE(list.has_value(), list.error().message());
  return std::move(*list);
}

/// Four units of a GPU's hour cost 8, of a processor's 0.4; half of it by night (22 to 6) and at
/// weekends.
api::PriceList gpu_prices() {
  return list_of(R"([
    {"name": "gpu", "nodes": {"pool": "gpu"},
     "prices": [{"resource": "nvidia.com/gpu", "perHour": "2"},
                {"resource": "cpu", "perHour": "0.1"}],
     "hours": [{"days": "Mon-Fri", "from": "06:00", "to": "22:00", "factor": 1},
               {"days": "Mon-Thu", "from": "22:00", "to": "06:00", "factor": "0.5"},
               {"days": "Fri", "from": "22:00", "to": "24:00", "factor": "0.5"},
               {"days": "Sat-Sun", "from": "00:00", "to": "24:00", "factor": "0.5"},
               {"days": "Mon", "from": "00:00", "to": "06:00", "factor": "0.5"}]},
    {"name": "small", "nodes": {"pool": "small"},
     "prices": [{"resource": "node", "perHour": "0.8"}]}])");
}

struct World {
  api::PriceList prices = gpu_prices();
  api::Node gpu, small, stranger;
  core::PricedNodes nodes;
  api::WorkerSpec worker;

  World() {
    const std::map<std::string, std::int64_t> has{
        {"cpu", 16'000}, {"memory", std::int64_t{64} << 30}, {"nvidia.com/gpu", 8}};
    for (auto [name, node] : {std::pair{"g", &gpu}, {"s", &small}, {"x", &stranger}}) {
      node->meta.name = name;
      node->allocatable = has;
      nodes.emplace(name, node);
    }
    gpu.meta.labels = {{"pool", "gpu"}};
    small.meta.labels = {{"pool", "small"}};
    worker.resources.gpus = 2;
    worker.resources.cpu_millis = 4000;
    worker.resources.memory_bytes = std::int64_t{8} << 30;
  }

  api::JobCost use(const std::vector<std::string>& places, WallTime now,
                   api::JobCost before = {}) const {
    before = core::cost_until(std::move(before), &prices, now);
    return core::with_use(std::move(before), &prices, {worker, places, nodes}, now);
  }
};

const WallTime kTuesdayNoon = *parse_time("2026-11-24T12:00:00Z");
constexpr seconds kHour{3600};

std::string text(const std::optional<api::Billionths>& value) {
  return value ? api::billionths_text(*value) : "unknown";
}

/// What `units` of the first price of the first tier cost.
std::string cost(const api::PriceList& prices, const char* from, const char* to, int units = 1,
                 int hours_before = 0) {
  const api::PriceTier& tier = prices.tiers.front();
  const api::CostItem used{tier.name, tier.prices.front().resource, units * kOne,
                           hours_before * kOne};
  return api::billionths_text(
      core::cost_of(prices, tier, tier.prices.front(), used, *parse_time(from), *parse_time(to)));
}

}  // namespace

TEST_CASE("an hour costs what its part of the week says") {
  const auto prices = gpu_prices();
  CHECK(cost(prices, "2026-11-24T12:00:00Z", "2026-11-24T13:00:00Z") == "2");
  CHECK(cost(prices, "2026-11-24T12:00:00Z", "2026-11-24T12:00:00Z") == "0");
  CHECK(cost(prices, "2026-11-24T12:00:00Z", "2026-11-24T13:30:00Z", 4) == "12");
  // Half an hour of the evening, half an hour of the night.
  CHECK(cost(prices, "2026-11-24T21:30:00Z", "2026-11-24T22:30:00Z") == "1.5");
  CHECK(cost(prices, "2026-11-22T12:00:00Z", "2026-11-22T13:00:00Z") == "1");  // a Sunday
  // A week: 80 hours at 2, 88 at 1; and from its middle it is the same.
  CHECK(cost(prices, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z") == "248");
  CHECK(cost(prices, "2026-11-25T09:17:00Z", "2026-12-02T09:17:00Z") == "248");
  CHECK(cost(prices, "2026-11-23T00:00:00Z", "2027-11-22T00:00:00Z") == "12896");  // 52 of them
  // Before the epoch too: times in status are anybody's.
  CHECK(cost(prices, "1969-12-30T12:00:00Z", "1969-12-30T13:00:00Z") == "2");
}

TEST_CASE("hours are those of the list's own time") {
  auto prices = gpu_prices();
  prices.utc_offset = std::chrono::hours(-2);
  CHECK(cost(prices, "2026-11-24T22:30:00Z", "2026-11-24T23:30:00Z") == "2");
  CHECK(cost(prices, "2026-11-25T00:30:00Z", "2026-11-25T01:30:00Z") == "1");
}

TEST_CASE("volume is cheaper from the very hour on at which its step begins") {
  const auto prices = list_of(R"([{"name": "t", "prices": [{"resource": "nvidia.com/gpu",
      "perHour": "1", "volume": [{"from": 0, "to": 10, "factor": 1},
                                 {"from": 10, "to": 20, "factor": "0.5"},
                                 {"from": 20, "factor": "0.1"}]}]}])");
  const char* noon = "2026-11-24T12:00:00Z";
  CHECK(cost(prices, noon, "2026-11-24T13:00:00Z", 8) == "8");
  CHECK(cost(prices, noon, "2026-11-24T14:00:00Z", 8) == "13");    // 10 + 6 / 2
  CHECK(cost(prices, noon, "2026-11-24T15:00:00Z", 8) == "15.4");  // 10 + 5 + 0.4
  CHECK(cost(prices, noon, "2026-11-24T13:00:00Z", 8, 10) == "4");
  CHECK(cost(prices, noon, "2026-11-24T13:00:00Z", 8, 100) == "0.8");
}

TEST_CASE("a stretch of time costs what its parts cost, however it is cut") {
  const World world;
  api::JobCost whole = world.use({"g", "g"}, kTuesdayNoon);
  api::JobCost parts = whole;
  const WallTime end = kTuesdayNoon + 30 * kHour;
  whole = core::cost_until(std::move(whole), &world.prices, end);
  for (WallTime at = kTuesdayNoon; at < end; at += seconds(17)) {
    parts = core::cost_until(std::move(parts), &world.prices, at);
  }
  parts = core::cost_until(std::move(parts), &world.prices, end);
  // Each cut rounds by half a billionth at most, of two items.
  const api::Billionths cuts = 30 * 3600 / 17 + 1;
  CHECK(std::abs(*parts.amount - *whole.amount) <= cuts);
  CHECK(text(whole.amount) == "228.8");  // 22 hours at 8.8 an hour, 8 at half
}

TEST_CASE("what a job uses follows from its workers and the tiers of their nodes") {
  const World world;
  const api::JobCost cost = world.use({"g", "g", "s"}, kTuesdayNoon);
  CHECK(cost.currency == "EUR");
  CHECK(text(cost.amount) == "0");
  CHECK(cost.items == std::vector<api::CostItem>{{"gpu", "cpu", 8 * kOne, 0},
                                                 {"gpu", "nvidia.com/gpu", 4 * kOne, 0},
                                                 {"small", "node", kOne / 4, 0}});
  // 8 processors, 4 GPUs, and a quarter of the small node: of its GPUs and processors it takes
  // most, of its memory less.
  CHECK(text(cost.rate_per_hour) == "9");
  const api::JobCost later = core::cost_until(cost, &world.prices, kTuesdayNoon + 11 * kHour);
  CHECK(text(later.amount) == "94.6");
  CHECK(later.items[1].hours == 44 * kOne);
  CHECK(text(later.rate_per_hour) == "4.6");  // 23 o'clock
}

TEST_CASE("devices are paid by their name, and count as a part of their node") {
  World world;
  world.worker.resources.devices = {{"rdma/hca", 3}};
  world.small.allocatable["rdma/hca"] = 4;
  world.prices = list_of(R"([
    {"name": "gpu", "nodes": {"pool": "gpu"}, "prices": [{"resource": "rdma/hca", "perHour": "1"}]},
    {"name": "small", "nodes": {"pool": "small"},
     "prices": [{"resource": "node", "perHour": "0.8"}]}])");
  CHECK(text(world.use({"g"}, kTuesdayNoon).rate_per_hour) == "3");
  CHECK(text(world.use({"s"}, kTuesdayNoon).rate_per_hour) == "0.6");
}

TEST_CASE("a node in no tier, or in two, makes the cost unknown and never nothing") {
  World world;
  api::JobCost cost = world.use({"x"}, kTuesdayNoon);
  CHECK(text(cost.amount) == "unknown");
  CHECK(text(cost.rate_per_hour) == "unknown");
  CHECK(cost.unknown == "node x is in no tier of the price list; one must have its labels");
  cost = core::cost_until(std::move(cost), &world.prices, kTuesdayNoon + kHour);
  CHECK(text(cost.amount) == "unknown");
  CHECK(cost.unknown_seconds == 3600);
  // That it holds nothing any more is known, what it has cost is not.
  cost = world.use({}, kTuesdayNoon + 2 * kHour, cost);
  CHECK(text(cost.amount) == "unknown");
  CHECK(text(cost.rate_per_hour) == "0");
  CHECK(cost.unknown_seconds == 7200);
  // From a node with a price on, that part is known.
  cost = world.use({"g"}, kTuesdayNoon + 2 * kHour, cost);
  cost = core::cost_until(std::move(cost), &world.prices, kTuesdayNoon + 3 * kHour);
  CHECK(text(cost.amount) == "4.4");
  CHECK(cost.unknown_seconds == 7200);

  world.prices.tiers[1].nodes.clear();
  cost = world.use({"g", "s"}, kTuesdayNoon);
  CHECK(cost.unknown ==
        "node g is in two tiers of the price list, gpu and small; its labels must fit one alone");
  // What the other worker uses is known.
  CHECK(cost.items.size() == 1);
  cost = core::cost_until(std::move(cost), &world.prices, kTuesdayNoon + kHour);
  CHECK(text(cost.amount) == "0.2");
  CHECK(text(cost.rate_per_hour) == "unknown");
  CHECK(cost.unknown_seconds == 3600);
}

TEST_CASE("less than a second of which nothing is known is not told as nothing") {
  const World world;
  const api::JobCost cost = world.use({}, kTuesdayNoon, world.use({"x"}, kTuesdayNoon));
  CHECK(text(cost.amount) == "unknown");
  CHECK(cost.unknown == "node x is in no tier of the price list; one must have its labels");
  CHECK(text(cost.rate_per_hour) == "0");
}

TEST_CASE("who stands nowhere yet, or on a node that is gone, costs nothing") {
  const World world;
  CHECK(text(world.use({"", "gone"}, kTuesdayNoon).rate_per_hour) == "0");
  const core::CostUse blind{world.worker, {"g"}, {}, false};
  CHECK(core::with_use({}, &world.prices, blind, kTuesdayNoon).unknown ==
        "this operator sees no nodes, so it does not know which tier they are in");
}

TEST_CASE("another price list: other currencies are never added, and lost prices are unknown") {
  World world;
  const api::JobCost before = world.use({"g"}, kTuesdayNoon);
  world.prices.currency = "USD";
  api::JobCost cost = core::cost_until(before, &world.prices, kTuesdayNoon + kHour);
  CHECK(text(cost.amount) == "0");
  CHECK(cost.unknown_seconds == 3600);
  CHECK(cost.unknown == "the price list is in USD now");
  cost = world.use({"g"}, kTuesdayNoon + kHour, before);
  CHECK(cost.currency == "USD");
  CHECK(text(cost.amount) == "0");
  CHECK(cost.unknown_seconds == 0);

  world.prices.currency = "EUR";
  world.prices.tiers[0].prices.pop_back();
  cost = core::cost_until(before, &world.prices, kTuesdayNoon + kHour);
  CHECK(text(cost.amount) == "4");  // of the GPUs
  CHECK(cost.unknown == "the price list has no price of cpu in a tier gpu any more");
  cost = world.use({"g"}, kTuesdayNoon + kHour, before);
  CHECK(cost.items == std::vector<api::CostItem>{{"gpu", "nvidia.com/gpu", 2 * kOne, 2 * kOne}});

  cost = core::cost_until(before, nullptr, kTuesdayNoon + kHour);
  CHECK(cost.unknown == "the operator has no price list (--price-list)");
  CHECK(cost.unknown_seconds == 3600);
  // A clock that was set back counts nothing twice.
  CHECK(core::cost_until(before, &world.prices, kTuesdayNoon - kHour) == before);
}

// ---- In status

namespace {

SnapshotBuilder& priced(SnapshotBuilder& job, const World& world) {
  auto& snapshot = job.edit();
  snapshot.prices = &world.prices;
  snapshot.priced_nodes = world.nodes;
  snapshot.priced_nodes.emplace("n", &world.gpu);
  snapshot.job.spec.worker.resources = world.worker.resources;
  return job;
}

}  // namespace

TEST_CASE("cost begins with the decision that gives places and ends with the job's end") {
  const World world;
  auto job = make_job("j").workers(2).fits_on("n");
  priced(job, world).at(kTuesdayNoon);
  apply(job.edit(), job.plan());
  const auto& cost = job.snapshot().job.status.cost;
  REQUIRE(cost.has_value());
  CHECK(text(cost->rate_per_hour) == "8.8");
  CHECK(cost->updated_at == kTuesdayNoon);
  job.running(0).running(1).at(kTuesdayNoon + kHour);
  apply(job.edit(), job.plan());
  CHECK(text(cost->amount) == "8.8");
  job.edit().pods.clear();
  job.ended(0, 0).ended(1, 0).at(kTuesdayNoon + 2 * kHour);
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.finished());
  CHECK(text(cost->amount) == "17.6");
  CHECK(text(cost->rate_per_hour) == "0");
  CHECK(cost->items[0].units == 0);
  CHECK(cost->items[0].hours == 16 * kOne);
}

TEST_CASE("a suspended job costs nothing, and goes on from what it has cost") {
  const World world;
  auto job = make_job("j").workers(1).all_running();
  priced(job, world).at(kTuesdayNoon).suspended_spec();
  apply(job.edit(), job.plan());
  const auto& cost = job.snapshot().job.status.cost;
  // Nothing was counted before, and nothing runs any more.
  CHECK_FALSE(cost.has_value());
  job.edit().pods.clear();
  job.edit().job.spec.suspend = false;
  job.fits_on("n").at(kTuesdayNoon + kHour);
  apply(job.edit(), job.plan());
  REQUIRE(cost.has_value());
  job.suspended_spec().at(kTuesdayNoon + 2 * kHour);
  apply(job.edit(), job.plan());
  CHECK(text(cost->amount) == "4.4");
  CHECK(text(cost->rate_per_hour) == "0");
  job.edit().pods.clear();
  apply(job.edit(), job.at(kTuesdayNoon + 5 * kHour).plan());
  CHECK(job.snapshot().job.status.is_true("Suspended"));
  CHECK(text(cost->amount) == "4.4");
}

TEST_CASE("cost is no reason for a write, and every other write brings it up to date") {
  const World world;
  auto job = make_job("j").workers(1).fits_on("n");
  priced(job, world).at(kTuesdayNoon);
  apply(job.edit(), job.plan());
  job.running(0);
  apply(job.edit(), job.plan());
  for (int hours = 1; hours < 30; ++hours) {
    CHECK(job.at(kTuesdayNoon + hours * kHour).plan().empty());
  }
  ProgressReport report;
  report.slot = 0;
  report.step = 5;
  job.report(report);
  const auto plan = job.at(kTuesdayNoon + kHour).plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(text(status_of(plan).cost->amount) == "4.4");
}

TEST_CASE("without a price list nothing is said, and what was said stays") {
  const World world;
  auto job = make_job("j").workers(1).fits_on("n");
  CHECK_FALSE(status_of(job.plan()).cost.has_value());
  priced(job, world).at(kTuesdayNoon);
  apply(job.edit(), job.plan());
  job.edit().prices = nullptr;
  job.running(0).at(kTuesdayNoon + kHour);
  apply(job.edit(), job.plan());
  const auto& cost = job.snapshot().job.status.cost;
  REQUIRE(cost.has_value());
  CHECK(text(cost->amount) == "0");
  CHECK(text(cost->rate_per_hour) == "unknown");
  CHECK(cost->unknown_seconds == 3600);
}
