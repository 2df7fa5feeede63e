// What the operator does while it does not see its own writes yet.
#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

/// Everything the watches have is delivered; no plan is carried out.
void see(World& world) {
  bool busy = true;
  while (busy) {
    busy = false;
    for (auto& pump : world.op->pumps) {
      while (pump->step(milliseconds(0)) == kube::WatchPump::Did::kWork) busy = true;
    }
  }
  world.op->next = world.op->loop->step();
}

/// An API server whose first answer about job z's status is lost on its way.
struct LosesAnswer final : kube::HttpTransport {
  explicit LosesAnswer(kube::HttpTransport& server) : real(server) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    auto answer = real.send(request);
    const bool is_it = request.method == "PATCH" &&
                       request.path.find("/trainingjobs/z/status") != std::string::npos;
    if (!is_it || has_lost) return answer;
    has_lost = true;
    return Error(ErrorCode::kDeadlineExceeded, "no answer");
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real.open_stream(request);
  }
  kube::HttpTransport& real;
  bool has_lost = false;
};

}  // namespace

TEST_CASE("the claim of a job whose places may be stored, though nobody knows, is nobody else's") {
  std::unique_ptr<LosesAnswer> server;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    server = std::make_unique<LosesAnswer>(real);
    return server.get();
  });
  world.add_node("local", 8);
  const Json claim{{"apiVersion", "v1"},
                   {"kind", "PersistentVolumeClaim"},
                   {"metadata", {{"name", "disk"}, {"namespace", "default"}}},
                   {"spec", {{"accessModes", Json::array({"ReadWriteMany"})}}}};
  REQUIRE(world.user->create(api::Kind::kPersistentVolumeClaim, "default", claim).has_value());
  for (const char* name : {"z", "y"}) {
    world.create_job(name, 1, [](Json& job) {
      job["spec"]["worker"].erase("command");
      job["spec"]["training"] = sim::engine_spec();
      job["spec"]["training"]["checkpoint"] = Json{{"path", "/c"}, {"volumeClaimName", "disk"}};
    });
    world.clock.advance(seconds(1));
  }
  see(world);
  while (world.op->executor.work()) world.op->loop->step();
  REQUIRE(server->has_lost);
  CHECK(world.job("z").status.placement.size() == 1);
  CHECK(world.job("y").status.placement.empty());
  world.settle();
  CHECK(world.pods().size() == 1);
  CHECK(world.job("y").status.placement.empty());
}

TEST_CASE("until an own status write is seen, nothing else is decided about that job") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("j", 2);
  see(world);
  REQUIRE(world.op->executor.work());  // the placement is stored, and not seen
  world.op->loop->step();
  ProgressReport report;
  report.job = "default/j";
  REQUIRE(world.op->mailbox.try_post(report));
  world.op->loop->step();
  CHECK_FALSE(world.op->executor.work());
  world.settle();
  CHECK(world.pods().size() == 2);
}

TEST_CASE("a write that is never seen holds its job up for a while only") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("j", 2);
  see(world);
  REQUIRE(world.op->executor.work());
  world.op->loop->step();
  CHECK(world.op->loop->step() <= world.clock.mono_now() + seconds(30));
  world.clock.advance(seconds(30));
  world.op->loop->step();
  // It tries again with what it knows; the version that it knows is refused, and nothing is broken.
  CHECK(world.op->executor.work());
  world.pass(seconds(5));
  CHECK(world.job("j").status.membership_epoch == 1);
  CHECK(world.pods().size() == 2);
}

TEST_CASE("capacity promised by a decision on its way is not promised again") {
  World world(test::seed());
  world.add_node("local", 3);
  world.create_job("second", 2);
  see(world);  // decided, not carried out
  // As old as the other and before it by name: waiting in line would not protect the promise.
  world.create_job("first", 2);
  see(world);
  world.settle();
  CHECK(world.pods().size() == 2);
  CHECK(world.job("second").status.placement.size() == 2);
  CHECK(world.job("first").status.placement.empty());
}

TEST_CASE("a refused write is tried again soon, and takes no capacity meanwhile") {
  struct OnceBusy final : kube::HttpTransport {
    explicit OnceBusy(kube::HttpTransport& server) : real(server) {}
    Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
      if (request.method == "PATCH" && busy-- > 0) return kube::HttpResponse{503, "", std::nullopt};
      return real.send(request);
    }
    Result<Stream> open_stream(const kube::HttpRequest& request) override {
      return real.open_stream(request);
    }
    kube::HttpTransport& real;
    int busy = 1;
  };
  std::unique_ptr<OnceBusy> busy;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    busy = std::make_unique<OnceBusy>(real);
    return busy.get();
  });
  world.add_node("local", 2);
  world.create_job("j", 2);
  world.pass(seconds(5));
  CHECK(world.pods().size() == 2);
  // Decided twice, told once: a promise that was not kept would have it wait for itself.
  CHECK(world.server.request_counts().at("create events") == 1);
}

TEST_CASE("a pod that is gone before it was ever seen is made again") {
  World world(test::seed());
  world.add_node("local", 2);
  world.create_job("j", 1);
  see(world);
  REQUIRE(world.op->executor.work());  // placed
  see(world);
  REQUIRE(world.op->executor.work());  // made
  const auto pods = world.pods();
  REQUIRE(pods.size() == 1);
  REQUIRE(world.user->remove(api::Kind::kPod, pods[0].meta.key(), {pods[0].meta.uid, 0}));
  world.settle();
  CHECK(world.pods().empty());
  world.pass(seconds(31));
  CHECK(world.pods().size() == 1);
}
