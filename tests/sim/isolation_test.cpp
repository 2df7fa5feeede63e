// One job that fails in whatever way is nobody else's trouble.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

constexpr const char* kPoor = "poor";
constexpr int kOthers = 8;

/// Answers every write that is about one job in one way.
class Against final : public kube::HttpTransport {
 public:
  explicit Against(kube::HttpTransport& real) : real_(real) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const bool is_it = request.path.find(kPoor) != std::string::npos ||
                       request.body.find(kPoor) != std::string::npos;
    if (request.method == "GET" || !is_it || !(answer || throws)) return real_.send(request);
    ++refused;
    if (throws) throw std::out_of_range("map::at");
    return *answer;
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real_.open_stream(request);
  }

  std::optional<Result<kube::HttpResponse>> answer;
  bool throws = false;  ///< as a library does at what nobody has thought of
  int refused = 0;

 private:
  kube::HttpTransport& real_;
};

std::string other(int number) { return "j" + std::to_string(number); }

/// Each of the others has come so far within a second of virtual time.
void check_others(World& world, const char* condition) {
  world.pass(seconds(1));
  for (int i = 0; i < kOthers; ++i) {
    CHECK_MESSAGE(world.job(other(i)).status.is_true(condition), other(i) << " " << condition);
  }
}

/// While one fails for long, others come and live their whole lives.
void check_all_live(World& world) {
  for (int i = 0; i < kOthers; ++i) world.create_job(other(i), 1);
  check_others(world, "Admitted");
  world.run_all_pods();
  check_others(world, "Running");
  for (const auto& pod : world.pods()) world.end_pod(pod.meta.name, 0);
  check_others(world, "Complete");
}

}  // namespace

TEST_CASE("however the writes of one job fail, no other job waits a second for it") {
  struct Row {
    const char* name;
    std::optional<Result<kube::HttpResponse>> answer;  ///< none: an exception
  };
  const Json quota{{"kind", "Status"},
                   {"reason", "Forbidden"},
                   {"code", 403},
                   {"message", "pods is forbidden: exceeded quota: team"}};
  const Row rows[] = {{"quota", kube::HttpResponse{403, dump_json(quota), std::nullopt}},
                      {"no right", kube::HttpResponse{403, "", std::nullopt}},
                      {"conflict", kube::HttpResponse{409, "", std::nullopt}},
                      {"invalid", kube::HttpResponse{422, "", std::nullopt}},
                      {"slow down", kube::HttpResponse{429, "", seconds(300)}},
                      {"broken", kube::HttpResponse{500, "", std::nullopt}},
                      {"away", Error(ErrorCode::kUnavailable, "connection refused")},
                      {"lost", Error(ErrorCode::kDeadlineExceeded, "the reply was lost")},
                      {"thrown", std::nullopt}};
  for (const Row& row : rows) {
    CAPTURE(row.name);
    Against* against = nullptr;
    std::unique_ptr<Against> wrapped;
    World world(test::seed(), [&](kube::HttpTransport& real) {
      wrapped = std::make_unique<Against>(real);
      return against = wrapped.get();
    });
    world.add_node("local", 2 * kOthers);
    against->answer = row.answer;
    against->throws = !row.answer;
    world.create_job(kPoor, 1);
    // Long enough that its own back-off is at the most.
    world.pass(seconds(200));
    CHECK(against->refused > 0);
    check_all_live(world);
    CHECK(world.job(kPoor).status.replicas == 0);
    // And it is not given up.
    against->answer.reset();
    against->throws = false;
    world.pass(seconds(400));
    CHECK(world.job(kPoor).status.placement.size() == 1);
  }
}

TEST_CASE("a job at which a library throws is tried again ever more rarely, and no other waits") {
  World world(test::seed());
  world.add_node("local", 2 * kOthers);
  int thrown = 0;
  world.op->executor.on_decided = [&](const runtime::Work& work) {
    if (work.key.name != kPoor) return;
    ++thrown;
    throw std::out_of_range("map::at");
  };
  world.create_job(kPoor, 1);
  world.pass(seconds(200));
  const int before = thrown;
  CHECK(before > 0);
  check_all_live(world);
  world.pass(seconds(600));
  // At the most a minute, and half of that at the least.
  CHECK(thrown - before <= 25);
  CHECK(thrown - before >= 9);
  world.op->executor.on_decided = nullptr;
  world.pass(seconds(61));
  CHECK(world.job(kPoor).status.placement.size() == 1);
}
