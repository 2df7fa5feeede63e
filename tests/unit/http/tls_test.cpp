// TLS of server and client against each other, and each against a peer that does it wrong.
#include <doctest/doctest.h>
#include <openssl/ssl.h>

#include <atomic>
#include <future>
#include <thread>

#include "common/http/client.h"
#include "common/http/server.h"
#include "tests/raw_socket.h"
#include "tests/tls_material.h"

using namespace muster;
using test::RawSocket;

namespace {

void echo_path(const http::Request& request, const http::Responder& respond) {
  respond({200, "text/plain", request.path + "|" + request.body, {}});
}

struct TlsWorld {
  http::TlsIdentity ca = test::authority();
  std::unique_ptr<http::Server> server;

  explicit TlsWorld(const http::ServerOptions& given = {}, http::Handler handler = echo_path) {
    http::ServerOptions options = given;
    if (!options.tls) options.tls = test::server_of(ca);
    auto started = http::Server::start(options, std::move(handler));
    REQUIRE(started);
    server = std::move(*started);
  }

  http::Call call(const std::string& body = "") const {
    http::Call call;
    call.method = "POST";
    call.url = server->url() + "/x";
    call.body = body;
    call.ca_certificate = ca.certificate;
    call.timeout = seconds(20);
    return call;
  }
};

std::string failure_of(const http::Call& call) {
  http::Client client;
  const auto answer = client.exchange(call);
  if (answer) return "answered " + std::to_string(answer->status);
  CHECK(answer.error().code() == ErrorCode::kUnavailable);
  return answer.error().message();
}

std::string peer_of(const TlsWorld& world) {
  return "TLS with 127.0.0.1:" + std::to_string(world.server->port());
}

/// A handshake of OpenSSL's own client, with the newest version `version_max`; its error or "".
std::string shake_hands(int port, int version_max) {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  // Below level 1 OpenSSL itself would no longer offer what the server must refuse.
  REQUIRE(SSL_CTX_set_cipher_list(context.get(), "ALL:@SECLEVEL=0") == 1);
  REQUIRE(SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION) == 1);
  REQUIRE(SSL_CTX_set_max_proto_version(context.get(), version_max) == 1);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(SSL_new(context.get()), SSL_free);
  SSL_set_fd(ssl.get(), fd);
  std::string outcome;
  if (SSL_connect(ssl.get()) != 1) outcome = "refused";
  if (outcome.empty()) outcome = SSL_get_version(ssl.get());
  close(fd);
  return outcome;
}

}  // namespace

TEST_CASE("an exchange over TLS with the server's CA, by address and by name") {
  const TlsWorld world;
  CHECK(world.server->url().starts_with("https://127.0.0.1:"));
  http::Client client;
  const auto answer = client.exchange(world.call(std::string(16 * 1024, 'b')));
  REQUIRE_MESSAGE(answer, (answer ? "" : answer.error().message()));
  CHECK(answer->status == 200);
  CHECK(answer->body == "/x|" + std::string(16 * 1024, 'b'));
  http::Call named = world.call();
  named.server_name = "localhost";
  CHECK(client.exchange(named));
}

TEST_CASE("the limits of requests hold over TLS, and their answers arrive") {
  const TlsWorld world;
  http::Client client;
  const auto large = client.exchange(world.call(std::string(16 * 1024 + 1, 'b')));
  REQUIRE(large);
  CHECK(large->status == 413);
  http::Call long_header = world.call();
  long_header.headers = {{"x-long", std::string(9'000, 'h')}};
  const auto header = client.exchange(long_header);
  REQUIRE(header);
  CHECK(header->status == 431);
}

TEST_CASE("a certificate for another host, of another CA or out of its time is not trusted") {
  const TlsWorld world;
  http::Call call = world.call();
  call.server_name = "muster-endpoint";
  CHECK(failure_of(call) == peer_of(world) + ": its certificate is not for muster-endpoint");
  call.server_name = "127.0.0.2";
  CHECK(failure_of(call) == peer_of(world) + ": its certificate is not for 127.0.0.2");
  call = world.call();
  call.ca_certificate = test::authority("other-ca").certificate;
  CHECK(failure_of(call) ==
        peer_of(world) +
            ": its certificate is not trusted: unable to get local issuer certificate");

  http::ServerOptions expired;
  const http::TlsIdentity ca = test::authority();
  expired.tls = test::server_of(ca, {"127.0.0.1"}, seconds(-60));
  const TlsWorld late(expired);
  call = late.call();
  call.ca_certificate = ca.certificate;
  CHECK(failure_of(call) ==
        peer_of(late) + ": its certificate is not trusted: certificate has expired");

  http::ServerOptions early;
  early.tls = *runtime::issue_certificate(
      ca, {"server", {"127.0.0.1"}, test::now() + seconds(60), test::now() + test::kHour, false});
  const TlsWorld young(early);
  call = young.call();
  call.ca_certificate = ca.certificate;
  CHECK(failure_of(call) ==
        peer_of(young) + ": its certificate is not trusted: certificate is not yet valid");
}

TEST_CASE("a CA's name in the subject alone, or a wildcard for part of a name, is not enough") {
  const http::TlsIdentity ca = test::authority();
  http::ServerOptions options;
  options.tls = *runtime::issue_certificate(ca, {"localhost",
                                                 {"10.0.0.1", "loc*.example"},
                                                 test::now() - test::kHour,
                                                 test::now() + test::kHour,
                                                 false});
  const TlsWorld world(options);
  http::Call call = world.call();
  call.ca_certificate = ca.certificate;
  for (const char* name : {"localhost", "local.example"}) {
    call.server_name = name;
    CHECK(failure_of(call) == peer_of(world) + ": its certificate is not for " + name);
  }
}

TEST_CASE("without a CA nothing is sent, and a text that is no CA is refused") {
  const TlsWorld world;
  http::Client client;
  http::Call call = world.call();
  call.ca_certificate = "";
  auto answer = client.exchange(call);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kInvalid);
  CHECK(answer.error().message() ==
        call.url + ": https needs the CA's certificate in PEM, at most 256 KiB");
  call.ca_certificate = "garbage";
  answer = client.exchange(call);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kInvalid);
}

TEST_CASE("a client of TLS does not talk to a server of plain HTTP") {
  std::atomic<int> requests = 0;
  auto plain = http::Server::start({}, [&](const http::Request&, const http::Responder& respond) {
    ++requests;
    respond({200, "text/plain", "", {}});
  });
  REQUIRE(plain);
  http::Call call;
  call.url = "https://127.0.0.1:" + std::to_string((*plain)->port());
  call.ca_certificate = test::authority().certificate;
  call.bearer_token = "secret";
  http::Client client;
  const auto answer = client.exchange(call);
  REQUIRE_FALSE(answer);
  CHECK(answer.error().message().starts_with("TLS with 127.0.0.1:"));
  CHECK(requests == 0);
}

TEST_CASE("a redirect is an answer like any other: the token goes nowhere else") {
  std::atomic<int> elsewhere = 0;
  const TlsWorld other({}, [&](const http::Request&, const http::Responder&) { ++elsewhere; });
  const TlsWorld world({}, [&](const http::Request&, const http::Responder& respond) {
    respond({307, "text/plain", "", {{"Location", other.server->url()}}});
  });
  http::Call call = world.call();
  call.bearer_token = "secret";
  http::Client client;
  const auto answer = client.exchange(call);
  REQUIRE(answer);
  CHECK(answer->status == 307);
  CHECK(elsewhere == 0);
}

TEST_CASE("TLS 1.2 and 1.3 are spoken, 1.0 and 1.1 are not") {
  const TlsWorld world;
  CHECK(shake_hands(world.server->port(), TLS1_VERSION) == "refused");
  CHECK(shake_hands(world.server->port(), TLS1_1_VERSION) == "refused");
  CHECK(shake_hands(world.server->port(), TLS1_2_VERSION) == "TLSv1.2");
  CHECK(shake_hands(world.server->port(), TLS1_3_VERSION) == "TLSv1.3");
}

TEST_CASE("plain HTTP to the TLS port is told what is spoken there, and reaches no handler") {
  std::atomic<int> requests = 0;
  const TlsWorld world({}, [&](const http::Request&, const http::Responder&) { ++requests; });
  const RawSocket socket(world.server->port());
  socket.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string answer = socket.read_to_end();
  CHECK(answer.starts_with("HTTP/1.1 400"));
  CHECK(answer.ends_with("this port speaks TLS: use https\n"));
  const RawSocket garbage(world.server->port());
  garbage.send("\x01\x02garbage that is neither\r\n\r\n");
  CHECK(garbage.read_to_end().find("HTTP") == std::string::npos);
  CHECK(requests == 0);
}

TEST_CASE("a handshake that does not end is cut off") {
  http::ServerOptions options;
  options.request_timeout = milliseconds(50);
  const TlsWorld world(options);
  const RawSocket silent(world.server->port());
  CHECK(silent.read_to_end().empty());
  const RawSocket half(world.server->port());
  half.send(std::string("\x16\x03\x01\x02\x00\x01", 6));
  CHECK(half.read_to_end().find("<timeout>") == std::string::npos);
}

TEST_CASE("a flood of connections that never shake hands does not keep a worker out") {
  http::ServerOptions options;
  options.connections_max = 8;
  options.request_timeout = seconds(60);
  const TlsWorld world(options);
  std::vector<std::unique_ptr<RawSocket>> flood;
  for (int i = 0; i < 100; ++i) {
    flood.push_back(std::make_unique<RawSocket>(world.server->port()));
    REQUIRE(flood.back()->ok());
  }
  http::Client client;
  const auto answer = client.exchange(world.call("b"));
  REQUIRE_MESSAGE(answer, (answer ? "" : answer.error().message()));
  CHECK(answer->body == "/x|b");
}

TEST_CASE("a replaced identity shows at the next connection, and a wrong one changes nothing") {
  const TlsWorld world;
  const http::TlsIdentity next = test::authority("next-ca");
  http::Call call = world.call();
  call.ca_certificate = next.certificate;
  http::Client client;
  CHECK_FALSE(client.exchange(call));
  http::TlsIdentity mixed = test::server_of(next);
  mixed.key = world.ca.key;
  CHECK_FALSE(world.server->replace_identity(mixed));
  CHECK_FALSE(world.server->replace_identity({"garbage", "garbage"}));
  CHECK(client.exchange(world.call()));
  REQUIRE(world.server->replace_identity(test::server_of(next)));
  CHECK(client.exchange(call));
  CHECK_FALSE(client.exchange(world.call()));
  call.ca_certificate = world.ca.certificate + next.certificate;
  CHECK(client.exchange(call));
}

TEST_CASE("many exchanges run side by side, over the bound they are refused, and stop drops them") {
  std::mutex mutex;
  std::vector<http::Responder> parked;
  std::promise<void> both_parked;
  const TlsWorld world({}, [&](const http::Request&, http::Responder respond) {
    const std::lock_guard lock(mutex);
    parked.push_back(std::move(respond));
    if (parked.size() == 2) both_parked.set_value();
  });
  http::AsyncClient client(2);
  std::promise<std::string> first, second;
  client.exchange(world.call(), [&](Result<http::Response> answer) {
    first.set_value(answer ? answer->body : answer.error().message());
  });
  client.exchange(world.call(), [&](Result<http::Response> answer) {
    second.set_value(answer ? answer->body : answer.error().message());
  });
  both_parked.get_future().wait();
  std::optional<ErrorCode> third;
  client.exchange(world.call(), [&](Result<http::Response> answer) {
    if (!answer) third = answer.error().code();
  });
  CHECK(third == ErrorCode::kTooManyRequests);
  for (const auto& respond : parked) respond({200, "text/plain", "here", {}});
  CHECK(first.get_future().get() == "here");
  CHECK(second.get_future().get() == "here");
  std::promise<void> arrived_again;
  const TlsWorld silent(
      {}, [&](const http::Request&, const http::Responder&) { arrived_again.set_value(); });
  bool is_called = false;
  client.exchange(silent.call(), [&](const Result<http::Response>&) { is_called = true; });
  arrived_again.get_future().wait();
  client.stop();
  CHECK_FALSE(is_called);
  client.exchange(world.call(), [&](Result<http::Response> answer) {
    if (!answer) third = answer.error().code();
  });
  CHECK(third == ErrorCode::kAborted);
}
