#include "operator/kube/transport_guards.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

namespace muster::kube {
namespace {

milliseconds rounded_up(nanoseconds time) { return std::chrono::ceil<milliseconds>(time); }

class FencedTransport final : public HttpTransport {
 public:
  FencedTransport(HttpTransport& inner, const WriteFence& fence, const Clock& clock)
      : inner_(inner), fence_(fence), clock_(clock) {}

  Result<HttpResponse> send(const HttpRequest& request) override {
    if (request.method == "GET") return inner_.send(request);
    const auto until = fence_.open_until();
    const MonoTime now = clock_.mono_now();
    if (!until || now >= *until) {
      return Error(ErrorCode::kAborted, "not the leader: nothing is written");
    }
    HttpRequest bounded = request;
    bounded.timeout = std::min(bounded.timeout, rounded_up(*until - now));
    return inner_.send(bounded);
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
    std::unique_lock lock(mutex_);
    const MonoTime now = clock_.mono_now(), give_up = now + request.timeout;
    const MonoTime turn = std::max(next_, now - burst_ + gap_);
    if (turn >= give_up) {
      return Error(ErrorCode::kDeadlineExceeded,
                   "too many requests were waiting for their turn (--kube-api-qps)");
    }
    next_ = turn + gap_;
    while (clock_.mono_now() < turn) changed_.wait_for(lock, turn - clock_.mono_now());
    HttpRequest later = request;
    later.timeout = rounded_up(give_up - std::max(turn, now));
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
