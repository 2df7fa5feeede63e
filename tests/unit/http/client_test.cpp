#include "common/http/client.h"

#include <doctest/doctest.h>

#include <future>
#include <thread>

#include "common/http/server.h"

using namespace muster;

namespace {

std::unique_ptr<http::Server> serve_plainly(http::Handler handler) {
  auto server = http::Server::start({}, std::move(handler));
  REQUIRE(server);
  return std::move(*server);
}

}  // namespace

TEST_CASE("a call carries method, path, query, body and token, and brings status and body back") {
  const auto server =
      serve_plainly([](const http::Request& request, const http::Responder& respond) {
        respond({418,
                 "text/plain",
                 request.method + " " + request.path + " " + request.query + " " + request.body +
                     " " + std::string(request.bearer_token()) + " " +
                     std::string(request.header("content-type")),
                 {{"X-Answer", "yes"}}});
      });
  http::Client client;
  const auto answer = client.exchange(
      {.method = "POST", .url = server->url() + "/a/b?c=d", .body = "{}", .bearer_token = "token"});
  REQUIRE(answer);
  CHECK(answer->status == 418);
  CHECK(answer->content_type == "text/plain");
  CHECK(answer->body == "POST /a/b c=d {} token application/json");
  CHECK(std::find(answer->headers.begin(), answer->headers.end(),
                  std::pair<std::string, std::string>("x-answer", "yes")) != answer->headers.end());
}

TEST_CASE("nobody listening is unavailable, and the sentence names whom") {
  int port = 0;
  {
    const auto server = serve_plainly([](const http::Request&, const http::Responder&) {});
    port = server->port();
  }
  http::Client client;
  const auto answer = client.exchange({.url = "http://127.0.0.1:" + std::to_string(port)});
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kUnavailable);
  CHECK(answer.error().message() ==
        "connect to 127.0.0.1:" + std::to_string(port) + ": Connection refused");
}

TEST_CASE("a server that never answers costs the timeout and no more") {
  const auto server = serve_plainly([](const http::Request&, const http::Responder&) {});
  http::Client client;
  const auto answer = client.exchange({.url = server->url(), .timeout = milliseconds(50)});
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kDeadlineExceeded);
}

TEST_CASE("an answer over the bound is refused") {
  const auto server = serve_plainly([](const http::Request&, const http::Responder& respond) {
    respond({200, "text/plain", std::string(1001, 'x'), {}});
  });
  http::Client client;
  const auto over = client.exchange({.url = server->url(), .body_bytes_max = 1000});
  REQUIRE_FALSE(over);
  CHECK(over.error().code() == ErrorCode::kTooLarge);
  const auto within = client.exchange({.url = server->url(), .body_bytes_max = 1001});
  CHECK(within);
}

TEST_CASE("abort ends the exchange under way and all later ones") {
  std::promise<void> arrived;
  const auto server = serve_plainly(
      [&arrived](const http::Request&, const http::Responder&) { arrived.set_value(); });
  http::Client client;
  std::thread stopper([&] {
    arrived.get_future().wait();
    client.abort();
  });
  const auto answer = client.exchange({.url = server->url(), .timeout = seconds(60)});
  stopper.join();
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kAborted);
  const auto later = client.exchange({.url = server->url()});
  REQUIRE_FALSE(later);
  CHECK(later.error().code() == ErrorCode::kAborted);
}

TEST_CASE("a token that would break the header is refused, not sent") {
  http::Client client;
  const auto answer =
      client.exchange({.url = "http://127.0.0.1:1", .bearer_token = "a\r\nX-Evil: b"});
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kInvalid);
}
