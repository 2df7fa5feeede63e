#include "operator/kube/rest_transport.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <netdb.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string_view>

#include "tests/unit/kube_rest/scripted_server.h"

using namespace muster;
using kube::HttpRequest;
using test::ScriptedAnswer;
using test::ScriptedServer;
using test::ScriptedTls;

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
                                             const Clock& clock = kClock,
                                             std::size_t line_bytes_max = 4096,
                                             const std::string& token = {}) {
  kube::RestTransportOptions options;
  options.url = url;
  options.token = token;
  options.token_file = token_file;
  options.body_bytes_max = 100'000;
  options.line_bytes_max = line_bytes_max;
  options.clock = &clock;
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

/// Moves on only when somebody has looked at it since: who waits by it sees every step.
class SteppedClock final : public Clock {
 public:
  MonoTime mono_now() const override {
    const std::lock_guard lock(mutex_);
    looked_at_ = true;
    changed_.notify_all();
    return now_;
  }
  WallTime wall_now() const override { return WallTime(seconds(1'700'000'000)); }
  /// False: nobody looks any more.
  bool step(nanoseconds by) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, seconds(20), [this] { return looked_at_ || stopped_; })) {
      return false;
    }
    looked_at_ = false;
    now_ += by;
    return !stopped_;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable bool looked_at_ = false;
  bool stopped_ = false;
  MonoTime now_{seconds(1)};
};

/// The code of the answer, or what kept it away.
std::string code_of(const Result<kube::HttpResponse>& response) {
  return response ? std::to_string(response->code)
                  : std::string(to_string(response.error().code()));
}

std::string asked_with_ca(const ScriptedServer& server, const std::string& ca) {
  kube::RestTransportOptions options;
  options.url = server.url();
  options.ca.file = ca;
  options.clock = &kClock;
  auto transport = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(transport, transport.error().message());
  return code_of((*transport)->send(HttpRequest{}));
}

ScriptedAnswer empty_object(const std::string&) { return {{answer("200 OK", "", "{}")}}; }

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
  Directory directory;
  std::ofstream(directory.path + "/token") << "secret\n";
  for (const int code : {301, 302, 303, 307, 308}) {
    CAPTURE(code);
    ScriptedServer server([&](const std::string&) {
      return ScriptedAnswer{
          {answer(std::to_string(code) + " Elsewhere", "Location: " + other.url() + "/\r\n", "")}};
    });
    const auto transport = connect(server.url(), directory.path + "/token");
    const auto response = transport->send(HttpRequest{});
    REQUIRE(response);
    CHECK(response->code == code);
    const auto watch = transport->open_stream(HttpRequest{});
    REQUIRE(watch);
    CHECK(watch->head.code == code);
    CHECK(watch->stream == nullptr);
    const auto requests = server.requests();
    REQUIRE(requests.size() == 2);
    for (const auto& request : requests) {
      CHECK(request.find("Authorization:Bearer secret\r\n") != std::string::npos);
    }
  }
  CHECK(other.requests().empty());
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

namespace {

/// Of an answer that never comes, and of one that comes however slow the machine is.
constexpr milliseconds kSilence{400}, kAmple{20'000};

}  // namespace

TEST_CASE("silence, a cut answer, an endless one and one that is no HTTP are errors in time") {
  const auto send = [](ScriptedAnswer scripted, milliseconds timeout = kAmple) {
    ScriptedServer server([&](const std::string&) { return scripted; });
    HttpRequest request;
    request.timeout = timeout;
    const auto response = connect(server.url())->send(request);
    return response ? "code " + std::to_string(response->code)
                    : std::string(to_string(response.error().code()));
  };
  CHECK(send({{}, true}, kSilence) == "DeadlineExceeded");
  CHECK(send({{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}, true}, kSilence) ==
        "DeadlineExceeded");
  CHECK(send({{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"}, false}) == "Unavailable");
  CHECK(send({{"garbage\r\n\r\n"}, false}) == "Unavailable");
  CHECK(send({{answer("200 OK", "", std::string(200'000, 'x'))}, true}) == "TooLarge");
}

TEST_CASE("an answer that comes in drops takes no longer than its call may") {
  // The library itself waits for as long as anything comes now and then.
  const auto asked = [](const std::string& head, const std::string& drop) {
    SteppedClock clock;
    ScriptedServer server([&](const std::string&) {
      ScriptedAnswer slow{{head}};
      slow.more = [&, drops = 0]() mutable -> std::string {
        return clock.step(kSilence / 4) && ++drops < 1000 ? drop : std::string();
      };
      return slow;
    });
    kube::RestTransportOptions options;
    options.url = server.url();
    options.body_bytes_max = std::size_t{100} << 20;
    options.clock = &clock;
    auto transport = kube::make_rest_transport(options);
    REQUIRE_MESSAGE(transport, transport.error().message());
    HttpRequest request;
    request.timeout = kSilence;
    const MonoTime sent = clock.mono_now();
    const auto response = (*transport)->send(request);
    clock.stop();
    CHECK(clock.mono_now() - sent >= kSilence);
    return code_of(response);
  };
  // Each as long as one read of a body whose length is not told.
  REQUIRE(asked(kChunkedHead, chunk(std::string(64 * 1024, 'x'))) == "DeadlineExceeded");
  CHECK(asked("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", "x") == "DeadlineExceeded");
}

namespace {

/// What became of a call, or of a watch until its first line.
std::string called(kube::HttpTransport& transport) {
  HttpRequest request;
  request.timeout = kAmple;
  return code_of(transport.send(request));
}
std::string watched(kube::HttpTransport& transport) {
  HttpRequest request;
  request.timeout = kAmple;
  const auto opened = transport.open_stream(request);
  if (!opened) return std::string(to_string(opened.error().code()));
  REQUIRE(opened->stream != nullptr);
  const auto line = opened->stream->next_line(kAmple);
  return line ? "a line" : std::string(to_string(line.error().code()));
}

std::unique_ptr<kube::HttpTransport> connect_tls(const ScriptedServer& server,
                                                 const Directory& directory) {
  kube::RestTransportOptions options;
  options.url = server.url();
  options.ca.file = directory.path + "/ca.pem";
  options.body_bytes_max = options.line_bytes_max = 100'000;
  options.clock = &kClock;
  auto made = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(made, made.error().message());
  return std::move(*made);
}

}  // namespace

TEST_CASE("a chunk whose size is a lie is an error of its exchange") {
  for (const char* size : {"-1", "-2", "-5", "-7fffffff", "7fffffff", "80000000", "five"}) {
    CAPTURE(size);
    ScriptedServer server([&](const std::string&) {
      return ScriptedAnswer{{kChunkedHead, std::string(size) + "\r\n", "{\"a\":1}\n"}};
    });
    const auto transport = connect(server.url());
    CHECK(called(*transport) == "Unavailable");
    CHECK(watched(*transport) == "Unavailable");
  }
}

TEST_CASE("of a header, a chunk and a chunk's size that do not end little is read") {
  constexpr int kPieces = 1024;  // of 64 KiB, of which two sockets hold a sixth at most
  const std::string piece(64 * 1024, '1');
  for (const std::string& begin : {std::string("HTTP/1.1 200 OK\r\nX-Long: "), kChunkedHead,
                                   kChunkedHead + "-5\r\n", kChunkedHead + "7fffffff\r\n"}) {
    CAPTURE(begin);
    for (const auto& asked : {&called, &watched}) {
      Directory directory;
      std::atomic<int> sent{0};
      ScriptedServer server(
          [&](const std::string&) {
            ScriptedAnswer endless{{begin}, true};
            endless.more = [&] { return ++sent < kPieces ? piece : std::string(); };
            return endless;
          },
          {directory.path});
      CHECK(asked(*connect_tls(server, directory)) == "Unavailable");
      CHECK(sent < kPieces / 2);
    }
  }
}

TEST_CASE("over a connection more may come in all than may lie there untaken") {
  // The bound of these options is 1.2 MiB.
  Directory directory;
  const std::string piece = chunk(std::string(64 * 1024 - 1, 'x') + "\n");
  ScriptedServer server(
      [&](const std::string& request) {
        if (request.find("GET /watch") != 0) {
          return ScriptedAnswer{{answer("200 OK", "", std::string(90'000, 'x'))}, true};
        }
        ScriptedAnswer long_one{{kChunkedHead}, true};
        long_one.more = [&piece, left = 100]() mutable {
          return left-- > 0 ? piece : std::string();
        };
        return long_one;
      },
      {directory.path});
  const auto transport = connect_tls(server, directory);
  for (int i = 0; i < 40; ++i) REQUIRE(called(*transport) == "200");
  HttpRequest request;
  request.path = "/watch";
  const auto opened = transport->open_stream(request);
  REQUIRE(opened);
  REQUIRE(opened->stream != nullptr);
  for (int i = 0; i < 100; ++i) {
    const auto line = opened->stream->next_line(kAmple);
    REQUIRE_MESSAGE(line, line.error().message());
    REQUIRE((*line)->size() == 64 * 1024 - 1);
  }
}

namespace {

/// Closed after so many looks.
class CountingFence final : public kube::WriteFence {
 public:
  explicit CountingFence(int open_for) : open_for_(open_for) {}
  std::optional<MonoTime> open_until() const override {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
    return ++looks_ <= open_for_ ? std::optional(MonoTime::max()) : std::nullopt;
  }
  /// Whether so many came.
  bool wait_looks(int count) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kAmple, [&] { return looks_ >= count; });
  }

 private:
  const int open_for_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int looks_ = 0;
};

Result<kube::HttpResponse> write_behind(const kube::WriteFence& fence,
                                        const ScriptedServer& server) {
  HttpRequest request{"POST", "/api/v1/pods", "application/json", "{}", 3 * kAmple};
  request.fence = &fence;
  return connect(server.url())->send(request);
}

}  // namespace

TEST_CASE("a write that waits asks its fence again and again, and ends when it has closed") {
  const CountingFence renewed(1'000), closing(2);
  ScriptedServer late([&](const std::string&) {
    return ScriptedAnswer{{answer(renewed.wait_looks(3) ? "201 Created" : "500 Error", "", "{}")}};
  });
  CHECK(code_of(write_behind(renewed, late)) == "201");
  ScriptedServer silent([](const std::string&) { return ScriptedAnswer{{}, true}; });
  CHECK(code_of(write_behind(closing, silent)) == "DeadlineExceeded");
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

TEST_CASE("a name that nobody knows is Unavailable, and asked for anew by the next exchange") {
  Directory directory;
  test::make_certificate({directory.path});
  kube::RestTransportOptions options;
  // No name has a part of more than 63 characters: no server of names is asked, and none waited
  // for.
  options.url = "https://" + std::string(64, 'n') + ".invalid:6443";
  options.ca.file = directory.path + "/ca.pem";
  options.clock = &kClock;
  const auto transport = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(transport, transport.error().message());
  for (int i = 0; i < 2; ++i) {
    CHECK(called(**transport) == "Unavailable");
    CHECK(watched(**transport) == "Unavailable");
  }
}

namespace {

/// The second is where servers of these tests are, and at the first nobody is.
constexpr std::string_view kNameOfTwo = "two.addresses.test";

}  // namespace

/// Of all of this program, libraries too: knows that name, and asks the C library for others.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto next =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (name == nullptr || name != kNameOfTwo) return next(name, service, hints, found);
  if (const int wrong = next("127.0.0.2", service, hints, found); wrong != 0) return wrong;
  addrinfo** end = found;
  while (*end != nullptr) end = &(*end)->ai_next;
  return next("127.0.0.1", service, hints, end);
}

TEST_CASE("where nobody is at the first address of a name, the second counts") {
  Directory directory;
  const std::string name(kNameOfTwo);
  ScriptedServer server(
      [](const std::string&) { return ScriptedAnswer{{answer("200 OK", "", "{}\n")}}; },
      {.directory = directory.path, .names = "DNS:" + name});
  kube::RestTransportOptions options;
  options.url = "https://" + name + ":" + std::to_string(server.port());
  options.ca.file = directory.path + "/ca.pem";
  options.clock = &kClock;
  const auto transport = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(transport, transport.error().message());
  CHECK(called(**transport) == "200");
  CHECK(watched(**transport) == "a line");
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

TEST_CASE("of many lines that come together each is whole, short or as long as one may be") {
  constexpr std::size_t kMost = 4096;
  std::vector<std::string> lines;
  std::string sent;
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::size_t bytes = i % 97 == 0 ? kMost : i % 7 == 0 ? 0 : i * 31 % 900;
    lines.emplace_back(bytes, static_cast<char>('a' + i % 26));
    sent += lines.back() + "\n";
  }
  ScriptedServer server([&](const std::string&) {
    ScriptedAnswer script{{kChunkedHead}};
    for (std::size_t at = 0; at < sent.size(); at += 50'000) {
      script.pieces.push_back(chunk(sent.substr(at, 50'000)));
    }
    script.pieces.push_back(chunk("x\n" + std::string(kMost + 1, 'y') + "\nz\n"));
    return script;
  });
  const auto opened = connect(server.url(), {}, kClock, kMost)->open_stream(HttpRequest{});
  REQUIRE(opened);
  const auto next = [&] { return opened->stream->next_line(seconds(20)); };
  for (const std::string& line : lines) {
    const auto read = next();
    REQUIRE(read);
    REQUIRE(*read == line);
  }
  CHECK(**next() == "x");
  CHECK(next().error().code() == ErrorCode::kTooLarge);
}

TEST_CASE("a watch that falls silent, is cut, or has an endless line ends with its reason") {
  const auto next = [](ScriptedAnswer scripted, milliseconds timeout = kAmple) {
    ScriptedServer server([&](const std::string&) { return scripted; });
    auto opened = connect(server.url())->open_stream(HttpRequest{});
    REQUIRE(opened);
    REQUIRE(opened->stream != nullptr);
    const auto line = opened->stream->next_line(timeout);
    return line ? "a line" : std::string(to_string(line.error().code()));
  };
  CHECK(next({{kChunkedHead, chunk("{\"a\"")}, true}, kSilence) == "DeadlineExceeded");
  CHECK(next({{kChunkedHead, chunk("{\"a\"")}, false}) == "Unavailable");
  CHECK(next({{kChunkedHead, chunk(std::string(50'000, 'x'))}, true}) == "TooLarge");
  // Also where it comes whole.
  CHECK(next({{kChunkedHead, chunk(std::string(50'000, 'x') + "\n")}, true}) == "TooLarge");
  CHECK(next({{kChunkedHead, chunk(std::string(4096, 'x') + "\n")}, true}) == "a line");
}

TEST_CASE("a server that sends faster than its lines are read has to wait") {
  constexpr int kChunks = 1000;  // of 64 KiB: far more than what two sockets hold
  std::atomic<int> sent{0};
  std::promise<void> all_sent;
  const std::string piece = chunk(std::string(64 * 1024 - 1, 'x') + "\n");
  ScriptedServer server([&](const std::string&) {
    ScriptedAnswer fast{{kChunkedHead}, true};
    fast.more = [&]() -> std::string {
      if (sent == kChunks) return "";
      if (++sent == kChunks) all_sent.set_value();
      return piece;
    };
    return fast;
  });
  auto opened = connect(server.url(), "", kClock, 128 * 1024)->open_stream(HttpRequest{});
  REQUIRE(opened);
  REQUIRE(opened->stream != nullptr);
  auto done = all_sent.get_future();
  CHECK(done.wait_for(milliseconds(300)) == std::future_status::timeout);
  for (int i = 0; i < kChunks; ++i) {
    const auto line = opened->stream->next_line(seconds(20));
    REQUIRE_MESSAGE(line, line.error().message());
    CHECK((*line)->size() == 64 * 1024 - 1);
  }
}

TEST_CASE("a stream that is closed while its server waits ends at once") {
  const std::string piece = chunk(std::string(64 * 1024, 'x'));
  ScriptedServer server([&](const std::string&) {
    ScriptedAnswer endless{{kChunkedHead}, true};
    endless.more = [&] { return piece; };
    return endless;
  });
  auto opened = connect(server.url())->open_stream(HttpRequest{});
  REQUIRE(opened);
  CHECK(opened->stream->next_line(seconds(20)).error().code() == ErrorCode::kTooLarge);
  opened->stream.reset();  // the server's end, which joins the conversation, must come
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

TEST_CASE("a line that comes byte by byte is waited for 30 seconds and no longer") {
  SteppedClock clock;
  ScriptedServer server([&](const std::string&) {
    ScriptedAnswer slow{{kChunkedHead}};
    slow.more = [&, bytes = 0]() mutable {
      return clock.step(seconds(1)) && ++bytes < 1000 ? chunk("x") : std::string();
    };
    return slow;
  });
  HttpRequest request;
  request.timeout = seconds(5000);
  auto opened = connect(server.url(), "", clock)->open_stream(request);
  REQUIRE(opened);
  REQUIRE(opened->stream != nullptr);
  const auto line = opened->stream->next_line(seconds(90));
  clock.stop();
  REQUIRE_FALSE(line);
  CHECK(line.error().code() == ErrorCode::kUnavailable);
  CHECK(line.error().message() == "a line was not whole 30 s after it began");
  CHECK(opened->stream->next_line(seconds(90)).error().code() == ErrorCode::kAborted);
}

TEST_CASE("a part of a line outlasts a wait that ends without its rest") {
  std::promise<void> ask_again;
  auto asked_again = ask_again.get_future().share();
  ScriptedServer server([&](const std::string&) {
    ScriptedAnswer late{{kChunkedHead, chunk("{\"a\":")}, true};
    late.more = [&, told = false]() mutable -> std::string {
      if (std::exchange(told, true)) return "";
      asked_again.wait_for(seconds(20));
      return chunk("1}\n");
    };
    return late;
  });
  auto opened = connect(server.url())->open_stream(HttpRequest{});
  REQUIRE(opened);
  REQUIRE(opened->stream != nullptr);
  const auto nothing = opened->stream->next_line(milliseconds(20));
  ask_again.set_value();
  REQUIRE_FALSE(nothing);
  CHECK(nothing.error().code() == ErrorCode::kDeadlineExceeded);
  const auto line = opened->stream->next_line(seconds(20));
  REQUIRE_MESSAGE(line, line.error().message());
  CHECK(**line == "{\"a\":1}");
}

TEST_CASE("the token file is read once a minute, and an empty or missing one changes nothing") {
  Directory directory;
  const std::string file = directory.path + "/token";
  ManualClock clock;
  ScriptedServer server(&empty_object);
  const auto transport = connect(server.url(), file, clock);
  const auto token_after = [&](seconds wait) {
    clock.advance(wait);
    REQUIRE(transport->send(HttpRequest{}));
    const std::string request = server.requests().back();
    const auto at = request.find("Bearer ");
    return at == std::string::npos ? "none"
                                   : request.substr(at + 7, request.find('\r', at) - at - 7);
  };
  std::ofstream(file) << "one\n";
  CHECK(token_after(seconds(0)) == "one");
  std::ofstream(file) << "two\n";
  CHECK(token_after(seconds(60)) == "one");
  CHECK(token_after(seconds(1)) == "two");
  std::ofstream(file, std::ios::trunc).close();
  CHECK(token_after(seconds(61)) == "two");
  std::ofstream(file) << "\n";
  CHECK(token_after(seconds(61)) == "two");
  REQUIRE(unlink(file.c_str()) == 0);
  CHECK(token_after(seconds(61)) == "two");
  // Looked for with every exchange meanwhile.
  std::ofstream(file) << "three";
  CHECK(token_after(seconds(0)) == "three");
}

TEST_CASE("of a token and a token file the file's counts, as soon as it has one") {
  Directory directory;
  const std::string file = directory.path + "/token";
  ManualClock clock;
  ScriptedServer server(&empty_object);
  const auto asked = [&](kube::HttpTransport& transport, const std::string& token) {
    REQUIRE(transport.send(HttpRequest{}));
    return server.requests().back().find("Bearer " + token + "\r\n") != std::string::npos;
  };
  const auto transport = connect(server.url(), file, clock, 4096, "fixed");
  CHECK(asked(*transport, "fixed"));
  std::ofstream(file) << "one";
  CHECK(asked(*transport, "one"));
  std::ofstream(file) << "two";
  clock.advance(seconds(61));
  CHECK(asked(*transport, "two"));
  CHECK(asked(*connect(server.url(), "", clock, 4096, "fixed"), "fixed"));
}

TEST_CASE("TLS is taken from the given CA alone") {
  Directory right, wrong;
  ScriptedServer server(&empty_object, {right.path});
  ScriptedServer stranger(&empty_object, {wrong.path});
  CHECK(asked_with_ca(server, right.path + "/ca.pem") == "200");
  CHECK(asked_with_ca(server, wrong.path + "/ca.pem") == "Unavailable");
}

TEST_CASE("of a server that is not believed it is said which CA it would have to be by") {
  Directory right, wrong;
  ScriptedServer server(&empty_object, {right.path});
  test::make_certificate({wrong.path});
  kube::RestTransportOptions options;
  options.url = server.url();
  options.ca.file = wrong.path + "/ca.pem";
  options.clock = &kClock;
  const auto said = [&] {
    const auto transport = kube::make_rest_transport(options);
    REQUIRE_MESSAGE(transport, transport.error().message());
    const auto response = (*transport)->send(HttpRequest{});
    REQUIRE_FALSE(response);
    return response.error().message();
  };
  CHECK(said().ends_with("by " + options.ca.file));
  std::ifstream file(options.ca.file);
  options.ca.text.assign(std::istreambuf_iterator<char>(file), {});
  options.ca.file.clear();
  CHECK(said().ends_with("by the API server's CA"));
  CHECK(server.requests().empty());
}

TEST_CASE("a server is believed only under its name, in its time, and with TLS 1.2 or later") {
  const auto asked = [](ScriptedTls tls) {
    Directory directory;
    tls.directory = directory.path;
    ScriptedServer server(&empty_object, tls);
    return asked_with_ca(server, directory.path + "/ca.pem");
  };
  CHECK(asked({.names = "DNS:localhost,IP:127.0.0.1"}) == "200");
  CHECK(asked({.names = "IP:127.0.0.2"}) == "Unavailable");
  CHECK(asked({.names = "DNS:127.0.0.1.example.com"}) == "Unavailable");
  CHECK(asked({.begins = -7200, .ends = -3600}) == "Unavailable");
  CHECK(asked({.begins = 3600, .ends = 7200}) == "Unavailable");
  CHECK(asked({.version_most = TLS1_3_VERSION}) == "200");
  CHECK(asked({.version_most = TLS1_2_VERSION}) == "200");
  CHECK(asked({.version_most = TLS1_1_VERSION}) == "Unavailable");
  CHECK(asked({.version_most = TLS1_VERSION}) == "Unavailable");
}

TEST_CASE("a server that asks for another handshake gets none, and has no more of the connection") {
  Directory directory;
  ScriptedServer server(
      &empty_object,
      {.directory = directory.path, .version_most = TLS1_2_VERSION, .asks_again = true});
  CHECK(asked_with_ca(server, directory.path + "/ca.pem") == "Unavailable");
  CHECK(server.requests().size() == 1);
}

TEST_CASE("a server of IPv6 is reached, and believed under its address alone") {
  if (!test::has_ipv6()) {
    MESSAGE("skipped: no address ::1");
    return;
  }
  Directory directory;
  for (const auto& [name, code] :
       {std::pair("IP:::1", "200"), std::pair("IP:::2", "Unavailable")}) {
    CAPTURE(name);
    const ScriptedTls tls{.directory = directory.path, .names = name, .is_ipv6 = true};
    ScriptedServer server(&empty_object, tls);
    CHECK(server.url() == "https://[::1]:" + std::to_string(server.port()));
    CHECK(asked_with_ca(server, directory.path + "/ca.pem") == code);
  }
}

TEST_CASE("a CA file that is replaced counts from the next connection on") {
  Directory served, used;
  ScriptedServer server(&empty_object, {served.path});
  test::make_certificate({used.path});
  kube::RestTransportOptions options;
  options.url = server.url();
  options.ca.file = used.path + "/ca.pem";
  options.clock = &kClock;
  const auto transport = kube::make_rest_transport(options);
  REQUIRE_MESSAGE(transport, transport.error().message());
  CHECK(code_of((*transport)->send(HttpRequest{})) == "Unavailable");
  std::ofstream(options.ca.file) << std::ifstream(served.path + "/ca.pem").rdbuf();
  CHECK(code_of((*transport)->send(HttpRequest{})) == "200");
  // Half a file is no CA, and nobody is trusted without one. (Answered connections are closed.)
  std::ofstream(options.ca.file) << "-----BEGIN CERTIFICATE-----\nMIIB";
  CHECK(code_of((*transport)->send(HttpRequest{})) == "Unavailable");
}

TEST_CASE("a client certificate that cannot be used is refused with what is wrong") {
  Directory good, other, old;
  test::make_certificate({good.path});
  test::make_certificate({other.path});
  test::make_certificate({.directory = old.path, .begins = -7200, .ends = -3600});
  const std::string garbage = good.path + "/garbage.pem";
  std::ofstream(garbage) << "-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n";
  const auto refusal = [&](const std::string& certificate, const std::string& key) {
    kube::RestTransportOptions options;
    options.url = "https://127.0.0.1:1";
    options.ca.file = good.path + "/ca.pem";
    options.client_certificate.file = certificate;
    options.client_key.file = key;
    options.clock = &kClock;
    const auto made = kube::make_rest_transport(options);
    return made ? std::string("accepted") : made.error().message();
  };
  const std::string certificate = good.path + "/ca.pem", key = good.path + "/key.pem";
  CHECK(refusal(certificate, key) == "accepted");
  CHECK(refusal(old.path + "/ca.pem", old.path + "/key.pem") ==
        old.path + "/ca.pem: has expired; get a new kubeconfig");
  CHECK(refusal(certificate, other.path + "/key.pem") ==
        other.path + "/key.pem: does not belong to the client certificate");
  CHECK(refusal(garbage, key) == garbage + ": is no X.509 certificate");
  CHECK(refusal(certificate, garbage) ==
        garbage + ": is no private key in PEM without a pass phrase");
  CHECK(refusal(certificate, "") == "the client key: is missing");
  CHECK(refusal("", key) == "the client certificate: is missing");
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
