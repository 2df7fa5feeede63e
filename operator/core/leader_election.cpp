#include "operator/core/leader_election.h"

#include <algorithm>
#include <utility>

namespace muster::core {
namespace {

bool same_content(const api::Lease& a, const api::Lease& b) {
  return a.holder == b.holder && a.duration_seconds == b.duration_seconds &&
         a.acquire_time == b.acquire_time && a.renew_time == b.renew_time &&
         a.transitions == b.transitions && a.meta.uid == b.meta.uid;
}

}  // namespace

LeaderElection::LeaderElection(ElectionOptions options, std::uint64_t seed)
    : options_(std::move(options)), rng_(seed) {
  MUSTER_CHECK(!options_.identity.empty());
  MUSTER_CHECK(options_.renew_deadline < options_.lease_duration);
  MUSTER_CHECK(options_.retry_period < options_.renew_deadline);
}

/// A leader keeps its pace; those who wait spread out, so that they do not come together.
MonoTime LeaderElection::after_pause(MonoTime now) {
  const auto period = options_.retry_period.count();
  if (role_ == Role::kLeader) return now + options_.retry_period;
  const auto spread = static_cast<double>(period) * 0.2 * rng_.unit();
  return now + milliseconds(period + static_cast<milliseconds::rep>(spread));
}

bool LeaderElection::is_free(MonoTime now) const {
  if (!seen_ || role_ == Role::kLeader) return true;
  const bool is_given_up = seen_->holder.empty() || seen_->holder == options_.identity;
  // Of one that was deleted nobody knows who took or renewed it after the last look.
  if (is_given_up && !is_absent_) return true;
  // Whoever wrote the Lease counts on the duration it wrote.
  const seconds duration = std::max(options_.lease_duration, seconds(seen_->duration_seconds));
  return now - seen_at_ >= duration;
}

LeaderElection::Request LeaderElection::next(MonoTime now, WallTime wall) {
  if (role_ == Role::kLeader && now >= deadline()) role_ = Role::kLost;
  if (role_ == Role::kLost) return Wait{MonoTime::max()};
  if (now < next_at_) {
    return Wait{role_ == Role::kLeader ? std::min(next_at_, deadline()) : next_at_};
  }
  if (reads_next_) return Read{};
  api::Lease lease;
  lease.meta.namespace_name = options_.lease.namespace_name;
  lease.meta.name = options_.lease.name;
  if (seen_) lease.transitions = seen_->transitions;
  if (seen_ && !is_absent_) lease.meta.resource_version = seen_->meta.resource_version;
  lease.holder = options_.identity;
  lease.duration_seconds = static_cast<int>(options_.lease_duration.count());
  lease.renew_time = format_micro_time(wall);
  const bool is_ours = seen_ && seen_->holder == options_.identity;
  lease.acquire_time = is_ours ? seen_->acquire_time : lease.renew_time;
  if (seen_ && !is_ours) ++lease.transitions;
  return Write{std::move(lease)};
}

void LeaderElection::observe(MonoTime now, const api::Lease& lease) {
  if (!seen_ || is_absent_ || !same_content(*seen_, lease)) seen_at_ = now;
  seen_ = lease;
  is_absent_ = false;
}

void LeaderElection::observe_absence(MonoTime now) {
  if (!is_absent_) seen_at_ = now;
  is_absent_ = true;
}

void LeaderElection::on_read(MonoTime now, const Result<api::Lease>& lease) {
  if (role_ == Role::kLost) return;
  if (lease) {
    observe(now, *lease);
  } else if (lease.error().code() == ErrorCode::kNotFound) {
    observe_absence(now);
  } else {
    next_at_ = after_pause(now);
    return;
  }
  if (role_ == Role::kLeader && seen_ && !is_absent_ && seen_->holder != options_.identity) {
    role_ = Role::kLost;
    return;
  }
  reads_next_ = !is_free(now);
  next_at_ = reads_next_ ? after_pause(now) : now;
}

void LeaderElection::on_written(MonoTime sent, MonoTime now, const Result<api::Lease>& lease) {
  if (role_ == Role::kLost) return;
  if (lease && lease->holder == options_.identity) {
    observe(now, *lease);
    renewed_at_ = sent;
    // An answer that took longer than the deadline makes no leader.
    if (role_ == Role::kStandby && now < deadline()) role_ = Role::kLeader;
    next_at_ = after_pause(now);
    return;
  }
  next_at_ = after_pause(now);
  // Somebody else wrote, or it is unknown whether our own write took effect: look first.
  reads_next_ = true;
  const bool is_old = !lease && (lease.error().code() == ErrorCode::kConflict ||
                                 lease.error().code() == ErrorCode::kNotFound ||
                                 lease.error().code() == ErrorCode::kAlreadyExists);
  if (is_old && role_ == Role::kLeader) next_at_ = now;
}

std::optional<LeaderElection::Write> LeaderElection::release(MonoTime now, WallTime wall) const {
  if (role_ != Role::kLeader || now >= deadline() || !seen_ || is_absent_) return std::nullopt;
  api::Lease lease = *seen_;
  lease.holder.clear();
  lease.duration_seconds = 1;
  lease.renew_time = format_micro_time(wall);
  return Write{std::move(lease)};
}

}  // namespace muster::core
