#include "operator/core/step_forecast.h"

#include <doctest/doctest.h>

#include "kernels/ops.h"
#include "tests/unit/core/trees.h"
#include "worker/engine/assignment.h"
#include "worker/engine/buckets.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

constexpr double kRate = 1e6;  ///< of a card

/// Two racks of four hosts; an uplink carries what one card does.
Topology two_racks() {
  TopologyInput input = tree_of({"rack"});
  input.levels[0].oversubscription = 4;
  input.levels[0].latency_seconds = 1e-3;
  input.host.bytes_per_second = kRate;
  input.host.latency_seconds = 1e-3;
  add_hosts(input, {"r1"}, 4);
  add_hosts(input, {"r2"}, 4);
  return built(std::move(input));
}

std::vector<HostShare> one_each(int hosts) {
  std::vector<HostShare> shares;
  for (int host = 0; host < hosts; ++host) shares.push_back({host, 1});
  return shares;
}

double exchange(double bytes, int hosts, const ExchangeShape& shape) {
  const Topology topology = two_racks();
  StepWork work;
  work.gradient_bytes = bytes;
  return forecast_step(StepModel(topology, work), one_each(hosts), shape).exchange_seconds;
}

api::TrainingJob job_on(const std::vector<std::string>& nodes) {
  api::TrainingJob job;
  job.spec.training.emplace().model = {{"mlp", {{"hidden", {128}}}}};
  int slot = 0;
  for (const std::string& node : nodes) job.status.placement.push_back({slot++, 0, node, "r1"});
  return job;
}

ProgressReport told() {
  ProgressReport report;
  report.step_seconds = 0.5;
  report.exchange_seconds = 0.4;
  report.model_parameters = 4096 * 8;
  return report;
}

}  // namespace

TEST_CASE("members hold as many sums as the engine gives them, and add up as much of them") {
  for (const int ranks : {1, 2, 16, 64}) {
    for (int members = 1; members <= 20; ++members) {
      CAPTURE(ranks);
      CAPTURE(members);
      const auto assignment = engine::assign(ranks, members);
      REQUIRE(assignment);
      std::size_t most = 0, least = 1000, all = 0, holders = 0;
      for (const auto& nodes : assignment->nodes) {
        if (nodes.empty()) continue;
        ++holders;
        most = std::max(most, nodes.size());
        least = std::min(least, nodes.size());
        all += nodes.size();
      }
      const HeldSums held = held_sums(ranks, members);
      CHECK(held.mean == doctest::Approx(static_cast<double>(all) / static_cast<double>(holders)));
      CHECK(held.most == static_cast<int>(most));
      CHECK(held.least == static_cast<int>(least));
    }
  }
  CHECK(held_sums(4096, 8).mean == 1);
  CHECK(held_sums(0, 3).most == 1);
  CHECK(held_sums(16, 0).most == 1);
  CHECK(kBlockBytes == sizeof(float) * kernels::kBlockElements);
  for (const std::size_t elements : {1u, 4096u, 4097u, 9610u, 100'000u, 1'863'690u}) {
    for (int members = 1; members <= 20; ++members) {
      const engine::Ownership ownership(engine::Buckets(elements), members);
      std::size_t largest = 0;
      for (int rank = 0; rank < members; ++rank) {
        largest = std::max(largest, ownership.of(0, rank).size());
      }
      CHECK(largest_share(sizeof(float) * static_cast<double>(elements), members) ==
            static_cast<double>(sizeof(float) * largest));
    }
  }
  CHECK(largest_share(0, 3) == 0);
}

TEST_CASE("where blocks divide evenly the forecast is the prediction") {
  const double bytes = 64 * kBlockBytes;
  const Topology topology = two_racks();
  StepWork work;
  work.gradient_bytes = bytes;
  work.compute_seconds = 2;
  const StepModel model(topology, work);
  for (const int hosts : {1, 2, 4, 8}) {
    const StepTime told = forecast_step(model, one_each(hosts), {16, 1, 0});
    const StepTime predicted = model.predict(one_each(hosts));
    CHECK(told.exchange_seconds == doctest::Approx(predicted.exchange_seconds));
    CHECK(told.step_seconds == doctest::Approx(predicted.step_seconds));
    CHECK(told.bound_domain == predicted.bound_domain);
  }
}

TEST_CASE("who adds up a whole block of a few is sent it by all, and gives it to all") {
  // 3 blocks for 4 members: one has none of them, and three times a block comes and goes.
  CHECK(exchange(3 * kBlockBytes, 4, {16, 1, 0}) ==
        doctest::Approx(2 * (1e-3 + 3 * kBlockBytes / kRate)));
  // On a link that carries many shares it does not matter how they are cut.
  const double bytes = 3 * kBlockBytes;
  CHECK(exchange(bytes, 8, {16, 1, 0}) ==
        doctest::Approx(2 * (1e-3 + std::max(7 * kBlockBytes, 16 * bytes / 8) / kRate)));
}

TEST_CASE("a member that holds two sums sends both") {
  // 16 ranks for 3: one holds 1 sum and two hold 2, so the first is sent 4 times what it adds up.
  const double bytes = 3 * 16 * kBlockBytes;
  REQUIRE(held_sums(16, 3).most == 2);
  CHECK(exchange(bytes, 3, {16, 1, 0}) == doctest::Approx(2 * 1e-3 + (4 + 2) * bytes / 3 / kRate));
}

TEST_CASE("what goes out in time costs no step, but for the last bucket") {
  const Topology topology = two_racks();
  StepWork work;
  work.gradient_bytes = 4 * kBucketBytes;
  work.compute_seconds = 1000;
  const StepModel model(topology, work);
  const auto hosts = one_each(2);
  const double all = model.predict(hosts).exchange_seconds;
  const auto step = [&](const ExchangeShape& shape) {
    return forecast_step(model, hosts, shape).step_seconds;
  };
  CHECK(step({16, 8, 900}) == doctest::Approx(1000 + all / 4));
  CHECK(step({16, 2, 900}) == doctest::Approx(1000 + all / 2));
  CHECK(step({16, 1, 900}) == doctest::Approx(1000 + all));
  CHECK(step({16, 8, 8}) == doctest::Approx(1000 + all - 6));
}

TEST_CASE("a job's forecast is its workers' computing and the exchange where they stand") {
  const Topology topology = two_racks();
  const double exchange_seconds = 2 * (1e-3 + 4 * kBlockBytes / kRate);
  const auto seconds = forecast_seconds(job_on({"n00000", "n00001"}), told(), topology);
  REQUIRE(seconds);
  CHECK(*seconds == doctest::Approx(0.1 + exchange_seconds));
  // Two processes a pod: as 4 members, two on a host.
  api::TrainingJob two = job_on({"n00000", "n00001"});
  two.spec.worker.processes = 2;
  CHECK(*forecast_seconds(two, told(), topology) ==
        doctest::Approx(0.1 + 2 * (1e-3 + 2 * 2 * 2 * kBlockBytes / kRate)));
}

TEST_CASE("nothing is foretold of what is not known") {
  const Topology topology = two_racks();
  const std::vector<std::string> nodes{"n00000", "n00001"};
  CHECK_FALSE(forecast_seconds(job_on({"n00000", "gone"}), told(), topology));
  CHECK_FALSE(forecast_seconds(job_on({}), told(), topology));
  api::TrainingJob elsewhere = job_on(nodes);
  elsewhere.status.placement[1].domain.clear();
  CHECK_FALSE(forecast_seconds(elsewhere, told(), topology));
  api::TrainingJob split = job_on(nodes);
  split.spec.training->split.pipeline = 2;
  CHECK_FALSE(forecast_seconds(split, told(), topology));
  api::TrainingJob own = job_on(nodes);
  own.spec.training.reset();
  CHECK_FALSE(forecast_seconds(own, told(), topology));
  for (const double none : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    ProgressReport report = told();
    report.step_seconds = none;
    CHECK_FALSE(forecast_seconds(job_on(nodes), report, topology));
  }
  ProgressReport hostile = told();
  hostile.model_parameters = -5;
  CHECK_FALSE(forecast_seconds(job_on(nodes), hostile, topology));
}
