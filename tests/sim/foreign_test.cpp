// What others write into a job while the operator works at it.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr milliseconds kWriteEvery{100};
constexpr milliseconds kHalfAnExchange{10};

/// A way to the server on which time passes, and others who write one job meanwhile, each ten times
/// a second: a label, an annotation or a field of the spec in turn.
class Crowd final : public kube::HttpTransport {
 public:
  explicit Crowd(kube::HttpTransport& real) : real_(real), user_(kube::make_rest_client(real)) {}

  void begin(ManualClock& clock, std::size_t writers, const std::string& job) {
    clock_ = &clock;
    job_ = {"default", job};
    for (std::size_t i = 0; i < writers; ++i) {
      due_.push_back(clock.mono_now() + kWriteEvery * i / writers);
    }
  }
  /// The clock goes on, and whoever is due writes.
  void pass(nanoseconds time) {
    if (clock_ == nullptr) return;
    const MonoTime end = clock_->mono_now() + time;
    while (true) {
      const auto next = std::min_element(due_.begin(), due_.end());
      if (*next > end) break;
      clock_->advance(*next - clock_->mono_now());
      *next += kWriteEvery;
      write(std::to_string(next - due_.begin()));
    }
    clock_->advance(end - clock_->mono_now());
  }

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    pass(kHalfAnExchange);
    auto answer = real_.send(request);
    if (request.method == "PATCH" && answer && answer->code == 409) ++conflicts;
    pass(kHalfAnExchange);
    return answer;
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real_.open_stream(request);
  }

  std::map<std::string, std::string> labels, annotations;  ///< as they were written last
  int time_to_live = 0;                                    ///< likewise
  int written = 0, conflicts = 0;

 private:
  void write(const std::string& writer) {
    const std::string name = "example.com/w" + writer, value = std::to_string(++written);
    Json patch = Json::object();
    switch (written % 3) {
      case 0:
        patch["metadata"]["labels"][name] = labels[name] = value;
        break;
      case 1:
        patch["metadata"]["annotations"][name] = annotations[name] = value;
        break;
      default:
        patch["spec"]["ttlSecondsAfterFinished"] = time_to_live = 1000 + written;
    }
    REQUIRE(user_->merge_patch(api::Kind::kTrainingJob, job_, "", patch));
  }

  kube::HttpTransport& real_;
  std::unique_ptr<kube::ApiClient> user_;
  ManualClock* clock_ = nullptr;
  api::ObjectKey job_;
  std::vector<MonoTime> due_;
};

/// Another controller's condition, beside those that there are.
void add_condition(World& world, const std::string& name) {
  auto job = world.user->get(api::Kind::kTrainingJob, {"default", name});
  REQUIRE(job);
  Json conditions = (*job)["status"]["conditions"];
  conditions.push_back({{"type", "example.com/Seen"},
                        {"status", "True"},
                        {"reason", "Seen"},
                        {"message", "by somebody else"},
                        {"lastTransitionTime", "2026-11-30T00:00:00Z"}});
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "status",
                                  Json{{"status", {{"conditions", conditions}}}}));
}

}  // namespace

TEST_CASE("others who write a job ten times a second hold it up for no half minute") {
  for (const std::size_t writers : {1, 2, 3}) {
    CAPTURE(writers);
    std::unique_ptr<Crowd> crowd;
    World world(test::seed(), [&](kube::HttpTransport& real) {
      crowd = std::make_unique<Crowd>(real);
      return crowd.get();
    });
    world.add_node("local", 4);
    world.create_job("j", 3);
    const MonoTime began = world.clock.mono_now();
    crowd->begin(world.clock, writers, "j");
    std::optional<MonoTime> ended;
    bool is_watched = false;
    while (world.clock.mono_now() < began + seconds(30)) {
      crowd->pass(milliseconds(50));
      world.settle();
      world.run_all_pods();
      const auto status = world.job("j").status;
      if (!is_watched && status.is_true("Admitted")) {
        add_condition(world, "j");
        is_watched = true;
      }
      if (status.is_true("Running")) {
        for (const auto& pod : world.pods()) {
          if (!pod.ended()) world.end_pod(pod.meta.name, 0);
        }
      }
      if (status.is_true("Complete") && !ended) ended = world.clock.mono_now();
    }
    CHECK(ended);
    CHECK(crowd->conflicts > 0);
    CHECK(crowd->written >= 290 * static_cast<int>(writers));
    CHECK(world.server.request_counts()["create pods"] == 3);
    const auto job = world.user->get(api::Kind::kTrainingJob, {"default", "j"});
    REQUIRE(job);
    for (const auto& [name, value] : crowd->labels) {
      CHECK((*job)["metadata"]["labels"].value(name, "") == value);
    }
    for (const auto& [name, value] : crowd->annotations) {
      CHECK((*job)["metadata"]["annotations"].value(name, "") == value);
    }
    CHECK((*job)["spec"]["ttlSecondsAfterFinished"] == crowd->time_to_live);
    const auto* seen = world.job("j").status.condition("example.com/Seen");
    REQUIRE(seen != nullptr);
    CHECK(seen->message == "by somebody else");
    MESSAGE(writers << " writers: " << crowd->written << " writes, " << crowd->conflicts
                    << " conflicts");
  }
}
