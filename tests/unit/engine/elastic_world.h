// Trainers as threads of one process, and somebody who decides who belongs, as the sentinels do
// between pods: for tests of what the engine makes of a changing membership.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "worker/engine/membership.h"
#include "worker/engine/training.h"

namespace muster::test {

/// Threads: every method from any.
class ElasticWorld {
 public:
  using OnState = std::function<void(int trainer, std::int64_t step, std::span<const float>,
                                     const engine::OptimizerState&)>;

  ElasticWorld(engine::TrainingConfig config, OnState on_state);
  ~ElasticWorld();

  /// Starts a trainer in `slot`; it becomes a member once it is ready, and dies when it comes to
  /// `doom`. Returns its number.
  int add(int slot, std::string_view doom = {});
  /// The same of a worker with several processes, of which the lowest comes first; add() starts the
  /// first.
  int add_process(int slot, int process);
  /// The same; nobody comes to be connected with it before let_connect(), or before one that has
  /// trained can do nothing else.
  int add_slow(int slot);
  void let_connect(int trainer);
  /// Called by every trainer at every point, before the start: an error is what the trainer meets
  /// there. May block.
  using AtPoint = std::function<Status(int trainer, std::string_view point, std::int64_t step)>;
  void watch_points(AtPoint at_point) { at_point_ = std::move(at_point); }
  /// Told what each trainer reads (TrainingHooks::on_batch), before the start.
  using OnBatch = std::function<void(std::int64_t step, data::RankRange ranks,
                                     std::span<const std::uint64_t> samples)>;
  void watch_batches(OnBatch on_batch) { on_batch_ = std::move(on_batch); }
  /// Told of each step that a trainer has made (TrainingHooks::on_step), before the start.
  using OnReport = std::function<void(int trainer, const engine::StepReport& report)>;
  void watch_reports(OnReport on_report) { on_report_ = std::move(on_report); }
  /// How long a trainer takes over a logical rank of that step, by its own clock; before the start.
  using TimeOfRank = std::function<std::chrono::seconds(int trainer, std::int64_t step)>;
  void set_speed(TimeOfRank time_of_rank) { time_of_rank_ = std::move(time_of_rank); }
  /// Likewise, over its update.
  void set_update_time(TimeOfRank time_of_update) { time_of_update_ = std::move(time_of_update); }
  /// Told of each division by speed (TrainingHooks::on_division), before the start.
  using OnDivision = std::function<void(int trainer, const engine::DivisionChange& change)>;
  void watch_divisions(OnDivision on_division) { on_division_ = std::move(on_division); }
  /// What becomes of the trainers' transfers, told by number, before the start. May block.
  struct TransferWatch {
    std::function<void(int trainer)> on_start;   ///< of a group
    std::function<void(int trainer)> on_abort;   ///< by the trainer itself
    std::function<Status(int trainer)> on_done;  ///< of a wait; an error breaks the connections
  };
  void watch_transfers(TransferWatch watch) { transfer_watch_ = std::move(watch); }
  /// So many slots after each other are on one host, before the start.
  void share_hosts(int slots) { slots_of_host_ = slots; }
  /// Checkpoints are on the disk before the step after theirs begins; before the start.
  void save_in_place() { saves_in_place_ = true; }
  /// While `is_held` the record's disk gives no answer, where checkpoints are saved in place.
  void hold_record(std::function<bool()> is_held) { is_record_held_ = std::move(is_held); }
  /// The members at the start: they form the first view together. That of slot 0 has `doom`.
  void start(int workers, std::string_view doom = {});
  /// So many of the trainers that die next are started again, as their sentinels do.
  void respawn_next(int trainers = 1);
  /// Until the trainer is in the newest view; the others make no step boundary meanwhile when one
  /// of them calls it from its on_state.
  void wait_for(int trainer);
  /// How a joiner ends that was ready after the last member had finished.
  static constexpr const char* kTooLate = "the training was over before it became a member";
  /// The trainer dies the next time it comes to `point`; a slow one while it connects, at kConnect.
  void doom(int trainer, std::string_view point);
  /// When it has made `step` steps and comes to `point`, the trainer stays there until release().
  void hold(int trainer, std::string_view point, std::int64_t step);
  void release(int trainer);
  /// Until the trainer is where hold() said.
  void wait_held(int trainer);
  /// Until the trainer is not in the newest view any more.
  void wait_gone(int trainer);
  /// Until the trainer is connected and waits for the others to enter with it.
  void wait_connected(int trainer);
  /// Until this is so of all in the newest view who have not trained yet.
  void wait_joiners();
  /// Until the trainer's thread has come to its end.
  void wait_ended(int trainer);
  /// The trainer's own clock is behind all others' from now on: shorter waits are over for it
  /// before they begin.
  void lag(int trainer, std::chrono::seconds by);
  /// It is asked to leave, as on SIGTERM, and belongs to all views until leave().
  void ask_to_leave(int trainer);
  /// How many of the newest view have told since they entered it that it takes nothing along.
  int spared_by(int trainer) const;
  /// It leaves at a step boundary.
  void leave(int trainer);
  /// Its connections break, and nobody dies.
  void cut(int trainer);
  /// The others are told that it is lost, and it is told nothing: as when a stopped process is
  /// voted out.
  void lose(int trainer);
  /// All stop at a step boundary. Who has not entered yet, while others have, is not waited for.
  void stop();
  /// Until every trainer has ended; at the latest after a minute, which is a failure.
  void join();

  std::vector<int> members() const;
  int slot_of(int trainer) const;
  /// How a trainer ended; after join().
  const std::optional<Result<engine::TrainingSummary>>& outcome(int trainer) const;
  int trainers() const;
  std::vector<engine::Entry> entries() const;
  /// How many logical ranks' shares of a batch were read, by all trainers together.
  std::uint64_t reads() const { return reads_; }
  /// How often one that had trained before entered a view for which it had not been prepared, so
  /// that others may have waited until it was connected.
  int stalls() const;
  /// How often a trainer has said that the members of its view cannot go on.
  int broken() const;

 private:
  class Seat;
  struct Trainer;
  struct Shared;
  struct Round;
  void publish(std::vector<int> members, bool is_urgent, bool stop = false);
  void drop_ahead(int trainer);
  bool is_connected(Round& round);
  engine::View view_of(const Round& round, int trainer) const;
  void run(int trainer);
  void end_connections(int trainer, const Round& round);
  int add_locked(int slot, std::string_view doom, bool is_slow);
  void wait_until(const char* what, const std::function<bool()>& condition);

  engine::TrainingConfig config_;
  OnState on_state_;
  AtPoint at_point_;
  OnBatch on_batch_;
  OnReport on_report_;
  TimeOfRank time_of_rank_, time_of_update_;
  OnDivision on_division_;
  std::optional<TransferWatch> transfer_watch_;
  bool saves_in_place_ = false;
  std::function<bool()> is_record_held_;
  int slots_of_host_ = 1;
  std::atomic<std::uint64_t> reads_ = 0;
  std::unique_ptr<Shared> shared_;
};

}  // namespace muster::test
