#include "operator/runtime/elector.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/log.h"
#include "operator/kube/api_client.h"

namespace muster::runtime {
namespace {

using core::LeaderElection;

constexpr nanoseconds kWaitMost = seconds(10);

Result<api::Lease> lease_of(Result<Json> answer) {
  if (!answer) return answer.error();
  return api::parse_lease(*answer);
}

class RunningElector final : public Elector {
 public:
  explicit RunningElector(ElectorOptions options)
      : options_(std::move(options)),
        transport_(
            kube::make_hasty_transport(*options_.transport, options_.election.renew_deadline / 2)),
        client_(kube::make_rest_client(*transport_)),
        election_(options_.election, options_.seed),
        thread_([this] { run(); }) {}
  ~RunningElector() override { stop(); }

  std::optional<MonoTime> open_until() const override {
    const std::lock_guard lock(mutex_);
    if (role_ != LeaderElection::Role::kLeader) return std::nullopt;
    return deadline_;
  }
  bool leading() const override {
    const auto until = open_until();
    return until && options_.clock->mono_now() < *until;
  }
  std::string holder() const override {
    const std::lock_guard lock(mutex_);
    return holder_;
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    while (!stopping_) {
      step();
      publish();
    }
    release();
  }

  void step() {
    const Clock& clock = *options_.clock;
    const MonoTime now = clock.mono_now();
    const auto request = election_.next(now, clock.wall_now());
    if (const auto* wait = std::get_if<LeaderElection::Wait>(&request)) {
      publish();
      std::unique_lock lock(mutex_);
      const auto left = wait->until == MonoTime::max() ? kWaitMost : wait->until - now;
      changed_.wait_for(lock, std::clamp<nanoseconds>(left, nanoseconds(0), kWaitMost),
                        [this] { return stopping_.load(); });
      return;
    }
    if (std::holds_alternative<LeaderElection::Read>(request)) {
      const auto lease = lease_of(client_->get(api::Kind::kLease, options_.election.lease));
      tell(lease);
      election_.on_read(clock.mono_now(), lease);
      return;
    }
    const auto lease = write(std::get<LeaderElection::Write>(request).lease);
    tell(lease);
    election_.on_written(now, clock.mono_now(), lease);
  }

  Result<api::Lease> write(const api::Lease& lease) {
    if (lease.meta.resource_version.empty()) {
      return lease_of(
          client_->create(api::Kind::kLease, lease.meta.namespace_name, api::to_json(lease)));
    }
    return lease_of(
        client_->merge_patch(api::Kind::kLease, lease.meta.key(), "", api::lease_patch(lease)));
  }

  /// Failures are logged when they begin and when they change, not every two seconds.
  void tell(const Result<api::Lease>& lease) {
    const bool expected = lease || lease.error().code() == ErrorCode::kNotFound ||
                          lease.error().code() == ErrorCode::kConflict ||
                          lease.error().code() == ErrorCode::kAlreadyExists;
    const std::string trouble = expected ? std::string() : lease.error().message();
    if (trouble == trouble_) return;
    if (!trouble.empty()) {
      log_warning("the leader's Lease cannot be reached",
                  {{"lease", options_.election.lease.text()}, {"error", trouble}});
    }
    trouble_ = trouble;
  }

  /// Makes the election's state visible to other threads, and calls back on a change of role.
  void publish() {
    using Role = LeaderElection::Role;
    Role before = Role::kStandby;
    {
      const std::lock_guard lock(mutex_);
      before = role_;
      role_ = election_.role();
      deadline_ = election_.deadline();
      holder_ = election_.holder();
    }
    if (before == election_.role()) return;
    if (election_.role() == Role::kLeader) {
      log_info("leading", {{"lease", options_.election.lease.text()},
                           {"identity", options_.election.identity}});
      if (options_.on_leading) options_.on_leading();
    } else if (election_.role() == Role::kLost) {
      log_error("the leader's Lease is lost", {{"lease", options_.election.lease.text()}});
      if (options_.on_lost) options_.on_lost();
    }
  }

  void release() {
    const auto last = election_.release(options_.clock->mono_now(), options_.clock->wall_now());
    {
      const std::lock_guard lock(mutex_);
      role_ = LeaderElection::Role::kLost;
    }
    if (!last) return;
    const auto lease = write(last->lease);
    if (!lease) {
      log_warning("the leader's Lease was not released", {{"error", lease.error().message()}});
    }
  }

  ElectorOptions options_;
  std::unique_ptr<kube::HttpTransport> transport_;
  std::unique_ptr<kube::ApiClient> client_;
  LeaderElection election_;  // touched by the thread alone
  std::string trouble_;      // touched by the thread alone
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  LeaderElection::Role role_ = LeaderElection::Role::kStandby;  // guarded by mutex_
  MonoTime deadline_ = MonoTime::min();                         // guarded by mutex_
  std::string holder_;                                          // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Elector> Elector::start(ElectorOptions options) {
  MUSTER_CHECK(options.transport != nullptr && options.clock != nullptr);
  return std::make_unique<RunningElector>(std::move(options));
}

std::string address_of_identity(const std::string& identity) {
  const auto at = identity.rfind('@');
  return at == std::string::npos ? std::string() : identity.substr(at + 1);
}

}  // namespace muster::runtime
