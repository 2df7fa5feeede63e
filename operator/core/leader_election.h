// Leader election over a Lease as a state machine without IO or clock: the caller performs the
// request it asks for and feeds in what came back.
//
// Only this process's monotonic time judges: a Lease is expired when its content has not changed
// for its duration since we first saw it; times written inside are for people. Every write demands
// the resourceVersion it was made from. A leader that could not renew for `renew_deadline`, counted
// from the sending of the last renewal, has lost, for ever. A deleted Lease stops nobody who held
// it: to a standby that has seen one its absence is one more content, which has to last as long.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "common/clock.h"
#include "common/result.h"
#include "common/rng.h"
#include "operator/api/lease.h"

namespace muster::core {

struct ElectionOptions {
  api::ObjectKey lease;
  std::string identity;  ///< never that of another live process
  seconds lease_duration{15};
  milliseconds renew_deadline{10'000};  ///< below lease_duration
  milliseconds retry_period{2'000};     ///< below renew_deadline
};

/// Threads: one.
class LeaderElection {
 public:
  enum class Role { kStandby, kLeader, kLost };
  struct Wait {
    MonoTime until;
  };
  struct Read {};
  /// Create without a resourceVersion, else patch under it.
  struct Write {
    api::Lease lease;
  };
  using Request = std::variant<Wait, Read, Write>;

  LeaderElection(ElectionOptions options, std::uint64_t seed);

  /// What to do next. `wall` is only written into the Lease.
  Request next(MonoTime now, WallTime wall);
  /// kNotFound is an answer too: there is no Lease.
  void on_read(MonoTime now, const Result<api::Lease>& lease);
  /// `sent`: when the write of the last next() was about to be sent.
  void on_written(MonoTime sent, MonoTime now, const Result<api::Lease>& lease);

  Role role() const { return role_; }
  /// Until when a leader may write.
  MonoTime deadline() const { return renewed_at_ + options_.renew_deadline; }
  /// Who holds the Lease as far as we know; empty = nobody.
  std::string holder() const { return seen_ && !is_absent_ ? seen_->holder : std::string(); }
  /// The write that gives the Lease up; nothing when it is not ours.
  std::optional<Write> release(MonoTime now, WallTime wall) const;

 private:
  void observe(MonoTime now, const api::Lease& lease);
  void observe_absence(MonoTime now);
  bool is_free(MonoTime now) const;
  MonoTime after_pause(MonoTime now);

  ElectionOptions options_;
  Rng rng_;
  Role role_ = Role::kStandby;
  bool reads_next_ = true;
  MonoTime next_at_ = MonoTime::min();
  std::optional<api::Lease> seen_;
  bool is_absent_ = false;              ///< it is there no more
  MonoTime seen_at_ = MonoTime::min();  ///< when seen_'s content, or its absence, was seen first
  MonoTime renewed_at_ = MonoTime::min();
};

}  // namespace muster::core
