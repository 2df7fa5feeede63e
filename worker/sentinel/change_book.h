// Changes of membership for the report: who came and went, where training went on, how long it
// stood, and how much later that step was done. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/view.h"

namespace muster::sentinel {

/// A change is told so long after it has first arrived, as whom it reached may have died before it
/// wrote anything: longer than the lease of an operator that is dead.
inline constexpr seconds kTellFor{30};

class ChangeBook {
 public:
  /// `after` follows `before`; of each worker a kind of change is noted once, of however many of
  /// its trainers. The worker whose seat is the lowest that trains tells for all. Of who was to
  /// enter, and was put off before anybody had entered with it, nothing is told.
  void add(const View& before, const View& after, WorkerId own);
  void add_refused(const View& view, WorkerId id, const std::string& reason);
  /// Somebody at `host` (a numeric address) has not this job's key; told by the same worker as
  /// changes are.
  void add_stranger(const View& view, const std::string& host, WorkerId own);
  /// This worker has begun to hold the others up.
  void add_slow(const View& view, int slot, std::int64_t step, std::string_view reason);
  /// The members of `view` went back to a checkpoint; told by the same worker as their changes, and
  /// before its trainer's add(entered).
  void add_return(const View& view, const EnteredMessage& entered, WorkerId own);
  /// A trainer of this worker went on: the changes up to its epoch get their step and stall.
  void add(const EnteredMessage& entered);
  /// It has made a step: changes up to that one's epoch that it went on after get the delay.
  void add(const StepRecord& step);
  /// No step will come any more.
  void settle() { settled_ = entered_; }

  /// The newest that are to be told, oldest first, at most kMaxReportedChanges; those of the
  /// newest view wait until training has gone on for a step.
  std::vector<MembershipChange> to_tell() const;
  /// Number of the newest one in to_tell(); to be given back to set_told().
  std::uint64_t newest() const { return told_ + settled_; }
  /// By now a report with everything up to `number` has arrived.
  void set_told(std::uint64_t number, MonoTime now);

 private:
  /// The newest one is about no change that training stood still for.
  void settle_newest();
  void push(std::int64_t epoch, std::string_view kind, int slot, std::string_view reason);
  bool is_entering(WorkerId id, const TrainerPlace& one) const;
  void forget_join(int slot);
  void note_entering(const View& before, const View& after);

  void forget(std::uint64_t number);

  std::vector<MembershipChange> changes_;  ///< that are to be told, now or later
  std::size_t entered_ = 0;                ///< of them, with step and stall
  std::size_t settled_ = 0;                ///< of these, with their delay, where it has one
  std::uint64_t told_ = 0;                 ///< forgotten since
  /// Up to which number they had arrived, and when that was first known.
  std::deque<std::pair<std::uint64_t, MonoTime>> arrived_;
  /// Those who came with the newest view or one before it, and this worker has not entered any of
  /// them: what becomes of their coming is not known yet.
  std::vector<std::pair<WorkerId, TrainerPlace>> entering_;
  std::int64_t newest_epoch_ = 0;
};

}  // namespace muster::sentinel
