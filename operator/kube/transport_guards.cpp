#include "operator/kube/transport_guards.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace muster::kube {
namespace {

/// How often a fence is asked by who waits.
constexpr seconds kFenceLook{1};
/// For a turn.
constexpr milliseconds kTurnMost{10'000};

Error not_the_leader() { return Error(ErrorCode::kAborted, "not the leader: nothing is written"); }

bool is_shut(const WriteFence& fence, const Clock& clock) {
  const auto until = fence.open_until();
  return !until || clock.mono_now() >= *until;
}

milliseconds rounded_up(nanoseconds time) { return std::chrono::ceil<milliseconds>(time); }

class FencedTransport final : public HttpTransport {
 public:
  FencedTransport(HttpTransport& inner, const WriteFence& fence, const Clock& clock)
      : inner_(inner), fence_(fence), clock_(clock) {}

  Result<HttpResponse> send(const HttpRequest& request) override {
    if (request.method == "GET") return inner_.send(request);
    if (is_shut(fence_, clock_)) return not_the_leader();
    HttpRequest fenced = request;
    fenced.fence = &fence_;
    return inner_.send(fenced);
  }
  Result<Stream> open_stream(const HttpRequest& request) override {
    return inner_.open_stream(request);
  }

 private:
  HttpTransport& inner_;
  const WriteFence& fence_;
  const Clock& clock_;
};

/// Requests get the moments of an even grid; one that is not used up leaves room for a burst.
class LimitedTransport final : public HttpTransport {
 public:
  LimitedTransport(HttpTransport& inner, double per_second, const Clock& clock)
      : inner_(inner),
        clock_(clock),
        gap_(static_cast<nanoseconds::rep>(1e9 / per_second)),
        burst_(seconds(2)) {}

  Result<HttpResponse> send(const HttpRequest& request) override {
    MUSTER_ASSIGN_OR_RETURN(const HttpRequest later, take_turn(request));
    return inner_.send(later);
  }
  Result<Stream> open_stream(const HttpRequest& request) override {
    MUSTER_ASSIGN_OR_RETURN(const HttpRequest later, take_turn(request));
    return inner_.open_stream(later);
  }

 private:
  Result<HttpRequest> take_turn(const HttpRequest& request) {
    const Error too_many(ErrorCode::kTooManyRequests,
                         "too many requests were waiting for their turn (--kube-api-qps)");
    const Patience patience(request, clock_);
    std::unique_lock lock(mutex_);
    const MonoTime now = clock_.mono_now();
    const MonoTime turn = std::max(next_, now - burst_ + gap_);
    if (turn >= now + std::min(request.timeout, kTurnMost)) return too_many;
    next_ = turn + gap_;
    for (;;) {
      // Last of all, too: what was let through is sent.
      const auto look = patience.next_look();
      if (!look && request.fence != nullptr && is_shut(*request.fence, clock_)) {
        return not_the_leader();
      }
      if (!look) return too_many;
      const MonoTime time = clock_.mono_now();
      if (time >= turn) break;
      changed_.wait_for(lock, std::min(turn, *look) - time);
    }
    HttpRequest later = request;
    later.timeout = rounded_up(now + request.timeout - std::max(turn, now));
    return later;
  }

  HttpTransport& inner_;
  const Clock& clock_;
  const nanoseconds gap_, burst_;
  std::mutex mutex_;
  std::condition_variable changed_;  // never notified: a turn only comes by time
  MonoTime next_ = MonoTime::min();  // guarded by mutex_
};

class HastyTransport final : public HttpTransport {
 public:
  HastyTransport(HttpTransport& inner, milliseconds most) : inner_(inner), most_(most) {}

  Result<HttpResponse> send(const HttpRequest& request) override {
    return inner_.send(hastened(request));
  }
  Result<Stream> open_stream(const HttpRequest& request) override {
    return inner_.open_stream(hastened(request));
  }

 private:
  HttpRequest hastened(HttpRequest request) const {
    request.timeout = std::min(request.timeout, most_);
    return request;
  }
  HttpTransport& inner_;
  const milliseconds most_;
};

}  // namespace

Patience::Patience(const HttpRequest& request, const Clock& clock)
    : fence_(request.fence), clock_(clock), end_(clock.mono_now() + request.timeout) {}

std::optional<MonoTime> Patience::next_look() const {
  MonoTime end = end_;
  const MonoTime now = clock_.mono_now();
  if (fence_ != nullptr) {
    const auto open_until = fence_->open_until();
    if (!open_until || now >= *open_until) return std::nullopt;
    end = std::min({end, *open_until, now + kFenceLook});
  }
  return now < end ? std::optional(end) : std::nullopt;
}

std::optional<MonoTime> ClosingFence::open_until() const {
  const MonoTime end = end_;
  if (other_ == nullptr) return end;
  const auto until = other_->open_until();
  return until ? std::optional(std::min(*until, end)) : std::nullopt;
}

std::unique_ptr<HttpTransport> make_fenced_transport(HttpTransport& inner, const WriteFence& fence,
                                                     const Clock& clock) {
  return std::make_unique<FencedTransport>(inner, fence, clock);
}

std::unique_ptr<HttpTransport> make_limited_transport(HttpTransport& inner, double per_second,
                                                      const Clock& clock) {
  MUSTER_CHECK(per_second > 0);
  return std::make_unique<LimitedTransport>(inner, per_second, clock);
}

std::unique_ptr<HttpTransport> make_hasty_transport(HttpTransport& inner, milliseconds most) {
  return std::make_unique<HastyTransport>(inner, most);
}

}  // namespace muster::kube
