#include "operator/runtime/endpoint_handler.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/json.h"
#include "tests/unit/endpoint/fake_api.h"

using namespace muster;
using namespace muster::runtime;

namespace {

/// An endpoint without sockets whose clock and timers the test moves.
struct HandlerWorld {
  explicit HandlerWorld(std::unique_ptr<Authenticator> given = make_local_authenticator("secret"))
      : authenticator(std::move(given)) {}

  ManualClock clock;
  std::unique_ptr<Authenticator> authenticator;
  std::vector<std::function<void()>> timers;
  std::vector<std::pair<std::string, int>> joined;
  std::vector<ProgressReport> reports;
  bool has_room = true;  ///< for reports
  std::vector<std::pair<WitnessRequest, WitnessAnswer>> questions;
  EndpointHandler handler{
      WorkersEndpointOptions{
          .clock = &clock,
          .authenticator = authenticator.get(),
          .on_progress =
              [this](const ProgressReport& report) {
                if (has_room) reports.push_back(report);
                return has_room;
              },
          .on_join = [this](const std::string& job, int slot) { joined.emplace_back(job, slot); },
          .on_witness =
              [this](const WitnessRequest& request, WitnessAnswer answer) {
                questions.emplace_back(request, std::move(answer));
              }},
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
  info.training = R"({"seed":7})";
  info.job_key = std::string(64, 'a');
  for (int slot = 0; slot < workers; ++slot) info.attempt_of_slot[slot] = attempt;
  return info;
}

JoinResponse response_of(const HandlerWorld::Answer& answer) {
  REQUIRE(answer->has_value());
  REQUIRE((*answer)->status == 200);
  const auto json = parse_json((*answer)->body);
  REQUIRE(json);
  auto response = parse_join_response(*json);
  REQUIRE(response);
  return *response;
}

std::string message_of(const HandlerWorld::Answer& answer, int status) {
  REQUIRE(answer->has_value());
  CHECK((*answer)->status == status);
  const auto json = parse_json((*answer)->body);
  REQUIRE(json);
  return json->value("message", "");
}

}  // namespace

TEST_CASE("the last joiner releases all, and all hear the same") {
  HandlerWorld world;
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
  HandlerWorld world;
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
  HandlerWorld world;
  world.handler.set_gang(gang(2));
  const auto earlier = world.join(0, 0, "127.0.0.1", {1001});
  const auto later = world.join(0, 0, "127.0.0.1", {2001});
  CHECK_FALSE(response_of(earlier).complete);
  const JoinResponse response = response_of(world.join(1));
  CHECK(response.peers[0].ports == std::vector<int>{2001});
  CHECK(response_of(later).complete);
}

TEST_CASE("another address for a slot is taken before the gang is complete and refused after") {
  HandlerWorld world;
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
  HandlerWorld world;
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
  own.training.clear();
  world.handler.set_gang(own);
  CHECK(message_of(world.join(0, 3), 409) ==
        "this job runs its own program; its workers do not join");
}

TEST_CASE("without the token nothing is learned, not even which jobs there are") {
  HandlerWorld world;
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
  void authenticate(const Credential& credential, Done done) override {
    const std::string& token = credential.bearer_token;
    claimed.push_back(credential.known_pod_uid);
    done(Caller{"ns", token, "uid-of-" + token});
  }
  std::vector<std::string> claimed{};  ///< of each token that was asked about
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
  HandlerWorld world{std::make_unique<PodTokens>()};
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
  HandlerWorld world{std::make_unique<PodTokens>()};
  GangInfo info = gang_of_pods(1);
  info.pod_of_slot[0].uid = "uid-of-the-real-one";
  world.handler.set_gang(info);
  const JoinRequest request{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"};
  CHECK((*world.post(contract::kPathJoin, dump_json(to_json(request)), "pod-0"))->status == 403);
}

TEST_CASE("a pod that the operator has not seen yet is asked to come again, and joins then") {
  HandlerWorld world{std::make_unique<PodTokens>()};
  world.handler.set_gang(gang(1));
  const std::string body =
      dump_json(to_json(JoinRequest{"ns/job", 0, 0, "127.0.0.1", {1001}, "fp32-chain/1"}));
  CHECK(message_of(world.post(contract::kPathJoin, body, "pod-0"), 503) ==
        "the worker's pod is not known here yet; post again");
  world.handler.set_gang(gang_of_pods(1));
  CHECK(response_of(world.post(contract::kPathJoin, body, "pod-0")).complete);
}

TEST_CASE("pods that become known and a replaced master key do not part a gathering gang") {
  HandlerWorld world{std::make_unique<PodTokens>()};
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

TEST_CASE("a token is asked about as of the pod that it claims where that is one of a gang's") {
  auto owned = std::make_unique<PodTokens>();
  PodTokens& tokens = *owned;
  HandlerWorld world{std::move(owned)};
  const std::string token = test::token_for_pod("uid-of-pod-1");
  const auto claims = [&] {
    (void)world.post(contract::kPathJoin, "{}", token);
    return tokens.claimed.back();
  };
  CHECK(claims().empty());
  world.handler.set_gang(gang_of_pods(2));
  CHECK(claims() == "uid-of-pod-1");
  (void)world.post(contract::kPathJoin, "{}", "pod-1");  // no token that says whose it is
  CHECK(tokens.claimed.back().empty());
  GangInfo replaced = gang_of_pods(2);
  replaced.pod_of_slot[1] = {"pod-2", "uid-of-pod-2"};
  world.handler.set_gang(replaced);
  CHECK(claims().empty());
  world.handler.set_gang(gang_of_pods(2));
  CHECK_FALSE(claims().empty());
  world.handler.remove_gang("ns/job");
  CHECK(claims().empty());
}

TEST_CASE("an answer about a token that comes after stop is a refusal") {
  struct Late final : Authenticator {
    std::vector<Done> waiting;
    void authenticate(const Credential&, Done done) override { waiting.push_back(std::move(done)); }
  };
  auto owned = std::make_unique<Late>();
  Late& late = *owned;
  HandlerWorld world{std::move(owned)};
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
  HandlerWorld world;
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
  HandlerWorld world;
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
  HandlerWorld world;
  world.handler.set_gang(gang(2));
  const auto first = world.join(0);
  world.handler.set_gang(gang(2));
  CHECK_FALSE(first->has_value());
  CHECK(response_of(world.join(1)).complete);
  CHECK(response_of(first).complete);
}

TEST_CASE("a removed gang and a stopping endpoint answer those who wait") {
  HandlerWorld world;
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
  HandlerWorld world;
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

TEST_CASE("where there is no room for a report its worker is told to come again") {
  HandlerWorld world;
  world.handler.set_gang(gang(2, 1));
  world.has_room = false;
  CHECK((*world.report(1, 1, 42))->status == 503);
  world.has_room = true;
  CHECK((*world.report(1, 1, 43))->status == 200);
  REQUIRE(world.reports.size() == 1);
  CHECK(world.reports[0].step == 43);
}

TEST_CASE("the more workers there are, the more rarely each is asked to report") {
  HandlerWorld world;
  const auto wished = [&] {
    const auto answer = world.report(0, 0, 1);
    REQUIRE((*answer)->status == 200);
    world.clock.advance(seconds(1));
    return parse_progress_response(*parse_json((*answer)->body))->next_after_ms;
  };
  world.handler.set_gang(gang(kReportsPerSecond));
  CHECK(wished() == 0);
  GangInfo other = gang(2 * kReportsPerSecond);
  other.job = "ns/other";
  world.handler.set_gang(other);
  CHECK(wished() == 3000);
  world.handler.set_gang(other);
  CHECK(wished() == 3000);
  world.handler.set_gang(gang(4000));
  other.attempt_of_slot.clear();
  for (int slot = 0; slot < 4000; ++slot) other.attempt_of_slot[slot] = 0;
  world.handler.set_gang(other);
  CHECK(wished() == 15'000);
  world.handler.remove_gang("ns/other");
  CHECK(wished() == 8000);
}

TEST_CASE("workers that wait ask some 200 times a second, of any number, each gang alike") {
  CHECK(join_pause(1, 1) == milliseconds(0));
  CHECK(join_pause(50, 1) == milliseconds(0));
  CHECK(join_pause(51, 1) == milliseconds(5));
  CHECK(join_pause(400, 1) == milliseconds(1'750));
  // Beside one of hundreds a small one asks as if it were alone.
  CHECK(join_pause(4, 2) == milliseconds(0));
  CHECK(join_pause(400, 2) == milliseconds(3'750));
  CHECK(join_pause(16, 10) == milliseconds(550));
  for (const std::size_t waiting : {4'000U, 1'000U}) {
    CHECK(join_pause(waiting, 1) == kJoinPauseMost);
    CHECK(join_pause(waiting, 100'000) == kJoinPauseMost);
  }
  for (std::size_t gangs = 1; gangs <= 20; ++gangs) {
    for (std::size_t waiting = 1; waiting <= 900; ++waiting) {
      CAPTURE(gangs);
      CAPTURE(waiting);
      const milliseconds pause = join_pause(waiting, gangs);
      CHECK(join_pause(waiting + 1, gangs) >= pause);
      if (pause == kJoinPauseMost) break;
      const double a_second = 1000.0 * static_cast<double>(waiting * gangs) /
                              static_cast<double>((kJoinHold + pause).count());
      // To a millisecond, which is the unit of the pause.
      CHECK(a_second <= kJoinsPerSecond * 1.005);
    }
  }
}

namespace {

/// A gang of workers of this build that gathers.
struct Gathering {
  HandlerWorld world;

  HandlerWorld::Answer join(int slot, const std::string& job = "ns/job",
                            bool begins_together = true) {
    JoinRequest request{job,        slot,          0,
                        "10.0.0.1", {1001 + slot}, std::string(contract::kNumericsContract)};
    request.begins_together = begins_together;
    return world.post(contract::kPathJoin, dump_json(to_json(request)));
  }

  /// All of `slots` of the job ask, and are told to come again after so many milliseconds.
  int told_to_wait(int slots, const std::string& job = "ns/job") {
    std::vector<HandlerWorld::Answer> answers;
    for (int slot = 0; slot < slots; ++slot) answers.push_back(join(slot, job));
    world.run_timers();
    const int wanted = response_of(answers.front()).retry_after_ms;
    for (const auto& answer : answers) {
      const JoinResponse response = response_of(answer);
      CHECK_FALSE(response.complete);
      CHECK(response.retry_after_ms == wanted);
    }
    return wanted;
  }
};

}  // namespace

TEST_CASE("the more of a gang wait, the more rarely each asks, and small gangs do not pay for it") {
  Gathering gathering;
  gathering.world.handler.set_gang(gang(401));
  CHECK(gathering.told_to_wait(50) == 0);
  CHECK(gathering.told_to_wait(400) == 1'750);
  GangInfo small = gang(5);
  small.job = "ns/small";
  gathering.world.handler.set_gang(small);
  CHECK(gathering.told_to_wait(4, "ns/small") == 0);
  gathering.world.clock.advance(seconds(1));
  CHECK(gathering.told_to_wait(400) == 3'750);
  gathering.world.clock.advance(seconds(4));
  SUBCASE("who waits no more is not counted: its gang is gone") {
    gathering.world.handler.remove_gang("ns/small");
  }
  SUBCASE("who waits no more is not counted: its gang is whole") {
    for (int slot = 0; slot < 5; ++slot) (void)gathering.join(slot, "ns/small");
  }
  SUBCASE("who waits no more is not counted: its gang starts anew") {
    small.attempt_of_slot = gang(5, 1).attempt_of_slot;
    gathering.world.handler.set_gang(small);
  }
  CHECK(gathering.told_to_wait(400) == 1'750);
}

TEST_CASE("a gang begins when those who were told to wait have heard that it is whole") {
  Gathering gathering;
  gathering.world.handler.set_gang(gang(401));
  REQUIRE(gathering.told_to_wait(400) == 1'750);
  gathering.world.clock.advance(milliseconds(1'000));
  const auto parked = gathering.join(7);
  CHECK_FALSE(parked->has_value());
  const auto last = gathering.join(400);
  const int left = static_cast<int>((milliseconds(750) + kBeginSlack).count());
  CHECK(response_of(last).complete);
  CHECK(response_of(last).begin_after_ms == left);
  CHECK((*parked)->body == (*last)->body);
  gathering.world.clock.advance(milliseconds(750));
  for (int slot = 0; slot < 400; ++slot) {
    const JoinResponse response = response_of(gathering.join(slot));
    CHECK(response.complete);
    CHECK(response.peers.size() == 401);
    CHECK(response.begin_after_ms == kBeginSlack.count());
  }
  gathering.world.clock.advance(kBeginSlack);
  CHECK(response_of(gathering.join(3)).begin_after_ms == 0);
}

TEST_CASE("a gang whose workers have all come back begins at once") {
  Gathering gathering;
  gathering.world.handler.set_gang(gang(401));
  REQUIRE(gathering.told_to_wait(400) == 1'750);
  gathering.world.clock.advance(milliseconds(1'750));
  std::vector<HandlerWorld::Answer> answers;
  for (int slot = 0; slot <= 400; ++slot) answers.push_back(gathering.join(slot));
  for (const auto& answer : answers) {
    CHECK(response_of(answer).complete);
    CHECK(response_of(answer).begin_after_ms == 0);
  }
}

TEST_CASE("where one would begin before the others nobody is told to wait") {
  Gathering gathering;
  gathering.world.handler.set_gang(gang(401));
  const auto older = gathering.join(400, "ns/job", false);
  CHECK(gathering.told_to_wait(399) == 0);
  CHECK(response_of(older).retry_after_ms == 0);
}

TEST_CASE("progress is handed on when it is of the gang's own attempt") {
  HandlerWorld world;
  world.handler.set_gang(gang(2, 1));
  CHECK((*world.report(1, 1, 42))->status == 200);
  CHECK((*world.report(1, 0, 43))->status == 409);
  REQUIRE(world.reports.size() == 1);
  CHECK(world.reports[0].step == 42);
  CHECK(world.reports[0].slot == 1);
}

namespace {

/// Two started together at attempt 4; slot 1 is at attempt 6 now, as after its replacement.
GangInfo replaced_gang() {
  GangInfo info = gang(2, 4);
  info.start_attempt = 4;
  info.epoch = 7;
  info.attempt_of_slot[1] = 6;
  return info;
}

GangInfo started_gang(int workers) {
  GangInfo info = gang(workers, 4);
  info.start_attempt = 4;
  return info;
}

/// The report of a member, with its address.
HandlerWorld::Answer member_report(HandlerWorld& world, int slot, int attempt,
                                   std::vector<int> members) {
  ProgressReport message;
  message.job = "ns/job";
  message.slot = slot;
  message.attempt = attempt;
  message.membership_epoch = 5;
  message.members = std::move(members);
  message.host = "10.0.0." + std::to_string(slot);
  message.ports = {3000 + slot};
  message.sentinel_port = 4000 + slot;
  return world.post(contract::kPathProgress, dump_json(to_json(message)));
}

std::vector<std::pair<int, int>> peers_of(const JoinResponse& response) {
  std::vector<std::pair<int, int>> found;
  for (const auto& peer : response.peers) found.emplace_back(peer.slot, peer.attempt);
  return found;
}

using Peers = std::vector<std::pair<int, int>>;

}  // namespace

TEST_CASE("a joiner is told that it is to know all its data first, and who starts does so anyhow") {
  HandlerWorld world;
  GangInfo gang = started_gang(2);
  gang.checking_slots = {1};
  world.handler.set_gang(gang);
  (void)world.join(0, 4);
  CHECK_FALSE(response_of(world.join(1, 4)).checks_data);
  gang = replaced_gang();
  gang.checking_slots = {1};
  world.handler.set_gang(gang);
  const JoinResponse late = response_of(world.join(1, 6));
  CHECK(late.joining);
  CHECK(late.checks_data);
}

TEST_CASE("sentinel ports, attempts and nodes reach the peers") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(2));
  JoinRequest request{"ns/job", 0, 4, "10.0.0.1", {1001}, "fp32-chain/1", 777, "node-3"};
  (void)world.post(contract::kPathJoin, dump_json(to_json(request)));
  const JoinResponse response = response_of(world.join(1, 4));
  REQUIRE(response.peers.size() == 2);
  CHECK(response.peers[0].sentinel_port == 777);
  CHECK(response.peers[0].attempt == 4);
  CHECK(response.peers[0].domain == "node-3");
  CHECK(response.peers[1].domain.empty());
  CHECK_FALSE(response.joining);
}

TEST_CASE("a replaced worker joins those who train, at once, and they are not sent back") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(2));
  (void)world.join(0, 4, "10.0.0.1", {1001});
  const auto first = world.join(1, 4, "10.0.0.2", {1002});
  REQUIRE(response_of(first).complete);
  world.joined.clear();
  world.handler.set_gang(replaced_gang());
  CHECK(message_of(world.join(1, 4), 409).find("it was replaced") != std::string::npos);
  const JoinResponse late = response_of(world.join(1, 6, "10.0.0.9", {1009}));
  CHECK(late.complete);
  CHECK(late.joining);
  CHECK_FALSE(late.checks_data);
  CHECK(late.epoch == 7);
  CHECK(peers_of(late) == Peers{{0, 4}, {1, 6}});
  CHECK(late.peers[1].host == "10.0.0.9");
  CHECK(world.joined == std::vector<std::pair<std::string, int>>{{"ns/job", 1}});
  // Its trainer was started again: other ports, and nobody minds.
  CHECK(response_of(world.join(1, 6, "10.0.0.9", {2009})).peers[1].ports == std::vector<int>{2009});
  // One that started the gang and lost the answer still gets the first membership.
  CHECK((*world.join(0, 4, "10.0.0.1", {1001}))->body == (*first)->body);
}

TEST_CASE("new slots join, and each hears of those before it") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(1));
  REQUIRE(response_of(world.join(0, 4)).complete);
  GangInfo grown = started_gang(3);
  grown.attempt_of_slot[1] = grown.attempt_of_slot[2] = 5;
  world.handler.set_gang(grown);
  CHECK(peers_of(response_of(world.join(2, 5))) == Peers{{0, 4}, {2, 5}});
  CHECK(peers_of(response_of(world.join(1, 5))) == Peers{{0, 4}, {1, 5}, {2, 5}});
  world.handler.set_gang(started_gang(1));
  CHECK(message_of(world.join(2, 5), 409) ==
        "slot 2 is not in the gang of 1 workers of job \"ns/job\"");
}

TEST_CASE("an endpoint that starts later learns from reports whom a joiner may ask") {
  HandlerWorld world;
  world.handler.set_gang(replaced_gang());
  const auto early = world.join(1, 6, "10.0.0.9", {1009});
  CHECK_FALSE(early->has_value());
  world.run_timers();
  CHECK_FALSE(response_of(early).complete);
  const auto again = world.join(1, 6, "10.0.0.9", {1009});
  // A learner cannot let anybody in, so it tells nothing.
  (void)member_report(world, 0, 4, {1});
  CHECK_FALSE(again->has_value());
  CHECK((*member_report(world, 0, 4, {0}))->status == 200);
  const JoinResponse response = response_of(again);
  CHECK(response.joining);
  CHECK(peers_of(response) == Peers{{0, 4}, {1, 6}});
  CHECK(response.peers[0].ports == std::vector<int>{3000});
  CHECK(response.peers[0].sentinel_port == 4000);
}

TEST_CASE("a member's reports leave what its join has said of its node") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(2));
  const JoinRequest request{"ns/job",   0,        4,
                            "10.0.0.1", {1001},   std::string(contract::kNumericsContract),
                            777,        "node-3", "rack-2"};
  (void)world.post(contract::kPathJoin, dump_json(to_json(request)));
  REQUIRE(response_of(world.join(1, 4)).complete);
  world.handler.set_gang(replaced_gang());
  CHECK((*member_report(world, 0, 4, {0}))->status == 200);
  const JoinResponse response = response_of(world.join(1, 6));
  REQUIRE(response.peers.size() == 2);
  CHECK(response.peers[0].host == "10.0.0.0");
  CHECK(response.peers[0].sentinel_port == 4000);
  CHECK(response.peers[0].domain == "node-3");
  CHECK(response.peers[0].rack == "rack-2");
}

TEST_CASE("those who wait for the files of another let its replacement in where nobody knew them") {
  HandlerWorld world;
  GangInfo waiting = started_gang(3);
  waiting.attempt_of_slot[0] = 6;
  world.handler.set_gang(waiting);
  const auto join = [&] {
    const auto answer = world.join(0, 6, "10.0.0.9", {1009});
    world.run_timers();
    return response_of(answer);
  };
  CHECK_FALSE(join().complete);
  // Without a state neither is a member, but that they tell where they are is enough.
  (void)member_report(world, 1, 4, {});
  CHECK_FALSE(join().complete);
  (void)member_report(world, 2, 4, {});
  const JoinResponse response = join();
  CHECK(response.joining);
  CHECK(peers_of(response) == Peers{{0, 6}, {1, 4}, {2, 4}});
}

TEST_CASE("a start that an earlier endpoint saw is not waited for again") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(3));
  const auto left_out = world.join(2, 4);
  CHECK_FALSE(left_out->has_value());
  (void)member_report(world, 0, 4, {0, 1, 2});
  CHECK(response_of(left_out).joining);
  CHECK(peers_of(response_of(left_out)) == Peers{{0, 4}, {2, 4}});
}

TEST_CASE("workers that gather go on gathering when one of them is replaced or leaves") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(3));
  const auto first = world.join(0, 4);
  const auto second = world.join(1, 4);
  GangInfo without = started_gang(3);
  without.attempt_of_slot[2] = 6;
  world.handler.set_gang(without);
  CHECK(peers_of(response_of(first)) == Peers{{0, 4}, {1, 4}});
  CHECK((*first)->body == (*second)->body);
  CHECK(response_of(world.join(2, 6)).joining);
}

TEST_CASE("a gang that starts anew is another one, though its job is the same") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(2));
  (void)world.join(0, 4);
  REQUIRE(response_of(world.join(1, 4)).complete);
  GangInfo anew = gang(2, 8);
  anew.start_attempt = 8;
  world.handler.set_gang(anew);
  const auto first = world.join(0, 8);
  CHECK_FALSE(first->has_value());
  CHECK_FALSE(response_of(world.join(1, 8)).joining);
  CHECK(response_of(first).complete);
}

TEST_CASE("a resize keeps the key that the members prove to each other") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(1));
  (void)world.join(0, 4);
  GangInfo grown = started_gang(2);
  grown.attempt_of_slot[1] = 5;
  grown.job_key = std::string(64, 'b');
  world.handler.set_gang(grown);
  CHECK(response_of(world.join(1, 5)).job_key == std::string(64, 'a'));
}

TEST_CASE("a key that stands in for the gang's own gives way to it, unless all started with it") {
  const std::string own(64, 'a'), other(64, 'b');
  const auto with_other = [&](GangInfo info) {
    info.job_key = other;
    info.is_key_sure = false;
    return info;
  };
  SUBCASE("who joins is told the right one") {
    HandlerWorld world;
    world.handler.set_gang(with_other(replaced_gang()));
    (void)member_report(world, 0, 4, {0});
    CHECK(response_of(world.join(1, 6)).job_key == other);
    world.handler.set_gang(replaced_gang());
    CHECK(response_of(world.join(1, 6)).job_key == own);
    world.handler.set_gang(with_other(replaced_gang()));
    CHECK(response_of(world.join(1, 6)).job_key == own);
  }
  SUBCASE("whoever joins those that started with it needs theirs") {
    HandlerWorld world;
    world.handler.set_gang(with_other(started_gang(2)));
    (void)world.join(0, 4);
    CHECK(response_of(world.join(1, 4)).job_key == other);
    world.handler.set_gang(replaced_gang());
    CHECK(response_of(world.join(1, 6)).job_key == other);
  }
}

TEST_CASE("reports of a foreign address or of no port are not passed on") {
  HandlerWorld world;
  world.handler.set_gang(replaced_gang());
  CHECK(message_of(world.post(contract::kPathProgress,
                              R"({"job":"ns/job","slot":0,"attempt":4,"host":"a b","ports":[1]})"),
                   400) == "progress.host: must be an address or a DNS name");
  const auto waits = world.join(1, 6);
  (void)world.post(contract::kPathProgress,
                   R"({"job":"ns/job","slot":0,"attempt":4,"host":"a","ports":[1,2],)"
                   R"("membershipEpoch":5,"members":[0]})");
  CHECK_FALSE(waits->has_value());
}

TEST_CASE("the witness is asked by the gang's own workers and answers when it has decided") {
  HandlerWorld world;
  world.handler.set_gang(started_gang(2));
  const auto ask = [&](int slot, int attempt) {
    return world.post(contract::kPathWitness,
                      dump_json(to_json(WitnessRequest{"ns/job", slot, attempt, 5, 6, {slot}})));
  };
  CHECK(message_of(ask(0, 3), 409).find("it was replaced") != std::string::npos);
  CHECK(message_of(ask(7, 4), 409).find("is not in the gang") != std::string::npos);
  CHECK(message_of(world.post(contract::kPathWitness, "{}"), 400) == "witness.job: is required");
  CHECK(world.questions.empty());
  const auto granted = ask(0, 4);
  const auto away = ask(1, 4);
  REQUIRE(world.questions.size() == 2);
  CHECK(world.questions[0].first.next_epoch == 6);
  CHECK_FALSE(granted->has_value());
  world.questions[0].second(WitnessResponse{true, 6, {0}});
  world.questions[1].second(Error(ErrorCode::kUnavailable, "not now"));
  REQUIRE((*granted)->status == 200);
  CHECK(parse_witness_response(*parse_json((*granted)->body))->granted);
  CHECK(message_of(away, 503) == "not now");
  for (int i = 0; i < kPostsPerSecond - 1; ++i) (void)ask(0, 4);
  CHECK((*ask(0, 4))->status == 429);
}
