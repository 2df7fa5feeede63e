#include "worker/sentinel/postman.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <future>

#include "common/contract.h"
#include "common/http/server.h"
#include "tests/tls_material.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

/// An endpoint that answers as the test says, and a token file beside it.
struct PostWorld {
  SystemClock clock;
  std::string token_file = "/tmp/muster-token-XXXXXX";
  std::unique_ptr<http::Server> server;

  explicit PostWorld(http::Handler handler, std::optional<http::TlsIdentity> tls = std::nullopt) {
    const int fd = mkstemp(token_file.data());
    REQUIRE(fd >= 0);
    close(fd);
    std::ofstream(token_file) << "secret";
    http::ServerOptions options;
    options.tls = std::move(tls);
    auto started = http::Server::start(options, std::move(handler));
    REQUIRE(started);
    server = std::move(*started);
  }
  ~PostWorld() {
    server->stop();
    unlink(token_file.c_str());
  }

  PostmanOptions options() const {
    PostmanOptions options;
    options.endpoint = server->url();
    options.token_file = token_file;
    options.request = {"ns/job", 0, 0, "", {1001}, "fp32-chain/1"};
    options.clock = &clock;
    options.backoff_first = milliseconds(1);
    options.backoff_most = milliseconds(2);
    return options;
  }
};

Result<Postman::Joined> wait_for_join(Postman& postman) {
  pollfd ended{postman.event_fd(), POLLIN, 0};
  REQUIRE(poll(&ended, 1, 30'000) == 1);
  auto joined = postman.take_joined();
  REQUIRE(joined);
  return *joined;
}

/// Time passes by being looked at, so that a deadline comes without waiting.
class HastyClock final : public Clock {
 public:
  MonoTime mono_now() const override { return MonoTime(milliseconds(100 * ++looks_)); }
  WallTime wall_now() const override { return WallTime(); }

 private:
  mutable std::atomic<int> looks_ = 0;
};

http::Response complete() {
  JoinResponse response;
  response.complete = true;
  http::Response answer;
  answer.body = dump_json(to_json(response));
  return answer;
}

}  // namespace

TEST_CASE("a worker that is not yet known, too fast or early tries on, with its own address") {
  std::atomic<int> posts = 0;
  std::string host;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    static constexpr int kStatus[] = {404, 429, 503, 500};
    const int post = posts++;
    if (post < 4) return respond({kStatus[post], "application/json", "{}", {}});
    if (post == 4)
      return respond({200, "application/json", dump_json(to_json(JoinResponse{})), {}});
    host = parse_join_request(*parse_json(request.body))->host;
    respond(complete());
  });
  Postman postman(world.options());
  const auto joined = wait_for_join(postman);
  REQUIRE(joined);
  CHECK(joined->response.complete);
  CHECK(posts == 6);
  CHECK(host == "127.0.0.1");
  CHECK(joined->request.host == "127.0.0.1");
}

TEST_CASE("a worker of a whole gang begins when it is told to, and says that it does") {
  std::promise<bool> says;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    JoinResponse response;
    response.complete = true;
    response.begin_after_ms = 60'000;
    http::Response answer;
    answer.body = dump_json(to_json(response));
    says.set_value(parse_join_request(*parse_json(request.body))->begins_together);
    respond(std::move(answer));
  });
  Postman postman(world.options());
  CHECK(says.get_future().get());
  pollfd ended{postman.event_fd(), POLLIN, 0};
  // One that begins at once does so within this time.
  CHECK(poll(&ended, 1, 100) == 0);
  postman.finish(seconds(30));
  const auto joined = postman.take_joined();
  REQUIRE(joined);
  REQUIRE_FALSE(*joined);
  CHECK(joined->error().code() == ErrorCode::kAborted);
}

TEST_CASE("a worker joins over TLS, with the token as it is in its file at each post") {
  const http::TlsIdentity ca = test::authority();
  std::vector<std::string> tokens;
  std::string token_file;
  PostWorld world(
      [&](const http::Request& request, const http::Responder& respond) {
        tokens.emplace_back(request.bearer_token());
        if (tokens.size() > 1) return respond(complete());
        // The kubelet renews it; until then it is not accepted.
        std::ofstream(token_file) << "renewed\n";
        respond({401, "application/json", R"({"reason":"Unauthorized"})", {}});
      },
      test::server_of(ca));
  token_file = world.token_file;
  PostmanOptions options = world.options();
  options.ca_certificate = ca.certificate;
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  CHECK(tokens == std::vector<std::string>{"secret", "renewed"});
}

namespace {

/// Tells 29 times, counted in `posts`, that one of four is missing; and what it says `then`.
http::Handler missing_one(std::atomic<int>& posts, http::Response then) {
  return [&posts, then = std::move(then)](const http::Request&, const http::Responder& respond) {
    JoinResponse waiting;
    waiting.present = 3;
    waiting.expected = 4;
    if (++posts >= 30) return respond(then);
    respond({200, "application/json", dump_json(to_json(waiting)), {}});
  };
}

}  // namespace

TEST_CASE("a gang whose last pod takes long is waited for as long as the endpoint tells of it") {
  std::atomic<int> posts = 0;
  PostWorld world(missing_one(posts, complete()));
  PostmanOptions options = world.options();
  const HastyClock clock;
  options.clock = &clock;
  options.join_deadline = seconds(1);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  CHECK(posts == 30);
}

TEST_CASE("an endpoint that goes away while the gang gathers is given up after the last word") {
  std::atomic<int> posts = 0;
  PostWorld world(missing_one(posts, {503, "application/json", R"({"message":"not now"})", {}}));
  PostmanOptions options = world.options();
  const HastyClock clock;
  options.clock = &clock;
  options.join_deadline = seconds(1);
  Postman postman(options);
  const auto joined = wait_for_join(postman);
  REQUIRE_FALSE(joined);
  CHECK(joined.error().exit_code() == contract::exit_code::kPeerLost);
  CHECK(joined.error().message() ==
        "the workers' endpoint has told nothing of the gang for 1 s: not now");
  CHECK(posts > 30);
}

TEST_CASE("an endpoint that is not of the CA never sees the token, and the worker says why") {
  std::atomic<int> posts = 0;
  PostWorld world([&](const http::Request&, const http::Responder&) { ++posts; },
                  test::server_of(test::authority()));
  PostmanOptions options = world.options();
  options.ca_certificate = test::authority("other-ca").certificate;
  const HastyClock clock;
  options.clock = &clock;
  options.join_deadline = seconds(1);
  Postman postman(options);
  const auto joined = wait_for_join(postman);
  REQUIRE_FALSE(joined);
  CHECK(joined.error().message().starts_with(
      "the workers' endpoint has told nothing of the gang for 1 s: TLS with 127.0.0.1:"));
  CHECK(joined.error().message().ends_with(
      "its certificate is not trusted: unable to get local issuer certificate"));
  CHECK(posts == 0);
}

TEST_CASE("a refusal is final, and another numerics contract has its own exit code") {
  for (const auto& [reason, code] :
       {std::pair("ContractRefused", contract::exit_code::kCpuOrContract),
        std::pair("SlotRefused", contract::exit_code::kInternal)}) {
    std::atomic<int> posts = 0;
    PostWorld world([&posts, why = reason](const http::Request&, const http::Responder& respond) {
      ++posts;
      respond(
          {409, "application/json", dump_json(Json{{"reason", why}, {"message", "because"}}), {}});
    });
    Postman postman(world.options());
    const auto joined = wait_for_join(postman);
    REQUIRE_FALSE(joined);
    CHECK(joined.error().exit_code() == code);
    CHECK(joined.error().message() == "the endpoint refused this worker: because");
    CHECK(posts == 1);
  }
}

TEST_CASE("an answer that is no answer ends the join, and hostile text does not break it") {
  PostWorld world([](const http::Request&, const http::Responder& respond) {
    respond({200, "application/json", R"({"complete":"yes"})", {}});
  });
  Postman postman(world.options());
  const auto joined = wait_for_join(postman);
  REQUIRE_FALSE(joined);
  CHECK(joined.error().message() ==
        "the endpoint's answer to join: join response.complete: must be true or false");
}

TEST_CASE("a refusal whose reason is not even text is still a refusal") {
  PostWorld world([](const http::Request&, const http::Responder& respond) {
    respond({409, "application/json", R"({"reason":7,"message":[]})", {}});
  });
  Postman postman(world.options());
  const auto joined = wait_for_join(postman);
  REQUIRE_FALSE(joined);
  CHECK(joined.error().message() == "the endpoint refused this worker: status 409");
}

TEST_CASE("of many reports the last always arrives") {
  std::atomic<int> reports = 0;
  std::atomic<std::int64_t> last_step = -1;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    ++reports;
    last_step = parse_progress_report(*parse_json(request.body))->step;
    respond({200, "application/json", "{}", {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = seconds(3600);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  ProgressReport report;
  for (report.step = 1; report.step <= 100; ++report.step) postman.set_report(report);
  postman.finish(seconds(30));
  CHECK(last_step == 100);
  CHECK(reports <= 2);
}

namespace {

bool wait_for_told(const Postman& postman, std::uint64_t number) {
  for (int i = 0; i < 30'000 && postman.told() < number; ++i) (void)poll(nullptr, 0, 1);
  return postman.told() >= number;
}

/// Each answer of the witness is a turn in which a report that is due would go.
void take_turns(Postman& postman) {
  for (int i = 0; i < 20; ++i) {
    postman.ask_witness({});
    pollfd said{postman.event_fd(), POLLIN, 0};
    REQUIRE(poll(&said, 1, 30'000) == 1);
    (void)postman.take_witness_answer();
  }
}

}  // namespace

TEST_CASE("a report that was not taken comes again, with all it says, until it is taken") {
  std::atomic<int> posts = 0;
  std::atomic<std::int64_t> last_step = -1;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    static constexpr int kStatus[] = {503, 429, 404, 200};
    if (request.path == contract::kPathJoin) return respond(complete());
    last_step = parse_progress_report(*parse_json(request.body))->step;
    respond({kStatus[std::min(posts++, 3)], "application/json", "{}", {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = milliseconds(1);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  ProgressReport report;
  report.step = 7;
  postman.set_report(report, 5);
  CHECK(wait_for_told(postman, 5));
  postman.finish(seconds(30));
  CHECK(posts == 4);
  CHECK(last_step == 7);
}

TEST_CASE("that a membership trains is told at once, unless the endpoint asks for fewer reports") {
  for (const int asked : {0, 60'000}) {
    CAPTURE(asked);
    std::atomic<int> reports = 0;
    PostWorld world([&](const http::Request& request, const http::Responder& respond) {
      if (request.path == contract::kPathJoin) return respond(complete());
      if (request.path == contract::kPathWitness) {
        return respond({200, "application/json", dump_json(to_json(WitnessResponse{})), {}});
      }
      ++reports;
      respond({200, "application/json", dump_json(to_json(ProgressResponse{asked})), {}});
    });
    PostmanOptions options = world.options();
    options.report_interval = seconds(3'600);
    Postman postman(options);
    REQUIRE(wait_for_join(postman));
    ProgressReport report;
    postman.set_report(report, 1);
    REQUIRE(wait_for_told(postman, 1));
    report.membership_epoch = 2;
    postman.set_report(report, 2);
    if (asked == 0) {
      REQUIRE(wait_for_told(postman, 2));
      // It is known now, so another one has time.
      report.membership_epoch = 3;
      postman.set_report(report, 3);
    }
    take_turns(postman);
    CHECK(reports == (asked == 0 ? 2 : 1));
    postman.finish(seconds(30));
    CHECK(postman.told() == (asked == 0 ? 3 : 2));
  }
}

TEST_CASE("a newer report is sent in place of one that was not taken") {
  std::promise<http::Responder> answer;
  std::vector<std::int64_t> steps;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    steps.push_back(parse_progress_report(*parse_json(request.body))->step);
    if (steps.size() == 1) return answer.set_value(respond);
    respond({200, "application/json", "{}", {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = milliseconds(1);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  ProgressReport report;
  report.step = 1;
  postman.set_report(report, 1);
  const http::Responder refuse = answer.get_future().get();
  report.step = 2;
  postman.set_report(report, 2);
  refuse({503, "application/json", "{}", {}});
  CHECK(wait_for_told(postman, 2));
  postman.finish(seconds(30));
  CHECK(steps == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("the last of several reports need not wait for another to come") {
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    respond({200, "application/json", dump_json(to_json(ProgressResponse{200})), {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = milliseconds(0);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  postman.set_report({}, 1);
  REQUIRE(wait_for_told(postman, 1));
  // It comes in the pause that the endpoint has asked for.
  postman.set_report({}, 2);
  CHECK(wait_for_told(postman, 2));
}

TEST_CASE("who ends tries once more what was not taken, and no more often") {
  std::atomic<int> posts = 0;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    ++posts;
    respond({503, "application/json", "{}", {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = seconds(3'600);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  postman.set_report({}, 1);
  for (int i = 0; i < 30'000 && posts < 1; ++i) (void)poll(nullptr, 0, 1);
  postman.finish(seconds(30));
  CHECK(posts == 2);
  CHECK(postman.told() == 0);
}

TEST_CASE("who has many workers hears of each as rarely as it asks for, but a question at once") {
  std::atomic<int> reports = 0;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    if (request.path == contract::kPathWitness) {
      return respond({200, "application/json", dump_json(to_json(WitnessResponse{})), {}});
    }
    ++reports;
    respond({200, "application/json", dump_json(to_json(ProgressResponse{60'000})), {}});
  });
  PostmanOptions options = world.options();
  options.report_interval = milliseconds(0);
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  postman.set_report({}, 1);
  while (postman.told() < 1) std::this_thread::yield();
  postman.set_report({}, 2);
  take_turns(postman);
  CHECK(reports == 1);
  postman.finish(seconds(30));
  CHECK(postman.told() == 2);
}

TEST_CASE("an endpoint that hangs does not hold the end up") {
  std::promise<void> arrived;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    arrived.set_value();
  });
  Postman postman(world.options());
  REQUIRE(wait_for_join(postman));
  postman.set_report({});
  arrived.get_future().wait();
  postman.finish(milliseconds(1));
}

TEST_CASE("the endpoint is looked up where its address does not answer, and never by who ends") {
  std::vector<std::string> hosts;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    for (const auto& [name, value] : request.headers) {
      if (name == "host") hosts.push_back(value);
    }
    if (request.path == contract::kPathJoin) return respond(complete());
    // The next report is due in an hour.
    respond({200, "application/json", dump_json(to_json(ProgressResponse{3'600'000})), {}});
  });
  PostmanOptions options = world.options();
  const std::string port = options.endpoint.substr(options.endpoint.rfind(':'));
  const std::string host = "endpoint.invalid" + port;
  options.endpoint = "http://" + host;
  std::atomic<int> looked_up = 0;
  options.look_up = [&](const std::string& name) -> Result<std::vector<std::string>> {
    CHECK(name == "endpoint.invalid");
    // Nobody listens at the first two.
    if (++looked_up == 1) return std::vector<std::string>{"127.255.255.254"};
    return std::vector<std::string>{"127.255.255.253", "127.0.0.1"};
  };
  Postman postman(options);
  const auto joined = wait_for_join(postman);
  REQUIRE(joined);
  CHECK(joined->request.host == "127.0.0.1");
  postman.set_report({}, 1);
  while (postman.told() < 1) std::this_thread::yield();
  CHECK(looked_up == 2);
  CHECK(hosts == std::vector<std::string>{host, host});
  world.server->stop();
  // The question goes first, and gets no answer; the report is due at the end alone.
  postman.ask_witness({});
  postman.set_report({}, 2);
  postman.finish(seconds(30));
  CHECK(postman.told() == 1);
  CHECK(looked_up == 2);
}

TEST_CASE("who ends tries where it was answered before, though the last post got no answer") {
  std::atomic<bool> is_silent = false;
  std::vector<http::Responder> unanswered;
  PostWorld world([&](const http::Request& request, const http::Responder& respond) {
    if (request.path == contract::kPathJoin) return respond(complete());
    if (is_silent.exchange(false)) return unanswered.push_back(respond);
    // The next report is due in an hour.
    respond({200, "application/json", dump_json(to_json(ProgressResponse{3'600'000})), {}});
  });
  PostmanOptions options = world.options();
  options.look_up = [](const std::string&) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{"127.0.0.1"};
  };
  Postman postman(options);
  REQUIRE(wait_for_join(postman));
  postman.set_report({}, 1);
  while (postman.told() < 1) std::this_thread::yield();
  is_silent = true;
  postman.ask_witness({});
  while (is_silent) std::this_thread::yield();
  postman.set_report({}, 2);
  postman.finish(seconds(30));
  CHECK(postman.told() == 2);
}
