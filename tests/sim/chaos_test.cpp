// Everything that can go wrong between operator and API server, at random, in one thread: requests
// refused, replies lost, watches cut and compacted, news late, the operator killed at any point,
// pods failing, deleted and left over. What must hold is checked after every event; when the faults
// stop, every job must end.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "common/log.h"
#include "common/rng.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr int kSeeds = 20;
constexpr int kEvents = 400;
constexpr int kCpus = 4;

class FaultyTransport final : public kube::HttpTransport {
 public:
  FaultyTransport(kube::HttpTransport& real, Rng& rng, const bool& faults)
      : real_(real), rng_(rng), faults_(faults) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (hit(12)) return Error(ErrorCode::kUnavailable, "connect: connection refused");
    if (hit(20)) return kube::HttpResponse{503, "", std::nullopt};
    auto answer = real_.send(request);
    if (hit(12)) return Error(ErrorCode::kDeadlineExceeded, "the reply was lost");
    return answer;
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    if (hit(5)) return Error(ErrorCode::kUnavailable, "connect: connection refused");
    return real_.open_stream(request);
  }

 private:
  bool hit(std::uint64_t one_in) { return faults_ && rng_.below(one_in) == 0; }
  kube::HttpTransport& real_;
  Rng& rng_;
  const bool& faults_;
};

struct Chaos {
  explicit Chaos(std::uint64_t seed)
      : rng(seed), world(seed, [this](kube::HttpTransport& real) {
          transports.push_back(std::make_unique<FaultyTransport>(real, rng, faults));
          return transports.back().get();
        }) {
    world.add_node("a", kCpus);
    world.add_node("b", kCpus);
    for (const char* name : {"x", "y", "z"}) {
      jobs.emplace_back(name);
      world.create_job(name, 1 + static_cast<int>(rng.below(3)), [](Json& job) {
        job["spec"]["restart"] = {
            {"policy", "OnFailure"}, {"maxRestarts", 1000}, {"backoffSeconds", 1}};
      });
    }
  }

  const api::Pod* any_pod() {
    pods = world.pods();
    return pods.empty() ? nullptr : &pods[rng.below(pods.size())];
  }

  void pod_event() {
    const api::Pod* pod = any_pod();
    if (pod == nullptr || pod->ended()) return;
    const std::string name = pod->meta.name;
    switch (rng.below(4)) {
      case 0:
        world.bind_pod(name);
        break;
      case 1:
        if (!pod->meta.deletion_time) world.run_pod(name);
        break;
      case 2:
        world.end_pod(name, rng.below(3) == 0 ? 1 : 0);
        break;
      default: {
        const kube::DeleteOptions options{pod->meta.uid, rng.below(2) == 0 ? 0 : -1};
        if (rng.below(4) == 0) {
          REQUIRE(world.user->remove(api::Kind::kPod, pod->meta.key(), options).has_value());
        }
      }
    }
  }

  void suspend_some_job(bool value) {
    const std::string& name = jobs[rng.below(jobs.size())];
    const Json patch{{"spec", {{"suspend", value}}}};
    (void)world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "", patch);
  }

  void event() {
    switch (rng.below(24)) {
      case 0:
        world.restart_operator();
        break;
      case 1:
        world.server.cut_streams();
        break;
      case 2:
        world.server.compact();
        break;
      case 3:
      case 4:
        world.reap(143);
        break;
      case 5:
        suspend_some_job(rng.below(3) == 0);
        break;
      case 6:
      case 7:
      case 8:
        world.clock.advance(milliseconds(rng.below(4000)));
        break;
      case 9:
      case 10:
      case 11:
      case 12:
        pod_event();
        break;
      default:
        for (int i = 0; i < 6; ++i) world.stagger(rng());
    }
  }

  void check() {
    std::set<std::string> live;
    std::map<std::string, int> used;
    for (const auto& pod : world.pods()) {
      if (pod.ended()) continue;
      ++used[pod.required_node];
      if (pod.meta.deletion_time) continue;
      const std::string who = pod.meta.labels.at("muster.dev/job-uid") + "/" +
                              std::to_string(pod.slot()) + "/" + std::to_string(pod.attempt());
      CHECK_MESSAGE(live.insert(who).second, "two live pods for " << who);
    }
    for (const auto& [node, count] : used) CHECK_MESSAGE(count <= kCpus, "node " << node);
    for (const auto& name : jobs) {
      const auto job = world.job(name);
      auto& last = seen[name];
      CHECK(job.status.membership_epoch >= last.membership_epoch);
      CHECK(job.status.restarts >= last.restarts);
      CHECK(job.status.observed_generation >= last.observed_generation);
      if (last.finished()) CHECK(job.status.finished());
      for (const auto& placement : job.status.placement) {
        CHECK(placement.attempt < job.status.membership_epoch);
      }
      last = job.status;
    }
  }

  /// Faults are over: a cluster that does its part must bring every job to its end.
  bool calm() {
    faults = false;
    for (const auto& name : jobs) {
      const Json patch{{"spec", {{"suspend", false}}}};
      (void)world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "", patch);
    }
    for (int round = 0; round < 60; ++round) {
      world.pass(seconds(10));
      world.reap(143);
      world.pass(seconds(1));
      world.run_all_pods();
      world.settle();
      for (const auto& pod : world.pods()) {
        if (!pod.ended() && !pod.meta.deletion_time) world.end_pod(pod.meta.name, 0);
      }
      world.settle();
      check();
      bool all = true;
      for (const auto& name : jobs) all = all && world.job(name).status.is_true("Complete");
      if (all) return true;
    }
    for (const auto& name : jobs) {
      MESSAGE(name << ": " << dump_json(api::status_to_json(world.job(name).status)));
    }
    return false;
  }

  Rng rng;
  bool faults = true;
  std::vector<std::unique_ptr<FaultyTransport>> transports;
  World world;
  std::vector<std::string> jobs;
  std::vector<api::Pod> pods;
  std::map<std::string, api::TrainingJobStatus> seen;
};

}  // namespace

TEST_CASE("whatever fails on the way, the rules hold and every job ends") {
  configure_log(LogLevel::kError, {});
  std::int64_t restarts = 0, finished_early = 0;
  for (int i = 0; i < kSeeds; ++i) {
    const std::uint64_t seed = test::seed() * 1'000 + static_cast<std::uint64_t>(i);
    CAPTURE(seed);
    Chaos chaos(seed);
    for (int event = 0; event < kEvents; ++event) {
      chaos.event();
      chaos.check();
    }
    for (const auto& name : chaos.jobs) {
      restarts += chaos.world.job(name).status.restarts;
      finished_early += chaos.world.job(name).status.finished() ? 1 : 0;
    }
    REQUIRE(chaos.calm());
    chaos.world.reap(143);
    chaos.world.pass(seconds(60));
    const auto version = chaos.world.server.resource_version();
    chaos.world.pass(seconds(700));
    CHECK(chaos.world.server.resource_version() == version);
    for (const auto& pod : chaos.world.pods()) CHECK(pod.ended());
  }
  MESSAGE(kSeeds << " seeds: " << restarts << " restarts under faults, " << finished_early << " of "
                 << 3 * kSeeds << " jobs ended under them");
  CHECK(restarts > kSeeds / 2);
  CHECK(finished_early < 3 * kSeeds);
}
