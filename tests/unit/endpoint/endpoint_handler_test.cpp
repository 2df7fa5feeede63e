#include "operator/runtime/endpoint_handler.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/json.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// An endpoint without sockets whose clock and timers the test moves.
struct World {
  explicit World(std::unique_ptr<Authenticator> given = make_local_authenticator("secret"))
      : authenticator(std::move(given)) {}

  ManualClock clock;
  std::unique_ptr<Authenticator> authenticator;
  std::vector<std::function<void()>> timers;
  std::vector<std::pair<std::string, int>> joined;
  std::vector<ProgressReport> reports;
  EndpointHandler handler{
      WorkersEndpointOptions{
          .clock = &clock,
          .authenticator = authenticator.get(),
          .on_progress = [this](const ProgressReport& report) { reports.push_back(report); },
          .on_join = [this](const std::string& job, int slot) { joined.emplace_back(job, slot); }},
      [this](milliseconds, std::function<void()> task) { timers.push_back(std::move(task)); }};

  /// The answer's place; it is filled when the endpoint answers.
  using Answer = std::shared_ptr<std::optional<http::Response>>;

  Answer post(std::string_view path, const std::string& body, const std::string& token = "secret",
              const std::string& method = "POST") {
    auto answer = std::make_shared<std::optional<http::Response>>();
    http::Request request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = {{"authorization", "Bearer " + token}};
    handler.handle(request, [answer](http::Response response) {
      REQUIRE_FALSE(answer->has_value());
      *answer = std::move(response);
    });
    return answer;
  }

  Answer join(int slot, int attempt = 0, const std::string& host = "127.0.0.1",
              std::vector<int> ports = {1001},
              const std::string& numerics = std::string(contract::kNumericsContract)) {
    return post(contract::kPathJoin,
                dump_json(to_json(JoinRequest{"ns/job", slot, attempt, host, ports, numerics})));
  }

  Answer report(int slot, int attempt, std::int64_t step) {
    ProgressReport message;
    message.job = "ns/job";
    message.slot = slot;
    message.attempt = attempt;
    message.step = step;
    message.loss = "0.5";
    return post(contract::kPathProgress, dump_json(to_json(message)));
  }

  void run_timers() {
    for (auto& timer : std::exchange(timers, {})) timer();
  }
};

GangInfo gang(int workers, int attempt = 0) {
  GangInfo info;
  info.job = "ns/job";
  info.job_uid = "uid-1";
  info.epoch = 4;
  info.processes = 1;
  info.threads = 2;
  info.training = Json{{"seed", 7}};
  info.job_key = std::string(64, 'a');
  for (int slot = 0; slot < workers; ++slot) info.attempt_of_slot[slot] = attempt;
  return info;
}

JoinResponse response_of(const World::Answer& answer) {
  REQUIRE(answer->has_value());
  REQUIRE((*answer)->status == 200);
  const auto json = parse_json((*answer)->body);
  REQUIRE(json);
  auto response = parse_join_response(*json);
  REQUIRE(response);
  return *response;
}

std::string message_of(const World::Answer& answer, int status) {
  REQUIRE(answer->has_value());
  CHECK((*answer)->status == status);
  const auto json = parse_json((*answer)->body);
  REQUIRE(json);
  return json->value("message", "");
}

}  // namespace

TEST_CASE("the last joiner releases all, and all hear the same") {
  World world;
  world.handler.set_gang(gang(3));
  const auto second = world.join(1, 0, "10.0.0.2", {1002});
  const auto first = world.join(0, 0, "10.0.0.1", {1001});
  CHECK_FALSE(first->has_value());
  CHECK_FALSE(second->has_value());
  CHECK(world.joined.empty());
  const auto third = world.join(2, 0, "10.0.0.3", {1003});
  const JoinResponse response = response_of(third);
  CHECK(response.complete);
  CHECK(response.epoch == 4);
  CHECK(response.threads == 2);
  CHECK(response.job_uid == "uid-1");
  CHECK(response.job_key == std::string(64, 'a'));
  CHECK(response.training == Json{{"seed", 7}});
  REQUIRE(response.peers.size() == 3);
  CHECK(response.peers[2].slot == 2);
  CHECK(response.peers[2].host == "10.0.0.3");
  CHECK(response.peers[2].ports == std::vector<int>{1003});
  CHECK((*first)->body == (*third)->body);
  CHECK((*second)->body == (*third)->body);
  CHECK(world.joined.size() == 3);
  // Asking again changes nothing and tells nobody twice.
  CHECK((*world.join(1, 0, "10.0.0.2", {1002}))->body == (*third)->body);
  CHECK(world.joined.size() == 3);
}

TEST_CASE("a join is held for a moment and then told to come back") {
  World world;
  world.handler.set_gang(gang(2));
  const auto early = world.join(0);
  REQUIRE(world.timers.size() == 1);
  world.run_timers();
  const JoinResponse response = response_of(early);
  CHECK_FALSE(response.complete);
  CHECK(response.present == 1);
  CHECK(response.expected == 2);
  CHECK(response.job_key.empty());
  CHECK(response.peers.empty());
  const auto again = world.join(0);
  CHECK(response_of(world.join(1)).complete);
  CHECK(response_of(again).complete);
  world.run_timers();  // of posts long answered: nothing may be answered twice
}

TEST_CASE("a worker that posts again frees its earlier post") {
  World world;
  world.handler.set_gang(gang(2));
  const auto earlier = world.join(0, 0, "127.0.0.1", {1001});
  const auto later = world.join(0, 0, "127.0.0.1", {2001});
  CHECK_FALSE(response_of(earlier).complete);
  const JoinResponse response = response_of(world.join(1));
  CHECK(response.peers[0].ports == std::vector<int>{2001});
  CHECK(response_of(later).complete);
}

TEST_CASE("another address for a slot is taken before the gang is complete and refused after") {
  World world;
  world.handler.set_gang(gang(2));
  (void)world.join(0, 0, "127.0.0.1", {1001});
  (void)world.join(0, 0, "127.0.0.1", {1009});
  (void)world.join(1, 0, "127.0.0.1", {1002});
  CHECK(message_of(world.join(0, 0, "127.0.0.1", {1001}), 409) ==
        "slot 0 has joined from 127.0.0.1:1009 and the gang is complete; 127.0.0.1:1001 comes too "
        "late");
  CHECK(response_of(world.join(0, 0, "127.0.0.1", {1009})).complete);
}

TEST_CASE("who does not belong to the gang is told why") {
  World world;
  CHECK(message_of(world.join(0), 404) == "no gang of job \"ns/job\" is expected now");
  world.handler.set_gang(gang(2, 3));
  CHECK(message_of(world.join(5, 3), 409) ==
        "slot 5 is not in the gang of 2 workers of job \"ns/job\"");
  CHECK(message_of(world.join(1, 2), 409) ==
        "slot 1 is at attempt 3, this worker is attempt 2: it was replaced");
  CHECK(message_of(world.join(1, 4), 409) == "slot 1 is at attempt 3, this worker is attempt 4");
  CHECK(message_of(world.join(1, 3, "127.0.0.1", {1001}, "fp32-chain/0"), 409) ==
        "this job trains under numerics contract fp32-chain/1, slot 1 has \"fp32-chain/0\": give "
        "every worker the image of one release");
  CHECK(message_of(world.join(1, 3, "127.0.0.1", {1001, 1002}), 409) ==
        "slot 1 brings 2 processes, the job has 1 per worker");
  CHECK(message_of(world.join(1, 3, "evil host\r\n"), 400) ==
        "join.host: must be an address or a DNS name");
  GangInfo own = gang(1, 3);
  own.training = nullptr;
  world.handler.set_gang(own);
  CHECK(message_of(world.join(0, 3), 409) ==
        "this job runs its own program; its workers do not join");
}

TEST_CASE("without the token nothing is learned, not even which jobs there are") {
  World world;
  world.handler.set_gang(gang(1));
  const std::string body =
      dump_json(to_json(JoinRequest{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"}));
  for (const std::string token : {"", "secre", "secrets", "Secret"}) {
    CAPTURE(token);
    const auto answer = world.post(contract::kPathJoin, body, token);
    REQUIRE(answer->has_value());
    CHECK((*answer)->status == 401);
  }
  CHECK(world.joined.empty());
  CHECK((*world.post(contract::kPathJoin, "garbage", "wrong"))->status == 401);
}

namespace {

/// Believes every token to be of the pod it names.
struct PodTokens final : Authenticator {
  void authenticate(const std::string& token, Done done) override {
    done(Caller{"ns", token, "uid-of-" + token});
  }
};

GangInfo gang_of_pods(int workers, int attempt = 0) {
  GangInfo info = gang(workers, attempt);
  for (int slot = 0; slot < workers; ++slot) {
    const std::string pod = "pod-" + std::to_string(slot);
    info.pod_of_slot[slot] = {pod, "uid-of-" + pod};
  }
  return info;
}

}  // namespace

TEST_CASE("a pod's token is good for its own slot, attempt and job alone") {
  World world{std::make_unique<PodTokens>()};
  const auto join = [&](const std::string& job, int slot, int attempt, const std::string& pod) {
    const JoinRequest request{job, slot, attempt, "127.0.0.1", {1001}, "fp32-chain/1"};
    return world.post(contract::kPathJoin, dump_json(to_json(request)), pod);
  };
  const auto report = [&](const std::string& job, int slot, const std::string& pod) {
    ProgressReport message;
    message.job = job;
    message.slot = slot;
    return world.post(contract::kPathProgress, dump_json(to_json(message)), pod);
  };
  const std::string other = "the token belongs to another worker";
  world.handler.set_gang(gang_of_pods(2));
  GangInfo second = gang_of_pods(1);
  second.job = "ns/second";
  second.pod_of_slot[0] = {"pod-9", "uid-of-pod-9"};
  world.handler.set_gang(second);

  CHECK(message_of(join("ns/job", 1, 0, "pod-0"), 403) == other);
  CHECK(message_of(join("ns/job", 0, 0, "pod-7"), 403) == other);
  CHECK(message_of(join("ns/second", 0, 0, "pod-0"), 403) == other);
  CHECK(message_of(join("ns/job", 5, 0, "pod-0"), 403) == other);
  CHECK(message_of(report("ns/job", 1, "pod-0"), 403) == other);
  CHECK(message_of(report("ns/second", 0, "pod-1"), 403) == other);
  CHECK(world.reports.empty());
  // What exists in other namespaces is not learned either.
  CHECK(message_of(report("tenant-b/job", 0, "pod-0"), 403) == other);
  CHECK(message_of(report("ns/none", 0, "pod-0"), 404) ==
        "no gang of job \"ns/none\" is expected now");
  CHECK((*report("ns/job", 0, "pod-0"))->status == 200);
  CHECK(message_of(join("ns/job", 0, 1, "pod-0"), 409) ==
        "slot 0 is at attempt 0, this worker is attempt 1");
  (void)join("ns/job", 0, 0, "pod-0");
  CHECK(response_of(join("ns/job", 1, 0, "pod-1")).complete);
}

TEST_CASE("a pod of the right name with another uid is not the worker's") {
  World world{std::make_unique<PodTokens>()};
  GangInfo info = gang_of_pods(1);
  info.pod_of_slot[0].uid = "uid-of-the-real-one";
  world.handler.set_gang(info);
  const JoinRequest request{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"};
  CHECK((*world.post(contract::kPathJoin, dump_json(to_json(request)), "pod-0"))->status == 403);
}

TEST_CASE("a pod that the operator has not seen yet is asked to come again, and joins then") {
  World world{std::make_unique<PodTokens>()};
  world.handler.set_gang(gang(1));
  const std::string body =
      dump_json(to_json(JoinRequest{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"}));
  CHECK(message_of(world.post(contract::kPathJoin, body, "pod-0"), 503) ==
        "the worker's pod is not known here yet; post again");
  world.handler.set_gang(gang_of_pods(1));
  CHECK(response_of(world.post(contract::kPathJoin, body, "pod-0")).complete);
}

TEST_CASE("pods that become known and a replaced master key do not part a gathering gang") {
  World world{std::make_unique<PodTokens>()};
  world.handler.set_gang(gang_of_pods(2));
  const auto body = [](int slot) {
    return dump_json(to_json(JoinRequest{"ns/job", slot, 0, "127.0.0.1", {1001}, "fp32-chain/1"}));
  };
  const auto first = world.post(contract::kPathJoin, body(0), "pod-0");
  GangInfo later = gang_of_pods(2);
  later.job_key = std::string(64, 'b');
  world.handler.set_gang(later);
  CHECK_FALSE(first->has_value());
  const JoinResponse second = response_of(world.post(contract::kPathJoin, body(1), "pod-1"));
  CHECK(second.complete);
  CHECK(second.job_key == std::string(64, 'a'));
  CHECK(response_of(first).job_key == second.job_key);
}

TEST_CASE("an answer about a token that comes after stop is a refusal") {
  struct Late final : Authenticator {
    std::vector<Done> waiting;
    void authenticate(const std::string&, Done done) override {
      waiting.push_back(std::move(done));
    }
  };
  auto owned = std::make_unique<Late>();
  Late& late = *owned;
  World world{std::move(owned)};
  world.handler.set_gang(gang(1));
  const auto before = world.join(0);
  const auto after = world.join(0);
  CHECK_FALSE(before->has_value());
  late.waiting[0](Caller{});
  CHECK(response_of(before).complete);
  world.handler.stop();
  late.waiting[1](Caller{});
  CHECK(message_of(after, 503) == "the endpoint is stopping");
}

TEST_CASE("wrong paths, methods and bodies are named") {
  World world;
  world.handler.set_gang(gang(1));
  CHECK((*world.post("/v1/other", "{}"))->status == 404);
  CHECK((*world.post(contract::kPathJoin, "{}", "secret", "GET"))->status == 405);
  CHECK(message_of(world.post(contract::kPathJoin, "garbage"), 400).starts_with("body: not JSON"));
  CHECK(message_of(world.post(contract::kPathJoin, "[]"), 400) == "join: must be an object");
  CHECK(message_of(world.post(contract::kPathJoin, R"({"job":"ns/job","slot":-1})"), 400)
            .starts_with("join.slot: must be from 0 to 4095"));
  CHECK(message_of(world.post(contract::kPathProgress,
                              R"({"job":"ns/job","slot":0,"attempt":0,"loss":"<b>"})"),
                   400) == "progress.loss: must be a decimal number");
}

TEST_CASE("a gang replaced while it gathers sends its workers back, and only the new ones pass") {
  World world;
  world.handler.set_gang(gang(2, 0));
  const auto old = world.join(0, 0);
  world.handler.set_gang(gang(2, 1));
  CHECK_FALSE(response_of(old).complete);
  CHECK(response_of(old).present == 0);
  CHECK(message_of(world.join(0, 0), 409).find("it was replaced") != std::string::npos);
  (void)world.join(0, 1);
  CHECK(response_of(world.join(1, 1)).complete);
  world.run_timers();
}

TEST_CASE("the same gang set again keeps who has joined") {
  World world;
  world.handler.set_gang(gang(2));
  const auto first = world.join(0);
  world.handler.set_gang(gang(2));
  CHECK_FALSE(first->has_value());
  CHECK(response_of(world.join(1)).complete);
  CHECK(response_of(first).complete);
}

TEST_CASE("a removed gang and a stopping endpoint answer those who wait") {
  World world;
  world.handler.set_gang(gang(2));
  const auto removed = world.join(0);
  world.handler.remove_gang("ns/job");
  world.handler.remove_gang("ns/job");
  CHECK(message_of(removed, 404) == "no gang of job \"ns/job\" is expected now");
  world.handler.set_gang(gang(2));
  const auto waiting = world.join(0);
  world.handler.stop();
  CHECK(message_of(waiting, 503) == "the endpoint is stopping");
  CHECK((*world.join(1))->status == 503);
  world.run_timers();
}

TEST_CASE("a worker may post ten times a second, and others do not pay for it") {
  World world;
  world.handler.set_gang(gang(2));
  for (int i = 0; i < kPostsPerSecond; ++i) CHECK((*world.report(0, 0, i))->status == 200);
  const auto over = world.report(0, 0, 10);
  CHECK((*over)->status == 429);
  CHECK((*over)->headers.front().first == "Retry-After");
  CHECK((*world.report(1, 0, 0))->status == 200);
  world.clock.advance(milliseconds(100));
  CHECK((*world.report(0, 0, 11))->status == 200);
  CHECK((*world.report(0, 0, 12))->status == 429);
}

TEST_CASE("progress is handed on when it is of the gang's own attempt") {
  World world;
  world.handler.set_gang(gang(2, 1));
  CHECK((*world.report(1, 1, 42))->status == 200);
  CHECK((*world.report(1, 0, 43))->status == 409);
  REQUIRE(world.reports.size() == 1);
  CHECK(world.reports[0].step == 42);
  CHECK(world.reports[0].slot == 1);
}
