#include "operator/runtime/elector.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/log.h"

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
        candidate_(*transport_, *options_.clock, options_.election, options_.seed),
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
    while (!stopping_) step();
    release();
  }

  void step() {
    const auto until = candidate_.step();
    publish();
    if (!until) return;
    std::unique_lock lock(mutex_);
    const auto left = *until == MonoTime::max() ? kWaitMost : *until - options_.clock->mono_now();
    changed_.wait_for(lock, std::clamp<nanoseconds>(left, nanoseconds(0), kWaitMost),
                      [this] { return stopping_.load(); });
  }

  /// Makes the election's state visible to other threads, and calls back on a change of role.
  void publish() {
    using Role = LeaderElection::Role;
    const LeaderElection& election = candidate_.election();
    Role before = Role::kStandby;
    {
      const std::lock_guard lock(mutex_);
      before = role_;
      role_ = election.role();
      deadline_ = election.deadline();
      holder_ = election.holder();
    }
    if (before == election.role()) return;
    if (election.role() == Role::kLeader) {
      log_info("leading", {{"lease", options_.election.lease.text()},
                           {"identity", options_.election.identity}});
      if (options_.on_leading) options_.on_leading();
    } else if (election.role() == Role::kLost) {
      log_error("the leader's Lease is lost", {{"lease", options_.election.lease.text()}});
      if (options_.on_lost) options_.on_lost();
    }
  }

  void release() {
    {
      const std::lock_guard lock(mutex_);
      role_ = LeaderElection::Role::kLost;
    }
    candidate_.release();
  }

  ElectorOptions options_;
  std::unique_ptr<kube::HttpTransport> transport_;
  Candidate candidate_;  // touched by the thread alone
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  LeaderElection::Role role_ = LeaderElection::Role::kStandby;  // guarded by mutex_
  MonoTime deadline_ = MonoTime::min();                         // guarded by mutex_
  std::string holder_;                                          // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

Candidate::Candidate(kube::HttpTransport& transport, const Clock& clock,
                     core::ElectionOptions options, std::uint64_t seed)
    : clock_(clock),
      lease_(options.lease),
      client_(kube::make_rest_client(transport)),
      election_(std::move(options), seed) {}

std::optional<MonoTime> Candidate::step() {
  const MonoTime now = clock_.mono_now();
  const auto request = election_.next(now, clock_.wall_now());
  if (const auto* wait = std::get_if<LeaderElection::Wait>(&request)) return wait->until;
  if (std::holds_alternative<LeaderElection::Read>(request)) {
    const auto lease = lease_of(client_->get(api::Kind::kLease, lease_));
    tell(lease);
    election_.on_read(clock_.mono_now(), lease);
    return std::nullopt;
  }
  const auto lease = write(std::get<LeaderElection::Write>(request).lease);
  tell(lease);
  election_.on_written(now, clock_.mono_now(), lease);
  return std::nullopt;
}

Result<api::Lease> Candidate::write(const api::Lease& lease) {
  if (lease.meta.resource_version.empty()) {
    return lease_of(
        client_->create(api::Kind::kLease, lease.meta.namespace_name, api::to_json(lease)));
  }
  return lease_of(
      client_->merge_patch(api::Kind::kLease, lease.meta.key(), "", api::lease_patch(lease)));
}

/// Failures are logged when they begin and when they change, not every two seconds.
void Candidate::tell(const Result<api::Lease>& lease) {
  const bool expected = lease || lease.error().code() == ErrorCode::kNotFound ||
                        lease.error().code() == ErrorCode::kConflict ||
                        lease.error().code() == ErrorCode::kAlreadyExists;
  const std::string trouble = expected ? std::string() : lease.error().message();
  if (trouble == trouble_) return;
  if (!trouble.empty()) {
    log_warning("the leader's Lease cannot be reached",
                {{"lease", lease_.text()}, {"error", trouble}});
  }
  trouble_ = trouble;
}

void Candidate::release() {
  const auto last = election_.release(clock_.mono_now(), clock_.wall_now());
  if (!last) return;
  const auto lease = write(last->lease);
  if (!lease) {
    log_warning("the leader's Lease was not released", {{"error", lease.error().message()}});
  }
}

std::unique_ptr<Elector> Elector::start(ElectorOptions options) {
  MUSTER_CHECK(options.transport != nullptr && options.clock != nullptr);
  return std::make_unique<RunningElector>(std::move(options));
}

std::string address_of_identity(const std::string& identity) {
  const auto at = identity.rfind('@');
  return at == std::string::npos ? std::string() : identity.substr(at + 1);
}

}  // namespace muster::runtime
