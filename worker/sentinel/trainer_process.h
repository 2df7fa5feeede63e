// One trainer of this worker: the place it runs at, one process after the other.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "common/clock.h"
#include "common/file.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/launch.h"
#include "worker/sentinel/pulse.h"

namespace muster::sentinel {

/// Waits for a trainer's death on a thread of its own, which ends with this. Tells nothing where
/// the system gives no thread or descriptor.
class DeathWatch {
 public:
  /// Writes to `event_fd` once the trainer behind `pulse` is dead. Both outlive this.
  DeathWatch(PulseMonitor& pulse, int event_fd);
  ~DeathWatch();
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;

 private:
  void run();
  PulseMonitor& pulse_;
  int event_fd_;
  UniqueFd stop_;
  std::thread thread_;
};

/// Why the sentinel itself ended a trainer.
enum class KilledFor { kNothing, kHang, kFence, kEnd };

/// How long a step took, and between how many trainers it was divided.
struct StepTime {
  double seconds = 0;
  int members = 1;
};

struct TrainerProcess {
  TrainerLaunch launch;
  Trainer trainer;
  bool is_running = false;
  bool is_ready = false;
  bool is_finished = false;  ///< its last summary said that the job is complete
  KilledFor killed_for = KilledFor::kNothing;
  std::optional<FailureMessage> last_word;
  std::optional<ViewSender> views;
  std::int64_t told_epoch = 0;  ///< of the newest view it was told, 0 = none
  int members = 1;              ///< trainers of that view
  std::unique_ptr<PulseMonitor> pulse;
  std::unique_ptr<DeathWatch> watch;  ///< after pulse: it ends first
  std::uint64_t beats = 0;
  MonoTime beaten_at{};  ///< own sleep forgiven
  MonoTime looked_at{};  ///< by is_hung()
  bool has_stepped = false;
  std::optional<Pace> pace{};  ///< the newest it told
  SlowWatch slow{};
  std::int64_t judged_epoch = 0;  ///< of the view that `slow` was told of last
  std::string_view waits_for{};   ///< whom it makes no step without, in words; empty: nobody
  bool lacks_state = false;       ///< nor has it a state, or anybody else who is there
  std::deque<StepTime> steps{};   ///< its newest, without what comes behind one
  std::deque<double> evaluate_seconds{};  ///< of its newest evaluations
  /// What it does with files for long, 0 s: nothing: its training thread, and the one that writes
  /// checkpoints beside it.
  std::array<FilesMessage, 2> busy{};
  std::deque<MonoTime> respawned{};
  std::optional<MonoTime> respawn_at;

  /// It is told a view with so many trainers: the fewer they are, the longer a step may take.
  void set_members(int told);
  void take_steps(const StepsMessage& message);
  /// Whether the training thread has not moved for too long, judged once it was told a view and
  /// has made a step. Where others of that view wait for it, be they of the same worker, before its
  /// first step, too: nothing else would ever end their waiting. To be asked several times a
  /// second: time in which nobody asked hardly counts.
  bool is_hung(MonoTime now);
  /// Whether it may be started once more, and when; the place for a crash loop to end.
  bool plan_respawn(MonoTime now);

 private:
  double longest_step() const;
  double seconds_allowed() const;
};

inline constexpr std::size_t kMaxRespawns = 5;
inline constexpr seconds kRespawnWindow{600};

}  // namespace muster::sentinel
