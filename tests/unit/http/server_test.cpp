#include "common/http/server.h"

#include <doctest/doctest.h>

#include <future>
#include <mutex>
#include <vector>

#include "common/contract.h"
#include "tests/raw_socket.h"

using namespace muster;
using test::RawSocket;

namespace {

void echo(const http::Request& request, const http::Responder& respond) {
  respond({200, "text/plain", request.path + "|" + request.body, {}});
}

std::unique_ptr<http::Server> serve(http::Handler handler, http::ServerOptions options = {}) {
  auto server = http::Server::start(std::move(options), std::move(handler));
  REQUIRE(server);
  return std::move(*server);
}

std::string post(std::size_t body_bytes) {
  return "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body_bytes) +
         "\r\nConnection: close\r\n\r\n" + std::string(body_bytes, 'b');
}

}  // namespace

TEST_CASE("one connection carries several requests, also sent ahead") {
  const auto server = serve(echo);
  const RawSocket socket(server->port());
  REQUIRE(socket.ok());
  socket.send("GET /one HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(socket.read_until("/one|").starts_with("HTTP/1.1 200"));
  socket.send(
      "GET /two?q HTTP/1.1\r\nHost: a\r\n\r\n"
      "GET /three HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string rest = socket.read_to_end();
  CHECK(rest.find("/two|") != std::string::npos);
  CHECK(rest.find("/three|") != std::string::npos);
}

TEST_CASE("header and body are bounded, and the answer arrives before the connection closes") {
  const auto server = serve(echo);
  {
    const RawSocket socket(server->port());
    socket.send(post(16 * 1024));
    CHECK(socket.read_to_end().starts_with("HTTP/1.1 200"));
  }
  {
    const RawSocket socket(server->port());
    socket.send(post(16 * 1024 + 1));
    CHECK(socket.read_to_end().starts_with("HTTP/1.1 413"));
  }
  {
    const RawSocket socket(server->port());
    socket.send("GET / HTTP/1.1\r\nX-Long: " + std::string(9'000, 'h') + "\r\n\r\n");
    CHECK(socket.read_to_end().starts_with("HTTP/1.1 431"));
  }
  {
    const RawSocket socket(server->port());
    socket.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5000\r\n" +
                std::string(0x5000, 'c') + "\r\n0\r\n\r\n");
    CHECK(socket.read_to_end().starts_with("HTTP/1.1 413"));
  }
}

TEST_CASE("the bounds of a server that is told none are those that docs/security.md promises") {
  const http::ServerOptions options;
  CHECK(options.address == "127.0.0.1");
  CHECK(options.header_bytes_max == 8 * 1024);
  CHECK(options.body_bytes_max == 16 * 1024);
  CHECK(options.connections_max == 256);
  CHECK(options.request_timeout == seconds(5));
  CHECK(options.idle_timeout == seconds(30));
}

TEST_CASE("garbage is answered with 400 and the next client is served") {
  const auto server = serve(echo);
  for (const std::string& garbage :
       {std::string("garbage\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\xff\xff\r\n\r\n", 12),
        std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n")}) {
    const RawSocket socket(server->port());
    socket.send(garbage);
    CHECK(socket.read_to_end().starts_with("HTTP/1.1 400"));
  }
  const RawSocket socket(server->port());
  socket.send(post(3));
  CHECK(socket.read_to_end().find("/x|bbb") != std::string::npos);
}

TEST_CASE("a client that does not finish its request is cut off") {
  http::ServerOptions options;
  options.request_timeout = milliseconds(50);
  const auto server = serve(echo, options);
  const RawSocket silent(server->port());
  CHECK(silent.read_to_end().empty());
  const RawSocket half(server->port());
  half.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  CHECK(half.read_to_end().empty());
}

TEST_CASE("over the limit of connections an idle one gives way, and busy ones do not") {
  std::mutex mutex;
  std::vector<http::Responder> parked;
  std::promise<void> both_parked;
  http::ServerOptions options;
  options.connections_max = 2;
  const auto server = serve(
      [&](const http::Request& request, http::Responder respond) {
        if (request.path != "/park") return echo(request, respond);
        const std::lock_guard lock(mutex);
        parked.push_back(std::move(respond));
        if (parked.size() == 2) both_parked.set_value();
      },
      options);
  const RawSocket first(server->port());
  first.send("GET /a HTTP/1.1\r\n\r\n");
  CHECK(first.read_until("/a|").starts_with("HTTP/1.1 200"));
  const RawSocket second(server->port());
  second.send("GET /park HTTP/1.1\r\nConnection: close\r\n\r\n");
  const RawSocket third(server->port());
  third.send("GET /park HTTP/1.1\r\nConnection: close\r\n\r\n");
  both_parked.get_future().wait();
  CHECK(first.read_to_end().empty());  // it was idle and gave its place
  const RawSocket fourth(server->port());
  CHECK(fourth.read_to_end().empty());  // two busy ones: no place
  for (const auto& respond : parked) respond({200, "text/plain", "late", {}});
  CHECK(second.read_to_end().find("late") != std::string::npos);
  CHECK(third.read_to_end().find("late") != std::string::npos);
}

TEST_CASE(
    "who sends half a request keeps nobody out: over the limit the oldest of them gives way") {
  std::promise<http::Responder> parked;
  http::ServerOptions options;
  options.connections_max = 3;
  const auto server = serve(
      [&](const http::Request& request, http::Responder respond) {
        if (request.path != "/park") return echo(request, respond);
        parked.set_value(std::move(respond));
      },
      options);
  const RawSocket first(server->port()), second(server->port());
  first.send("G");
  second.send("POST /a HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  const RawSocket busy(server->port());
  busy.send("GET /park HTTP/1.1\r\nConnection: close\r\n\r\n");
  const http::Responder respond = parked.get_future().get();
  const RawSocket fourth(server->port());
  fourth.send("GET /b HTTP/1.1\r\n\r\n");
  CHECK(fourth.read_until("/b|").starts_with("HTTP/1.1 200"));
  CHECK(first.read_to_end().empty());
  second.send("defghij");  // it has not lost its place
  CHECK(second.read_until("/a|abcdefghij").starts_with("HTTP/1.1 200"));
  respond({200, "text/plain", "late", {}});
  CHECK(busy.read_to_end().find("late") != std::string::npos);
}

TEST_CASE("who has been answered and does not go keeps nobody out") {
  http::ServerOptions options;
  options.connections_max = 2;
  const auto server = serve(echo, options);
  const RawSocket first(server->port()), second(server->port());
  for (const RawSocket* stays : {&first, &second}) {
    stays->send("GET /a HTTP/1.1\r\nConnection: close\r\n\r\n");
    CHECK(stays->read_until("/a|").starts_with("HTTP/1.1 200"));
  }
  const RawSocket third(server->port());
  third.send("GET /b HTTP/1.1\r\n\r\n");
  CHECK(third.read_until("/b|").starts_with("HTTP/1.1 200"));
}

TEST_CASE("a request is answered once, whatever the handler does") {
  const auto server = serve([](const http::Request& request, const http::Responder& respond) {
    if (request.path == "/throw") throw std::runtime_error("no");
    respond({200, "text/plain", "first", {}});
    respond({500, "text/plain", "second", {}});
  });
  const RawSocket twice(server->port());
  twice.send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string answer = twice.read_to_end();
  CHECK(answer.find("first") != std::string::npos);
  CHECK(answer.find("second") == std::string::npos);
  const RawSocket thrown(server->port());
  thrown.send("GET /throw HTTP/1.1\r\nConnection: close\r\n\r\n");
  CHECK(thrown.read_to_end().starts_with("HTTP/1.1 500"));
}

TEST_CASE("stop closes connections and drops parked requests and timers") {
  std::promise<void> arrived;
  http::Responder kept;
  bool timer_ran = false;
  auto server = serve([&](const http::Request&, http::Responder respond) {
    kept = std::move(respond);
    arrived.set_value();
  });
  const RawSocket parked(server->port());
  parked.send("GET / HTTP/1.1\r\n\r\n");
  arrived.get_future().wait();
  server->run_after(seconds(3600), [&] { timer_ran = true; });
  server->stop();
  CHECK(parked.read_to_end().empty());
  CHECK_FALSE(timer_ran);
  kept({200, "text/plain", "too late", {}});
  server.reset();
  kept({200, "text/plain", "far too late", {}});
}

TEST_CASE("a task runs after its delay") {
  const auto server = serve(echo);
  std::promise<void> ran;
  server->run_after(milliseconds(1), [&] { ran.set_value(); });
  CHECK(ran.get_future().wait_for(seconds(20)) == std::future_status::ready);
}

TEST_CASE("a port in use is an error that names it and carries the exit code") {
  const auto server = serve(echo);
  http::ServerOptions options;
  options.port = server->port();
  const auto second = http::Server::start(options, echo);
  REQUIRE_FALSE(second);
  CHECK(second.error().exit_code() == contract::exit_code::kPort);
  CHECK(second.error().message() ==
        "listen on 127.0.0.1:" + std::to_string(server->port()) + ": Address already in use");
  options.address = "localhost";
  const auto named = http::Server::start(options, echo);
  CHECK_FALSE(named);
}
