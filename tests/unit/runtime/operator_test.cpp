// The operator with all its threads, against the API server in memory.
#include "operator/runtime/operator.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "operator/embedded/api_server.h"

using namespace muster;

namespace {

constexpr seconds kPatience{60};

struct WholeOperator {
  SystemClock clock;
  embedded::ApiServer server{{&clock}};
  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(server);

  runtime::OperatorOptions options() {
    runtime::OperatorOptions made;
    made.client = client.get();
    made.clock = &clock;
    made.master_keys.current = std::string(64, '7');
    made.pods.default_image = "worker";
    return made;
  }

  void add_node() const {
    const Json ready{{"type", "Ready"}, {"status", "True"}};
    const Json node{{"apiVersion", "v1"},
                    {"kind", "Node"},
                    {"metadata", {{"name", "local"}}},
                    {"status",
                     {{"allocatable", {{"cpu", "4"}, {"memory", "8Gi"}}},
                      {"conditions", Json::array({ready})}}}};
    REQUIRE(client->create(api::Kind::kNode, "", node).has_value());
    const Json status{{"status", node["status"]}};
    REQUIRE(client->merge_patch(api::Kind::kNode, {"", "local"}, "status", status).has_value());
  }

  void create_job(const std::string& name) const {
    const Json job{{"apiVersion", "muster.dev/v1alpha1"},
                   {"kind", "TrainingJob"},
                   {"metadata", {{"name", name}, {"namespace", "default"}}},
                   {"spec", {{"worker", {{"count", 2}, {"command", Json::array({"train"})}}}}}};
    const auto made = client->create(api::Kind::kTrainingJob, "default", job);
    REQUIRE_MESSAGE(made.has_value(), made.error().message());
  }

  /// Follows the watch of `kind` until `done` says so of an object.
  void wait_for(api::Kind kind, const std::function<bool(const Json&)>& done) const {
    kube::WatchOptions watch;
    watch.namespace_name = "default";
    watch.resource_version = "0";
    auto stream = client->watch(kind, watch);
    REQUIRE(stream.has_value());
    const MonoTime deadline = clock.mono_now() + kPatience;
    while (clock.mono_now() < deadline) {
      const auto line = (*stream)->next_line(seconds(10));
      if (!line) continue;
      REQUIRE(line->has_value());
      const auto event = parse_json(**line);
      REQUIRE(event.has_value());
      if (done((*event)["object"])) return;
    }
    FAIL("it did not happen in time");
  }

  void end_pods(const std::string& phase, const Json& state) const {
    const auto page = client->list(api::Kind::kPod, {"default", "", 500, ""});
    REQUIRE(page.has_value());
    for (const auto& pod : page->items) {
      const Json container{{"name", "worker"}, {"state", state}};
      const Json patch{
          {"status", {{"phase", phase}, {"containerStatuses", Json::array({container})}}}};
      const api::ObjectKey key{"default", pod["metadata"]["name"].get<std::string>()};
      REQUIRE(client->merge_patch(api::Kind::kPod, key, "status", patch).has_value());
    }
  }

  void wait_phase(const std::string& phase) const {
    wait_for(api::Kind::kTrainingJob, [&](const Json& job) {
      return job.contains("status") && job["status"].value("phase", "") == phase;
    });
  }
};

}  // namespace

TEST_CASE_FIXTURE(WholeOperator, "with all its threads the operator takes a job to its end") {
  add_node();
  create_job("j");
  auto running = runtime::Operator::start(options());
  REQUIRE(running.has_value());
  REQUIRE((*running)->wait_synced(clock.mono_now() + kPatience).has_value());
  int pods = 0;
  wait_for(api::Kind::kPod, [&](const Json&) { return ++pods == 2; });
  end_pods("Running", {{"running", Json::object()}});
  wait_phase("Running");
  ProgressReport report;
  report.job = "default/j";
  report.step = 17;
  report.total_steps = 100;
  CHECK((*running)->post_progress(report));
  wait_for(api::Kind::kTrainingJob, [&](const Json& job) {
    return job.contains("status") && job["status"].contains("progress") &&
           job["status"]["progress"].value("step", 0) == 17;
  });
  end_pods("Succeeded", {{"terminated", {{"exitCode", 0}}}});
  wait_phase("Complete");
  (*running)->stop();
  (*running)->stop();
}

TEST_CASE_FIXTURE(WholeOperator, "nothing is written after stop, at whatever moment it comes") {
  add_node();
  for (int round = 0; round < 20; ++round) {
    create_job("j" + std::to_string(round));
    auto running = runtime::Operator::start(options());
    REQUIRE(running.has_value());
    if (round % 2 == 0) {
      REQUIRE((*running)->wait_synced(clock.mono_now() + kPatience).has_value());
    }
    (*running)->stop();
    const auto version = server.resource_version();
    running->reset();
    CHECK(server.resource_version() == version);
  }
}

TEST_CASE_FIXTURE(WholeOperator, "a wrong master key is refused before anything starts") {
  auto wrong = options();
  wrong.master_keys.current = "secret";
  const auto running = runtime::Operator::start(wrong);
  REQUIRE_FALSE(running.has_value());
  CHECK(running.error().message() == "master key: must be 64 hexadecimal digits");
}

TEST_CASE_FIXTURE(WholeOperator, "waiting for a server that does not answer ends at the deadline") {
  class Silent final : public kube::HttpTransport {
   public:
    Result<kube::HttpResponse> send(const kube::HttpRequest&) override {
      return Error(ErrorCode::kUnavailable, "nobody there");
    }
    Result<Stream> open_stream(const kube::HttpRequest&) override {
      return Error(ErrorCode::kUnavailable, "nobody there");
    }
  } silent;
  const auto nobody = kube::make_rest_client(silent);
  auto to_nobody = options();
  to_nobody.client = nobody.get();
  auto running = runtime::Operator::start(to_nobody);
  REQUIRE(running.has_value());
  const auto synced = (*running)->wait_synced(clock.mono_now() + milliseconds(20));
  REQUIRE_FALSE(synced.has_value());
  CHECK(synced.error().code() == ErrorCode::kDeadlineExceeded);
}
