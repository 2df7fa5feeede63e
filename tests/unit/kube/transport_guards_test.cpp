#include "operator/kube/transport_guards.h"

#include <doctest/doctest.h>

#include <vector>

using namespace muster;

namespace {

struct Recorder final : kube::HttpTransport {
  std::vector<kube::HttpRequest> seen;
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    seen.push_back(request);
    return kube::HttpResponse{200, "{}", std::nullopt};
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    seen.push_back(request);
    return Error(ErrorCode::kUnavailable, "no streams here");
  }
};

struct Fence final : kube::WriteFence {
  std::optional<MonoTime> until;
  std::optional<MonoTime> open_until() const override { return until; }
};

kube::HttpRequest request_of(const std::string& method, milliseconds timeout = seconds(10)) {
  kube::HttpRequest request;
  request.method = method;
  request.path = "/x";
  request.timeout = timeout;
  return request;
}

}  // namespace

TEST_CASE("behind a closed fence is read and nothing is written") {
  Recorder inner;
  Fence fence;
  ManualClock clock;
  const auto fenced = kube::make_fenced_transport(inner, fence, clock);
  CHECK(fenced->send(request_of("GET")));
  for (const char* method : {"POST", "PUT", "PATCH", "DELETE"}) {
    const auto refused = fenced->send(request_of(method));
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kAborted);
  }
  fence.until = clock.mono_now();
  CHECK_FALSE(fenced->send(request_of("POST")));
  CHECK(inner.seen.size() == 1);
}

TEST_CASE("a write ends with the fence at the latest") {
  Recorder inner;
  Fence fence;
  ManualClock clock;
  const auto fenced = kube::make_fenced_transport(inner, fence, clock);
  fence.until = clock.mono_now() + seconds(3);
  CHECK(fenced->send(request_of("POST")));
  CHECK(fenced->send(request_of("POST", seconds(1))));
  CHECK(inner.seen[0].timeout == seconds(3));
  CHECK(inner.seen[1].timeout == seconds(1));
}

TEST_CASE("a limit lets a burst through and then answers for itself") {
  Recorder inner;
  ManualClock clock;
  const auto limited = kube::make_limited_transport(inner, 2, clock);
  // Four at once; the fifth would be due in half a second, which it does not have.
  for (int i = 0; i < 4; ++i) CHECK(limited->send(request_of("GET", milliseconds(100))));
  const auto late = limited->send(request_of("GET", milliseconds(100)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kDeadlineExceeded);
  CHECK(inner.seen.size() == 4);
  clock.advance(milliseconds(500));
  CHECK(limited->send(request_of("GET", milliseconds(100))));
  CHECK_FALSE(limited->send(request_of("GET", milliseconds(100))));
  // Idle time is not saved up for ever.
  clock.advance(seconds(100));
  for (int i = 0; i < 4; ++i) CHECK(limited->send(request_of("GET", milliseconds(100))));
  CHECK_FALSE(limited->send(request_of("GET", milliseconds(100))));
}

TEST_CASE("a turn that comes within the timeout is waited for") {
  Recorder inner;
  const SystemClock clock;
  const auto limited = kube::make_limited_transport(inner, 100, clock);
  const MonoTime begin = clock.mono_now();
  for (int i = 0; i < 210; ++i) CHECK(limited->send(request_of("GET")));
  CHECK(clock.mono_now() - begin >= milliseconds(90));
}

TEST_CASE("no exchange is given more than the most") {
  Recorder inner;
  const auto hasty = kube::make_hasty_transport(inner, seconds(2));
  CHECK(hasty->send(request_of("GET")));
  CHECK_FALSE(hasty->open_stream(request_of("GET", seconds(1))));
  CHECK(inner.seen[0].timeout == seconds(2));
  CHECK(inner.seen[1].timeout == seconds(1));
}
