// Two electors over the API server in memory, with short real durations.
#include "operator/runtime/elector.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "operator/embedded/api_server.h"
#include "operator/kube/api_client.h"

using namespace muster;

namespace {

constexpr seconds kLong{60};

/// A connection that can be cut.
struct Cable final : kube::HttpTransport {
  kube::HttpTransport& inner;
  std::atomic<bool> is_cut{false};
  explicit Cable(kube::HttpTransport& server) : inner(server) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (is_cut) return Error(ErrorCode::kUnavailable, "cut");
    return inner.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return inner.open_stream(request);
  }
};

struct Flag {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_set = false;
  void set() {
    const std::lock_guard lock(mutex);
    is_set = true;
    changed.notify_all();
  }
  bool wait() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, [this] { return is_set; });
  }
};

struct Replica {
  SystemClock clock;
  Cable cable;
  Flag leading, lost;
  std::unique_ptr<runtime::Elector> elector;

  /// It gives up where it was not heard for half of `lease`.
  Replica(kube::HttpTransport& server, const std::string& identity, seconds lease) : cable(server) {
    runtime::ElectorOptions options;
    options.transport = &cable;
    options.clock = &clock;
    options.election.lease = {"muster", "muster-operator"};
    options.election.identity = identity;
    options.election.lease_duration = lease;
    options.election.renew_deadline = lease / 2;
    options.election.retry_period = milliseconds(100);
    options.on_leading = [this] { leading.set(); };
    options.on_lost = [this] { lost.set(); };
    elector = runtime::Elector::start(std::move(options));
  }
};

}  // namespace

TEST_CASE("a standby takes over when the leader gives the lease up") {
  SystemClock clock;
  embedded::ApiServer server{{&clock}};
  // Longer than no machine stands still, and than the other waits: it does not follow by time.
  constexpr seconds kLease{90};
  Replica a(server, "a@10.0.0.1:9443", kLease);
  REQUIRE(a.leading.wait());
  CHECK(a.elector->open_until());
  Replica b(server, "b@10.0.0.2:9443", kLease);
  a.elector->stop();
  CHECK_FALSE(a.elector->open_until());
  REQUIRE(b.leading.wait());
  CHECK(b.elector->holder() == "b@10.0.0.2:9443");
  CHECK(runtime::address_of_identity(b.elector->holder()) == "10.0.0.2:9443");
  b.elector->stop();
  const auto client = kube::make_rest_client(server);
  const auto lease = client->get(api::Kind::kLease, {"muster", "muster-operator"});
  REQUIRE(lease);
  CHECK((*lease)["spec"]["holderIdentity"] == "");
  CHECK((*lease)["spec"]["leaseTransitions"] == 1);
}

TEST_CASE("a leader that is cut off closes its fence, says so, and another follows") {
  SystemClock clock;
  embedded::ApiServer server{{&clock}};
  Replica a(server, "a@1", seconds(2));
  REQUIRE(a.leading.wait());
  Replica b(server, "b@2", seconds(2));
  a.cable.is_cut = true;
  REQUIRE(a.lost.wait());
  CHECK_FALSE(a.elector->open_until());
  CHECK_FALSE(a.elector->leading());
  a.cable.is_cut = false;
  REQUIRE(b.leading.wait());
  CHECK_FALSE(a.elector->open_until());
}
