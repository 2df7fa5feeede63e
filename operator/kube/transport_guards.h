// Transports around a transport: what may be written and when, how often, and how long one exchange
// may take.
#pragma once

#include <memory>
#include <optional>

#include "common/clock.h"
#include "operator/kube/http_transport.h"

namespace muster::kube {

/// Whether this process may change anything in the cluster.
class WriteFence {
 public:
  virtual ~WriteFence() = default;
  /// Until when a write may be under way; nullopt: none may begin. Threads: any. Blocks: no.
  virtual std::optional<MonoTime> open_until() const = 0;
};

/// Refuses every request but GET with kAborted while `fence` is closed, and ends those under way
/// when it closes by time. Watches and reads pass. All references outlive it.
std::unique_ptr<HttpTransport> make_fenced_transport(HttpTransport& inner, const WriteFence& fence,
                                                     const Clock& clock);

/// At most `per_second` requests a second, with bursts of twice as many; who comes too early waits,
/// in order of arrival, as part of its own timeout (kDeadlineExceeded, nothing was sent).
std::unique_ptr<HttpTransport> make_limited_transport(HttpTransport& inner, double per_second,
                                                      const Clock& clock);

/// No exchange takes longer than `most`.
std::unique_ptr<HttpTransport> make_hasty_transport(HttpTransport& inner, milliseconds most);

}  // namespace muster::kube
