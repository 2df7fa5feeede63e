#include "operator/core/step_forecast.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "kernels/ops.h"
#include "operator/core/few_blocks.h"
#include "tests/unit/core/trees.h"
#include "worker/comm/communicator.h"
#include "worker/engine/assignment.h"
#include "worker/engine/buckets.h"
#include "worker/engine/exchange.h"
#include "worker/engine/hosts.h"
#include "worker/engine/keeping.h"
#include "worker/engine/ranges.h"
#include "worker/engine/shard.h"
#include "worker/engine/sharded_exchange.h"

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

/// A gang of the engine, as trainers plan its exchange.
struct Gang {
  int pods = 1, processes = 1;
  int logical_ranks = 16;
  std::size_t elements = 0;

  int members() const { return pods * processes; }
  engine::Hosts hosts() const {
    std::vector<int> host_of;
    for (int rank = 0; rank < members(); ++rank) host_of.push_back(rank / processes);
    return engine::Hosts(host_of);
  }
  double bytes() const { return sizeof(float) * static_cast<double>(elements); }
};

/// Bytes that each pod sends to others, and is sent by them, before and after gradients are summed.
struct PodBytes {
  struct Half {
    double out = 0, in = 0;
    double more() const { return std::max(out, in); }
  };
  Half scatter, gather;
};

/// One rank, alone: takes down what it would send and be sent, and moves nothing.
class TakesDown final : public comm::Communicator {
 public:
  TakesDown(const Gang& gang, int rank, PodBytes& bytes)
      : gang_(gang), hosts_(gang.hosts()), rank_(rank), half_(&bytes.scatter), bytes_(bytes) {}

  void gather_from_now_on() { half_ = &bytes_.gather; }

  int rank() const override { return rank_; }
  int size() const override { return gang_.members(); }
  Result<std::unique_ptr<comm::Work>> start_on(
      int, std::uint64_t, comm::Memory, std::span<const comm::SendBuffer> sends,
      std::span<const comm::ReceiveBuffer> receives) override {
    for (const comm::SendBuffer& one : sends) add(half_->out, one.peer, one.bytes);
    for (const comm::ReceiveBuffer& one : receives) add(half_->in, one.peer, one.bytes);
    return std::unique_ptr<comm::Work>(std::make_unique<Done>());
  }
  void abort() override {}
  std::uint64_t sent_bytes() const override { return 0; }

 private:
  struct Done final : comm::Work {
    Status wait(MonoTime) override { return {}; }
  };
  void add(double& all, int peer, std::size_t bytes) const {
    if (!hosts_.are_together(rank_, peer)) all += static_cast<double>(bytes);
  }

  const Gang& gang_;
  const engine::Hosts hosts_;
  const int rank_;
  PodBytes::Half* half_;
  PodBytes& bytes_;
};

/// By pod, as the trainers plan it. `is_by_hosts`: for hosts that are shared.
std::vector<PodBytes> planned(const Gang& gang, bool is_by_hosts, bool is_sharded) {
  const auto assignment = engine::assign(gang.logical_ranks, gang.members());
  REQUIRE(assignment);
  const engine::Ownership ownership(engine::Buckets(gang.elements), gang.members());
  engine::Reduction reduction{ownership, gang.elements};
  if (is_by_hosts) reduction.hosts = gang.hosts();
  if (is_sharded) {
    std::vector<int> slots;
    for (int rank = 0; rank < gang.members(); ++rank) slots.push_back(rank / gang.processes);
    const engine::Shards shards = engine::make_shards(slots, {ownership, gang.elements});
    reduction.keeping = engine::keeping_of(shards, shards.held());
  }
  std::vector<PodBytes> pods(as_index(gang.pods));
  std::vector<float> memory, values(gang.elements);
  kernels::cpu::Context context;
  const MonoTime deadline = SystemClock().mono_now() + seconds(60);
  for (int rank = 0; rank < gang.members(); ++rank) {
    TakesDown communicator(gang, rank, pods[as_index(rank / gang.processes)]);
    const std::vector<float*> nodes(assignment->nodes[as_index(rank)].size(), values.data());
    engine::GradientExchange exchange(*assignment, rank, reduction, nodes, memory);
    REQUIRE(exchange.sum(communicator, context, 1, deadline, [&](std::string_view point) -> Status {
      if (point == "reduced") communicator.gather_from_now_on();
      return {};
    }));
    if (!is_sharded) continue;
    const auto gifts = engine::plan_gifts({*reduction.keeping, reduction.hosts}, rank);
    REQUIRE(engine::gather_parameters(communicator, gifts, 1, values, deadline, {}));
  }
  return pods;
}

/// Bytes of the busiest pod's card, each half whichever way there are more.
double most_planned(const Gang& gang, bool is_by_hosts, bool is_sharded = false) {
  double scatter = 0, gather = 0;
  for (const PodBytes& pod : planned(gang, is_by_hosts, is_sharded)) {
    scatter = std::max(scatter, pod.scatter.more());
    gather = std::max(gather, pod.gather.more());
  }
  return scatter + gather;
}

/// The same, foretold: by the time on a network where only cards take any.
double most_foretold(const Gang& gang) {
  TopologyInput input = tree_of({"rack"});
  input.host.bytes_per_second = kRate;
  input.host.local_bytes_per_second = 1e30;
  input.host.latency_seconds = input.host.local_latency_seconds = 1e-30;
  input.levels[0].latency_seconds = 1e-30;
  add_hosts(input, {"r1"}, gang.pods);
  const Topology topology = built(std::move(input));
  StepWork work;
  work.gradient_bytes = gang.bytes();
  const ExchangeShape shape{gang.logical_ranks, 1, 0, gang.processes};
  return forecast_step(StepModel(topology, work), one_each(gang.pods), shape).exchange_seconds *
         kRate;
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

TEST_CASE("what a pod sends is foretold as its trainers plan it") {
  const auto is_foretold = [](const Gang& gang, double part) {
    CAPTURE(gang.pods);
    CAPTURE(gang.processes);
    CAPTURE(gang.elements);
    const bool is_by_hosts =
        gang.processes > 1 && engine::blocks_of(gang.elements) >= exchange_sizes::kHostBlocks;
    CHECK(adds_up_by_hosts(gang.bytes(), gang.processes) == is_by_hosts);
    const auto foretold = doctest::Approx(most_foretold(gang)).epsilon(part);
    CHECK(most_planned(gang, is_by_hosts) == foretold);
    CHECK(most_planned(gang, is_by_hosts, true) == foretold);
  };
  constexpr std::size_t kElementsOfABlock = exchange_sizes::kBlockElements;
  for (const std::size_t blocks : {64, 1024}) {
    for (const int pods : {2, 4, 8}) {
      for (const int processes : {1, 2, 4}) {
        is_foretold({pods, processes, 64, blocks * kElementsOfABlock}, 1e-9);
      }
    }
  }
  is_foretold({2, 4, 4, 1024 * kElementsOfABlock}, 1e-9);  // half of the processes are spares
  // Sums that divide by no power of two, and blocks that do not divide evenly.
  for (const auto& [pods, processes] :
       {std::pair{3, 1}, {3, 2}, {2, 3}, {5, 2}, {3, 4}, {6, 3}, {7, 5}}) {
    is_foretold({pods, processes, 64, 300 * kElementsOfABlock + 77}, 1e-3);
  }
  // Where the way changes.
  is_foretold({2, 2, 64, (exchange_sizes::kHostBlocks - 1) * kElementsOfABlock}, 1e-2);
  is_foretold({2, 2, 64, (exchange_sizes::kHostBlocks - 1) * kElementsOfABlock + 1}, 1e-2);
}

TEST_CASE("what processes of a pod give each other by memory comes before the wire, and after it") {
  TopologyInput input = tree_of({"rack"});
  input.host.bytes_per_second = kRate;
  input.host.local_bytes_per_second = 4 * kRate;
  input.host.local_latency_seconds = 1e-4;
  input.levels[0].latency_seconds = 1e-3;
  add_hosts(input, {"r1"}, 4);
  const Topology topology = built(std::move(input));
  StepWork work;
  work.gradient_bytes = 4 * kBucketBytes;
  const StepModel model(topology, work);
  const auto seconds = [&](const std::vector<HostShare>& hosts, int layers) {
    return forecast_step(model, hosts, {16, layers, 0, 4}).exchange_seconds;
  };
  const double wire = work.gradient_bytes / 2 / kRate;
  const double memory = work.gradient_bytes * 3 / 4 / (4 * kRate);
  const double latency = 2 * (1e-3 + 1e-4);
  CHECK(seconds({{0, 1}, {1, 1}}, 1) == doctest::Approx(latency + 2 * (wire + memory)));
  CHECK(seconds({{0, 1}, {1, 1}}, 4) == doctest::Approx(latency + 2 * (wire + memory / 4)));
  // Pods on one host, of four processes each, send to each other as if they were on two.
  const double beside = work.gradient_bytes / 2 / 4 / (4 * kRate);
  CHECK(seconds({{0, 2}}, 1) == doctest::Approx(2 * (2 * 1e-4 + memory + beside)));
  // One alone has nobody to send to but its own processes.
  CHECK(seconds({{0, 1}}, 1) == doctest::Approx(2 * (1e-4 + memory)));
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
  // Of 8 most have none, and those who have been given all go on at once.
  const double bytes = 3 * kBlockBytes;
  const FewBlocks few{std::vector(8, 1), bytes, kRate, 1e-3, 0};
  CHECK(exchange(bytes, 8, {16, 1, 0}) == doctest::Approx(*few_blocks_seconds(few)));
  CHECK(exchange(bytes, 8, {16, 1, 0}) <
        2 * (1e-3 + 7 * kBlockBytes / kRate) - 0.5 * kBlockBytes / kRate);
  // The racks' links carry all that they carried, whoever goes on.
  CHECK(exchange(bytes, 8, {16, 1, 0}) > 2 * (1e-3 + 16 * bytes / 8 / kRate));
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
  const auto seconds = forecast_seconds(job_on({"n00000", "n00001"}), told(), {}, topology);
  REQUIRE(seconds);
  CHECK(*seconds == doctest::Approx(0.1 + exchange_seconds));
  // Two processes a pod: as 4 members, two on a host, because there is so little to send.
  api::TrainingJob two = job_on({"n00000", "n00001"});
  two.spec.worker.processes = 2;
  CHECK(*forecast_seconds(two, told(), {}, topology) ==
        doctest::Approx(0.1 + 2 * (1e-3 + 2 * 2 * 2 * kBlockBytes / kRate)));
}

TEST_CASE("a split model's forecast is by what the workers of its parts have told") {
  const Topology topology = two_racks();
  api::TrainingJob split = job_on({"n00000", "n00001"});
  split.spec.training->split.pipeline = 2;
  std::map<int, ProgressReport> reports;
  for (int slot = 0; slot < 2; ++slot) {
    ProgressReport& report = reports[slot] = told();
    report.slot = slot;
    PartReport& part = report.parts.emplace_back();
    part.counts.parameters = part.counts.micro_batches = 1;
    part.compute_seconds = 1 + slot;
  }
  const auto seconds = [&] { return forecast_seconds(split, reports[0], reports, topology); };
  // There and back, and what rides behind the gradients.
  CHECK(*seconds() == doctest::Approx(1 + 2 + 3 * 1e-3));
  reports[1].attempt = 1;  // of another gang
  CHECK_FALSE(seconds());
  // Of this one, where it took the place of another while the others trained on.
  split.status.placement[1].attempt = 1;
  REQUIRE(seconds());
  CHECK(*seconds() == doctest::Approx(1 + 2 + 3 * 1e-3));
  split.status.placement[1].attempt = reports[1].attempt = 0;
  // Who has no place any more is waited for by nobody.
  reports[2] = reports[0];
  reports[2].slot = 2;
  reports[2].parts[0].compute_seconds = 9;
  CHECK(*seconds() == doctest::Approx(1 + 2 + 3 * 1e-3));
  reports.erase(2);
  reports[1].parts.emplace_back();
  CHECK_FALSE(seconds());
  reports.erase(1);
  CHECK_FALSE(seconds());
  // Of two copies the slower one counts; of two workers one has a copy.
  split.spec.worker.processes = 2;
  reports[0].parts = {reports[0].parts[0], reports[0].parts[0]};
  const double one = *seconds();
  reports[1] = reports[0];
  reports[1].slot = 1;
  reports[1].parts[0].compute_seconds = 3;
  CHECK(*seconds() == doctest::Approx(one + 2));
  split.status.placement.pop_back();
  split.spec.worker.processes = 1;  // half of a copy is there
  CHECK_FALSE(seconds());
}

TEST_CASE("nothing is foretold of what is not known") {
  const Topology topology = two_racks();
  const std::vector<std::string> nodes{"n00000", "n00001"};
  CHECK_FALSE(forecast_seconds(job_on({"n00000", "gone"}), told(), {}, topology));
  CHECK_FALSE(forecast_seconds(job_on({}), told(), {}, topology));
  api::TrainingJob elsewhere = job_on(nodes);
  elsewhere.status.placement[1].domain.clear();
  CHECK_FALSE(forecast_seconds(elsewhere, told(), {}, topology));
  api::TrainingJob split = job_on(nodes);
  split.spec.training->split.pipeline = 2;
  CHECK_FALSE(forecast_seconds(split, told(), {}, topology));
  api::TrainingJob own = job_on(nodes);
  own.spec.training.reset();
  CHECK_FALSE(forecast_seconds(own, told(), {}, topology));
  for (const double none : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN()}) {
    ProgressReport report = told();
    report.step_seconds = none;
    CHECK_FALSE(forecast_seconds(job_on(nodes), report, {}, topology));
  }
  ProgressReport hostile = told();
  hostile.model_parameters = -5;
  CHECK_FALSE(forecast_seconds(job_on(nodes), hostile, {}, topology));
}
