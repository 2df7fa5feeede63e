#include "operator/kube/transport_guards.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
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

/// Answers after a while, and waits as a real connection does: by the clock and with patience.
struct SlowServer final : kube::HttpTransport {
  ManualClock& clock;
  seconds takes;
  std::function<void()> meanwhile = [] {};
  SlowServer(ManualClock& time, seconds until_answer) : clock(time), takes(until_answer) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const kube::Patience patience(request, clock);
    const MonoTime answer = clock.mono_now() + takes;
    while (const auto look = patience.next_look()) {
      clock.advance(std::min(*look, answer) - clock.mono_now());
      if (clock.mono_now() == answer) return kube::HttpResponse{201, "{}", std::nullopt};
      meanwhile();
    }
    return Error(ErrorCode::kDeadlineExceeded, "no answer in time");
  }
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    return Error(ErrorCode::kUnavailable, "no streams here");
  }
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

TEST_CASE("a write is waited for as long as the fence moves on, and it has time") {
  Fence fence;
  ManualClock clock;
  SlowServer inner(clock, seconds(20));
  const auto fenced = kube::make_fenced_transport(inner, fence, clock);
  const auto renew = [&] { fence.until = clock.mono_now() + seconds(8); };
  inner.meanwhile = renew;
  renew();
  CHECK(fenced->send(request_of("POST", seconds(40))));
  renew();
  const MonoTime begin = clock.mono_now();
  CHECK_FALSE(fenced->send(request_of("POST", seconds(10))));
  CHECK(clock.mono_now() - begin == seconds(10));
}

TEST_CASE("a write ends with the fence") {
  Fence fence;
  ManualClock clock;
  SlowServer inner(clock, seconds(20));
  const auto fenced = kube::make_fenced_transport(inner, fence, clock);
  const MonoTime begin = clock.mono_now();
  SUBCASE("that is not moved on") {
    fence.until = begin + milliseconds(2'500);
    CHECK_FALSE(fenced->send(request_of("POST", seconds(40))));
    CHECK(clock.mono_now() - begin == milliseconds(2'500));
  }
  SUBCASE("that closes before its time") {
    fence.until = begin + seconds(10);
    inner.meanwhile = [&] {
      if (clock.mono_now() - begin > milliseconds(1'500)) fence.until.reset();
    };
    const auto ended = fenced->send(request_of("POST", seconds(40)));
    REQUIRE_FALSE(ended);
    CHECK(ended.error().code() == ErrorCode::kDeadlineExceeded);
    CHECK(clock.mono_now() - begin == seconds(2));
  }
}

TEST_CASE("a fence that its process closes is open no longer than the other") {
  Fence lease;
  const ManualClock clock;
  const MonoTime now = clock.mono_now();
  kube::ClosingFence fence(&lease), alone(nullptr);
  CHECK_FALSE(fence.open_until());
  lease.until = now + seconds(10);
  CHECK(fence.open_until() == now + seconds(10));
  CHECK(alone.open_until() == MonoTime::max());
  fence.close_at(now + seconds(3));
  alone.close_at(now + seconds(3));
  CHECK(fence.open_until() == now + seconds(3));
  CHECK(alone.open_until() == now + seconds(3));
  lease.until = now + seconds(2);
  CHECK(fence.open_until() == now + seconds(2));
}

TEST_CASE("a limit lets a burst through and then answers for itself") {
  Recorder inner;
  ManualClock clock;
  const auto limited = kube::make_limited_transport(inner, 2, clock);
  // Four at once; the fifth would be due in half a second, which it does not have.
  for (int i = 0; i < 4; ++i) CHECK(limited->send(request_of("GET", milliseconds(100))));
  const auto late = limited->send(request_of("GET", milliseconds(100)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kTooManyRequests);
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

TEST_CASE("whoever has much time does not take the turns of those who have little") {
  Recorder inner;
  const SystemClock clock;
  const auto limited = kube::make_limited_transport(inner, 0.05, clock);  // a turn in 18 s
  const auto late = limited->send(request_of("POST", seconds(40)));
  REQUIRE_FALSE(late);
  CHECK(late.error().code() == ErrorCode::kTooManyRequests);
}

TEST_CASE("what waits for its turn is not sent once its fence has closed") {
  Recorder inner;
  const SystemClock clock;
  const auto limited = kube::make_limited_transport(inner, 20, clock);
  for (int i = 0; i < 40; ++i) CHECK(limited->send(request_of("GET")));
  Fence fence;  // closed
  kube::HttpRequest request = request_of("POST");
  request.fence = &fence;
  const auto refused = limited->send(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == ErrorCode::kAborted);
  CHECK(inner.seen.size() == 40);
}

TEST_CASE("no exchange is given more than the most") {
  Recorder inner;
  const auto hasty = kube::make_hasty_transport(inner, seconds(2));
  CHECK(hasty->send(request_of("GET")));
  CHECK_FALSE(hasty->open_stream(request_of("GET", seconds(1))));
  CHECK(inner.seen[0].timeout == seconds(2));
  CHECK(inner.seen[1].timeout == seconds(1));
}
