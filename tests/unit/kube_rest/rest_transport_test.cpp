#include "operator/kube/rest_transport.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "tests/unit/kube_rest/scripted_server.h"

using namespace muster;
using kube::HttpRequest;
using test::ScriptedAnswer;
using test::ScriptedServer;

namespace {

const SystemClock kClock;

std::string answer(const std::string& status, const std::string& headers, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::string chunk(const std::string& text) {
  char size[32];
  std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return size + text + "\r\n";
}

const std::string kChunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

std::unique_ptr<kube::HttpTransport> connect(const std::string& url,
                                             const std::string& token_file = {},
                                             std::size_t line_bytes_max = 4096) {
  kube::RestTransportOptions options;
  options.url = url;
  options.token_file = token_file;
  options.body_bytes_max = 100'000;
  options.line_bytes_max = line_bytes_max;
  options.clock = &kClock;
  auto made = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(made, made.error().message());
  return std::move(*made);
}

struct Directory {
  std::string path;
  Directory() {
    char name[] = "/tmp/muster-rest-XXXXXX";
    path = mkdtemp(name);
  }
  ~Directory() { std::system(("rm -rf " + path).c_str()); }
};

}  // namespace

TEST_CASE("any status code is a value, with its body and Retry-After") {
  ScriptedServer server([](const std::string& request) {
    CHECK(request.find("POST /api/v1/pods?limit=5 HTTP/1.1") == 0);
    CHECK(request.find("\r\n\r\n{\"a\":1}") != std::string::npos);
    return ScriptedAnswer{{answer("429 Too Many Requests", "Retry-After: 7\r\n", "slow down")}};
  });
  const auto response = connect(server.url())
                            ->send(HttpRequest{"POST", "/api/v1/pods?limit=5", "application/json",
                                               "{\"a\":1}", seconds(5)});
  REQUIRE_MESSAGE(response, response.error().message());
  CHECK(response->code == 429);
  CHECK(response->body == "slow down");
  CHECK(response->retry_after == seconds(7));
}

TEST_CASE("a redirect is a value and the token never leaves for the other host") {
  ScriptedServer other(
      [](const std::string&) { return ScriptedAnswer{{answer("200 OK", "", "x")}}; });
  ScriptedServer server([&](const std::string&) {
    return ScriptedAnswer{{answer("302 Found", "Location: " + other.url() + "/\r\n", "")}};
  });
  Directory directory;
  std::ofstream(directory.path + "/token") << "secret\n";
  const auto response = connect(server.url(), directory.path + "/token")->send(HttpRequest{});
  REQUIRE(response);
  CHECK(response->code == 302);
  CHECK(other.requests().empty());
  REQUIRE(server.requests().size() == 1);
  CHECK(server.requests()[0].find("Authorization:Bearer secret\r\n") != std::string::npos);
}

TEST_CASE("after a 401 the token file is read again") {
  Directory directory;
  const std::string file = directory.path + "/token";
  std::ofstream(file) << "old";
  ScriptedServer server([](const std::string& request) {
    return request.find("Bearer new") != std::string::npos
               ? ScriptedAnswer{{answer("200 OK", "", "{}")}}
               : ScriptedAnswer{{answer("401 Unauthorized", "", "")}};
  });
  const auto transport = connect(server.url(), file);
  CHECK(transport->send(HttpRequest{})->code == 401);
  std::ofstream(file) << "new";
  CHECK(transport->send(HttpRequest{})->code == 200);
}

TEST_CASE("silence, a cut answer, an endless one and one that is no HTTP are errors in time") {
  const auto send = [](ScriptedAnswer scripted) {
    ScriptedServer server([&](const std::string&) { return scripted; });
    HttpRequest request;
    request.timeout = milliseconds(400);
    const auto response = connect(server.url())->send(request);
    return response ? "code " + std::to_string(response->code)
                    : std::string(to_string(response.error().code()));
  };
  CHECK(send({{}, true}) == "DeadlineExceeded");
  CHECK(send({{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}, true}) == "DeadlineExceeded");
  CHECK(send({{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}, false}) == "Unavailable");
  CHECK(send({{"garbage\r\n\r\n"}, false}) == "Unavailable");
  CHECK(send({{answer("200 OK", "", std::string(200'000, 'x'))}, true}) == "TooLarge");
}

TEST_CASE("nobody listening is Unavailable") {
  int port = 0;
  {
    ScriptedServer gone([](const std::string&) { return ScriptedAnswer{}; });
    port = gone.port();
  }
  const auto response = connect("http://127.0.0.1:" + std::to_string(port))->send(HttpRequest{});
  REQUIRE_FALSE(response);
  CHECK(response.error().code() == ErrorCode::kUnavailable);
}

TEST_CASE("lines of a watch arrive one by one, wherever the chunks are cut") {
  ScriptedServer server([](const std::string&) {
    return ScriptedAnswer{{kChunkedHead, chunk("{\"a\":"), chunk("1}\n{\"b\":2}\r\n"),
                           chunk("{\"c\":3}\n"), "0\r\n\r\n"}};
  });
  auto opened = connect(server.url())->open_stream(HttpRequest{});
  REQUIRE(opened);
  REQUIRE(opened->stream != nullptr);
  auto& stream = *opened->stream;
  CHECK(**stream.next_line(seconds(5)) == "{\"a\":1}");
  CHECK(**stream.next_line(seconds(5)) == "{\"b\":2}");
  CHECK(**stream.next_line(seconds(5)) == "{\"c\":3}");
  CHECK(*stream.next_line(seconds(5)) == std::nullopt);
}

TEST_CASE("a watch that falls silent, is cut, or has an endless line ends with its reason") {
  const auto next = [](ScriptedAnswer scripted) {
    ScriptedServer server([&](const std::string&) { return scripted; });
    auto opened = connect(server.url())->open_stream(HttpRequest{});
    REQUIRE(opened);
    REQUIRE(opened->stream != nullptr);
    const auto line = opened->stream->next_line(milliseconds(400));
    return line ? "a line" : std::string(to_string(line.error().code()));
  };
  CHECK(next({{kChunkedHead, chunk("{\"a\"")}, true}) == "DeadlineExceeded");
  CHECK(next({{kChunkedHead, chunk("{\"a\"")}, false}) == "Unavailable");
  CHECK(next({{kChunkedHead, chunk(std::string(50'000, 'x'))}, true}) == "TooLarge");
}

TEST_CASE("close() from another thread ends a read") {
  ScriptedServer server([](const std::string&) { return ScriptedAnswer{{kChunkedHead}, true}; });
  auto opened = connect(server.url())->open_stream(HttpRequest{});
  REQUIRE(opened);
  std::thread closer([&] { opened->stream->close(); });
  const auto line = opened->stream->next_line(seconds(30));
  closer.join();
  REQUIRE_FALSE(line);
  CHECK(line.error().code() == ErrorCode::kAborted);
}

TEST_CASE("TLS is taken from the given CA alone") {
  Directory right, wrong;
  ScriptedServer server(
      [](const std::string&) { return ScriptedAnswer{{answer("200 OK", "", "{}")}}; }, right.path);
  ScriptedServer stranger([](const std::string&) { return ScriptedAnswer{}; }, wrong.path);
  const auto code = [&](const std::string& ca) {
    kube::RestTransportOptions options;
    options.url = server.url();
    options.ca.file = ca;
    options.clock = &kClock;
    auto transport = kube::make_rest_transport(options);
    REQUIRE_MESSAGE(transport, transport.error().message());
    const auto response = (*transport)->send(HttpRequest{});
    return response ? response->code : 0;
  };
  CHECK(code(right.path + "/ca.pem") == 200);
  CHECK(code(wrong.path + "/ca.pem") == 0);
}

TEST_CASE("options that cannot be right are refused with their name") {
  const auto refusal = [](const std::string& url, const std::string& ca) {
    kube::RestTransportOptions options;
    options.url = url;
    options.ca.file = ca;
    options.clock = &kClock;
    const auto made = kube::make_rest_transport(options);
    return made ? std::string("accepted") : made.error().message();
  };
  CHECK(refusal("http://10.0.0.1:6443", "") ==
        "API server URL http://10.0.0.1:6443: must be https://HOST:PORT");
  CHECK(refusal("https://10.0.0.1:6443", "/nonexistent") ==
        "/nonexistent: No such file or directory");
  CHECK(refusal("https://10.0.0.1:6443", "/etc/hostname") == "/etc/hostname: holds no PEM block");
}
