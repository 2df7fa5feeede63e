#include "operator/runtime/endpoint_handler.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/json.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// An endpoint without sockets whose clock and timers the test moves.
struct World {
  ManualClock clock;
  std::unique_ptr<Authenticator> authenticator = make_local_authenticator("secret");
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

TEST_CASE("a token of another job is forbidden") {
  struct Fixed final : Authenticator {
    Result<Caller> authenticate(const std::string&) override { return Caller{"uid-2", "pod"}; }
  };
  World world;
  world.authenticator = std::make_unique<Fixed>();
  EndpointHandler handler({.clock = &world.clock,
                           .authenticator = world.authenticator.get(),
                           .on_progress = {},
                           .on_join = {}},
                          [](milliseconds, const std::function<void()>&) {});
  handler.set_gang(gang(1));
  http::Request request;
  request.method = "POST";
  request.path = contract::kPathJoin;
  request.body =
      dump_json(to_json(JoinRequest{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"}));
  int status = 0;
  handler.handle(request, [&](const http::Response& response) { status = response.status; });
  CHECK(status == 403);
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
