// Trainings in an ElasticWorld, each state of each trainer held against an undisturbed run of one
// worker that keeps everything.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/engine/elastic_world.h"
#include "tests/unit/engine/reference_state.h"

namespace muster::test {

/// Holds every state of every trainer and what was read for each step against the reference, and
/// calls `at_step` the first time that anybody comes to a step.
class Watch {
 public:
  Watch(const engine::TrainingConfig& config, std::function<void(std::int64_t)> at_step)
      : expected_(reference(config)),
        logical_ranks_(static_cast<std::size_t>(config.logical_ranks)),
        at_step_(std::move(at_step)) {
    if (config.group_size() > 1) stages_.emplace(config);
  }

  /// `stage`: the part of the model that it has.
  void see(int trainer, int stage, std::int64_t step, std::span<const float> parameters,
           const engine::OptimizerState& optimizer);
  void read(std::int64_t step, data::RankRange ranks, std::span<const std::uint64_t> samples);
  /// `falls`: how many times a trainer may have gone back to an earlier step.
  void check(int falls);
  /// Of the first step that anybody read anything for.
  std::int64_t first_step() const { return samples_.empty() ? 0 : samples_.begin()->first; }

 private:
  using Samples = std::vector<std::uint64_t>;
  bool is_all_read(std::int64_t step) const;

  const std::map<std::int64_t, ReferenceState>& expected_;
  const std::size_t logical_ranks_;
  std::function<void(std::int64_t)> at_step_;
  std::optional<StageReference> stages_;
  std::mutex mutex_, events_;
  std::map<int, std::int64_t> last_;
  std::map<std::int64_t, std::map<int, Samples>> samples_;  ///< by step and logical rank
  std::int64_t newest_ = 0;
  int states_ = 0, wrong_ = 0, backwards_ = 0;
  int read_differently_ = 0;  ///< logical ranks, of one step, by one and then by another
};

using ConfigOf = engine::TrainingConfig (*)(std::int64_t steps);
/// Sharded. Seven blocks, so that most processes own some, and not all as many.
engine::TrainingConfig wide(std::int64_t steps);
engine::TrainingConfig wide_adamw(std::int64_t steps);
/// Running statistics behind the parameters, in a block with some of them.
engine::TrainingConfig wide_layers(std::int64_t steps);
/// Each process owns parts of several buckets.
engine::TrainingConfig wide_buckets(std::int64_t steps);
/// A transformer, of a tied table and nine blocks, with buckets.
engine::TrainingConfig wide_gpt(std::int64_t steps);
inline constexpr std::array<ConfigOf, 4> kShardedConfigs = {wide, wide_adamw, wide_layers,
                                                            wide_buckets};
/// The least of a transformer that has two stages, of so few tokens that it is as quick as digits.
engine::TrainingConfig short_gpt(std::int64_t steps);

/// A run with what `at_step` does to it.
struct Trial {
  std::int64_t steps = 44;
  engine::TrainingConfig config = digits(steps);
  std::function<void(ElasticWorld&, std::int64_t)> at_step;
  std::function<void(ElasticWorld&)> before;
  std::string_view doom_of_slot_0;
  int slots_of_host = 1;
  int falls = 0;  ///< trainers that may go back to a checkpoint
  ElasticWorld::OnState on_state;

  std::unique_ptr<ElasticWorld> run(int workers) const;
};

/// While `change` happens, the first trainers, three or `members`, stand at the beginning of the
/// step after `step`.
class BetweenSteps {
 public:
  BetweenSteps(std::int64_t step, std::function<void(ElasticWorld&)> change, int members = 3)
      : step_(step), members_(members), change_(std::move(change)) {}
  ~BetweenSteps() {
    if (thread_.joinable()) thread_.join();
  }
  BetweenSteps(const BetweenSteps&) = delete;
  BetweenSteps& operator=(const BetweenSteps&) = delete;

  void operator()(ElasticWorld& world, std::int64_t step) {
    if (step != step_ - 1) return;
    hold_all(world, engine::point::kIdle);
    thread_ = std::thread([this, &world] {
      wait_all(world);
      change_(world);
      for (int trainer = 0; trainer < members_; ++trainer) world.release(trainer);
    });
  }
  /// Moves all of them on to `point` of that step.
  void go_to(ElasticWorld& world, std::string_view point) const {
    hold_all(world, point);
    wait_all(world);
  }

 private:
  void hold_all(ElasticWorld& world, std::string_view point) const {
    for (int trainer = 0; trainer < members_; ++trainer) world.hold(trainer, point, step_);
  }
  void wait_all(ElasticWorld& world) const {
    for (int trainer = 0; trainer < members_; ++trainer) world.wait_held(trainer);
  }

  std::int64_t step_;
  int members_;
  std::function<void(ElasticWorld&)> change_;
  std::thread thread_;
};

struct Ends {
  int complete = 0, left = 0, killed = 0;
  int late = 0;  ///< joiners that found the training over, as on a busy machine
  std::uint64_t computations = 0;
  std::uint64_t reads = 0;  ///< shares of batches that were read
};
Ends ends_of(const ElasticWorld& world, std::int64_t steps);

}  // namespace muster::test
