// Transports around a transport: what may be written and when, how often, and how long one exchange
// may take.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "common/clock.h"
#include "operator/kube/http_transport.h"

namespace muster::kube {

/// How long an exchange that begins now is waited for: its timeout, and as long as its fence is
/// open. Threads: one.
class Patience {
 public:
  Patience(const HttpRequest& request, const Clock& clock);
  /// Until when to wait before this is asked again; nullopt: it is over.
  std::optional<MonoTime> next_look() const;

 private:
  const WriteFence* const fence_;
  const Clock& clock_;
  const MonoTime end_;
};

/// A fence that this process closes by itself, and that is open no longer than another.
class ClosingFence final : public WriteFence {
 public:
  /// `other` outlives it; nullptr: there is none.
  explicit ClosingFence(const WriteFence* other) : other_(other) {}
  /// For good. Threads: any.
  void close_at(MonoTime end) { end_ = end; }
  std::optional<MonoTime> open_until() const override;

 private:
  const WriteFence* const other_;
  std::atomic<MonoTime> end_{MonoTime::max()};
};

/// Refuses every request but GET with kAborted while `fence` is closed, and ends those under way
/// when it closes. Watches and reads pass. All references outlive it.
std::unique_ptr<HttpTransport> make_fenced_transport(HttpTransport& inner, const WriteFence& fence,
                                                     const Clock& clock);

/// At most `per_second` requests a second, with bursts of twice as many; who comes too early waits,
/// in order of arrival, as part of its own timeout and for 10 s at most, so that patient writes do
/// not shut out reads (kTooManyRequests, nothing was sent). kAborted: its fence has closed
/// meanwhile.
std::unique_ptr<HttpTransport> make_limited_transport(HttpTransport& inner, double per_second,
                                                      const Clock& clock);

/// No exchange takes longer than `most`.
std::unique_ptr<HttpTransport> make_hasty_transport(HttpTransport& inner, milliseconds most);

}  // namespace muster::kube
