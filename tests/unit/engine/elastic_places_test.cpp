// The promise of the project at the engine, place by place: whichever place of a step or of a
// membership a trainer dies at, or stands still at, among however many, every step has the bits of
// an undisturbed run of one worker.
//
// The whole product of places, numbers of workers, configurations and victims is tried where a run
// is cheapest. Elsewhere each pair of any two of these four is met (PlaceGrid), which is what a
// mistake takes as a rule: a place that forgets something of one configuration, a size that breaks
// a place.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/run_files.h"

using namespace muster;
using namespace muster::engine;
using test::ConfigOf;
using test::digits;
using test::digits_in_buckets;
using test::digits_with_layers;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::kShardedConfigs;
using test::short_gpt;
using test::Trial;
using test::with_adamw;

namespace {

constexpr std::array kWorkers = {3, 2, 4, 5, 7, 8};
/// All there are where every member keeps the whole state; those of a step between the others.
constexpr std::array kPlaces = {
    point::kConnect,  point::kEnter,      point::kTransfer,    point::kIdle,    point::kLayer,
    point::kForward,  point::kBucket,     point::kBackward,    point::kScatter, point::kReduced,
    point::kGather,   point::kUpdate,     point::kHalfUpdated, point::kUpdated, point::kCompare,
    point::kEvaluate, point::kCheckpoint, point::kFinish};
/// The same where each keeps a part of it.
constexpr std::array kShardedPlaces = {
    point::kConnect, point::kEnter,   point::kTransfer, point::kIdle,        point::kLayer,
    point::kForward, point::kBucket,  point::kBackward, point::kScatter,     point::kReduced,
    point::kLog,     point::kLogged,  point::kUpdate,   point::kHalfUpdated, point::kGather,
    point::kUpdated, point::kCompare, point::kEvaluate, point::kCheckpoint,  point::kFinish};

bool is_of_entry(std::string_view place) {
  return place == point::kConnect || place == point::kEnter || place == point::kTransfer;
}
bool is_of_files(std::string_view place) {
  return place == point::kCompare || place == point::kCheckpoint;
}

/// So long that all places come after step 12: an evaluation with step 22, a checkpoint with 20.
struct PlaceTrial : Trial {
  PlaceTrial(ConfigOf config_of, std::string_view place) {
    steps = 26;
    config = config_of(steps);
    if (!is_of_files(place)) return;
    config.checkpoint_path = directory.path();
    config.checkpoint_every_steps = 20;
  }
  const test::TempDirectory directory;
};

TrainingConfig layers_with_adamw(std::int64_t steps) {
  return with_adamw(digits_with_layers(steps));
}

/// Of passes that have a part of a node each.
TrainingConfig buckets_of_parts(std::int64_t steps) {
  TrainingConfig config = digits_in_buckets(steps);
  config.micro_batch_size = config.batch_size / config.logical_ranks;
  return config;
}

constexpr std::array<ConfigOf, 4> kPlaceConfigs = {test::digits, layers_with_adamw,
                                                   digits_in_buckets, short_gpt};
constexpr std::array<ConfigOf, 4> kAdamwConfigs = {short_gpt, digits_in_buckets, layers_with_adamw,
                                                   buckets_of_parts};
constexpr std::array<ConfigOf, 4> kShardedGridConfigs = {test::wide, test::wide_gpt,
                                                         test::wide_layers, test::wide_buckets};

/// One case of many.
struct PlaceCase {
  int workers = 0;
  std::string_view place;
  std::size_t config = 0;  ///< which of those that are tried
  int victim = 0;
};

/// Each place with each number of workers, and each of those two with each configuration and with
/// each of three victims: slot 0, which has the files, the last one and one in the middle.
/// `turn`: of so many grids with other pairs of three and four.
struct PlaceGrid {
  std::span<const std::string_view> places;
  std::span<const ConfigOf> configs;
  std::size_t turn = 0;

  std::vector<PlaceCase> cases() const {
    std::vector<PlaceCase> all;
    for (std::size_t w = 0; w < kWorkers.size(); ++w) {
      for (std::size_t p = 0; p < places.size(); ++p) all.push_back(case_of(w, p));
    }
    return all;
  }
  /// Of these one for each place, the numbers of workers in turn.
  std::vector<PlaceCase> cases_in_turn() const {
    std::vector<PlaceCase> all;
    for (std::size_t p = 0; p < places.size(); ++p) {
      all.push_back(case_of((p + turn) % kWorkers.size(), p));
    }
    return all;
  }

 private:
  PlaceCase case_of(std::size_t w, std::size_t p) const {
    const int workers = kWorkers[w];
    std::size_t config = (w + p + turn) % configs.size();
    // Where there is but one bucket, nothing is sent before the backward pass is over.
    while (places[p] == point::kBucket && configs[config](1).bucket_blocks > 1) {
      config = (config + 1) % configs.size();
    }
    const std::array victims = {0, workers - 1, workers / 2};
    return {workers, places[p], config, victims[(w / 2 + p + turn) % victims.size()]};
  }
};

/// Each place is met with several numbers of workers, and so with hosts of 1 to 3.
int slots_of_host(std::string_view place, int workers) {
  return 1 + (static_cast<int>(place.size()) + workers) % 3;
}

struct Death {
  int workers = 0, victim = 0;
};

void die_at(std::string_view place, Death death, ConfigOf config_of) {
  CAPTURE(std::string(place));
  CAPTURE(death.workers);
  CAPTURE(death.victim);
  PlaceTrial trial(config_of, place);
  trial.slots_of_host = slots_of_host(place, death.workers);
  // Files are slot 0's alone: the others wait for it at the end.
  const bool comes_back = is_of_files(place) && death.victim == 0;
  if (comes_back) trial.before = [](ElasticWorld& world) { world.respawn_next(); };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    world.doom(death.victim, place);
    if (is_of_entry(place)) world.cut(death.victim);
  };
  const Ends ends = ends_of(*trial.run(death.workers), trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == death.workers - (comes_back ? 0 : 1));
}

void die_at_each_place(ConfigOf config_of, int workers) {
  for (const std::string_view place : kPlaces) {
    if (place == point::kBucket && config_of(1).bucket_blocks > 1) continue;  // they have but one
    for (const int victim : {0, workers - 1}) die_at(place, {workers, victim}, config_of);
  }
}

}  // namespace

TEST_CASE("a worker dies at each place, of 2 to 8: no step is lost, the bits stay") {
  for (const int workers : kWorkers) die_at_each_place(digits, workers);
}

TEST_CASE("a worker dies at each place: nor do running statistics and masks tell of it") {
  for (const int workers : test::tried(kWorkers)) {
    die_at_each_place(digits_with_layers, workers);
  }
}

TEST_CASE(
    "a worker dies at each place, of 2 to 8: nor do moments, buckets and parts of nodes tell") {
  for (const PlaceCase& one : PlaceGrid{kPlaces, kAdamwConfigs}.cases()) {
    die_at(one.place, {one.workers, one.victim}, kAdamwConfigs[one.config]);
  }
}

TEST_CASE("sharded, a worker dies at each place, of 2 to 8: its buddy has what it had") {
  for (const std::size_t turn : {0u, 1u}) {
    for (const PlaceCase& one : PlaceGrid{kShardedPlaces, kShardedGridConfigs, turn}.cases()) {
      die_at(one.place, {one.workers, one.victim}, kShardedGridConfigs[one.config]);
    }
  }
}

TEST_CASE("the grid of places has every pair that it promises") {
  const auto grid = PlaceGrid{kShardedPlaces, kShardedGridConfigs}.cases();
  std::set<std::pair<int, std::string_view>> sized;
  std::set<std::pair<int, std::size_t>> sizes_configured;
  std::set<std::pair<std::string_view, std::size_t>> places_configured;
  std::set<std::pair<std::string_view, int>> places_of_first;
  for (const PlaceCase& one : grid) {
    sized.emplace(one.workers, one.place);
    sizes_configured.emplace(one.workers, one.config);
    places_configured.emplace(one.place, one.config);
    places_of_first.emplace(one.place, one.victim == 0 ? 1 : 0);
  }
  const std::size_t sizes = kWorkers.size(), places = kShardedPlaces.size();
  CHECK(sized.size() == sizes * places);
  CHECK(sizes_configured.size() == sizes * kShardedGridConfigs.size());
  // But for the place that two of the four have alone.
  CHECK(places_configured.size() == (places - 1) * kShardedGridConfigs.size() + 2);
  CHECK(places_of_first.size() == places * 2);
  std::set<int> sizes_in_turn;
  std::set<std::string_view> places_in_turn;
  for (const PlaceCase& one : PlaceGrid{kShardedPlaces, kShardedGridConfigs}.cases_in_turn()) {
    sizes_in_turn.insert(one.workers);
    places_in_turn.insert(one.place);
  }
  CHECK(sizes_in_turn.size() == sizes);
  CHECK(places_in_turn.size() == places);
}

namespace {

/// Of five that keep parts of the state: neighbours, of whom each keeps a copy for another.
constexpr std::array kRelieved = {1, 2};
/// By then others have copies of what those keep who were asked to leave so many steps before.
constexpr std::int64_t kAskedAt = 9, kReliefSteps = 3;

/// In the step after which both leave, or one of them, `victim` dies; -1: connections break. The
/// membership without them is decided by then.
void lose_as_they_leave(std::string_view place, int victim, ConfigOf config_of) {
  CAPTURE(std::string(place));
  CAPTURE(victim);
  constexpr int kMembers = 5;
  Trial trial;
  trial.steps = 26;
  trial.config = config_of(trial.steps);
  int leavers = 0;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == kAskedAt) {
      for (const int one : kRelieved) world.ask_to_leave(one);
    }
    if (step != kAskedAt + kReliefSteps) return;
    for (const int one : kRelieved) CHECK(world.spared_by(one) == kMembers);
    for (const int one : kRelieved) {
      if (one == victim) continue;
      world.leave(one);
      ++leavers;
    }
    if (victim < 0) return world.cut(0);
    world.doom(victim, place);
  };
  const auto world = trial.run(kMembers);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.left == leavers);
  CHECK(ends.killed == (victim < 0 ? 0 : 1));
  CHECK(ends.complete == kMembers - ends.left - ends.killed);
}

}  // namespace

TEST_CASE("sharded, one is lost as an owner and its buddy leave: others have what they kept") {
  std::size_t turn = 0;
  for (const std::string_view place : kShardedPlaces) {
    const bool is_of_step = !is_of_entry(place) && !is_of_files(place) &&
                            place != point::kEvaluate && place != point::kFinish;
    if (!is_of_step) continue;
    // One of those who stay, the first of them, and the one who is to leave as well.
    for (const int victim : {3, 0, kRelieved[1]}) {
      // With one bucket nothing is sent before the backward pass is over.
      const ConfigOf config_of = kShardedConfigs[turn++ % kShardedConfigs.size()];
      lose_as_they_leave(place, victim, place == point::kBucket ? test::wide_buckets : config_of);
    }
  }
  for (const ConfigOf config_of : kShardedConfigs) lose_as_they_leave("", -1, config_of);
}

namespace {

constexpr std::int64_t kStandFrom = 12;

/// Whether the others go on without who stands still, or wait until it moves again.
enum class StandVerdict { kWaitedFor, kLost };

/// One of the trainers stands still at a place, as one that was sent SIGSTOP, until the others have
/// come as far as they can without it.
class Standstill {
 public:
  /// `from`: where it stands must be of this step or a later one.
  Standstill(std::string_view place, int trainer, int workers, StandVerdict verdict,
             std::int64_t from = kStandFrom)
      : place_(place),
        trainer_(trainer),
        others_(static_cast<std::size_t>(workers - 1)),
        verdict_(verdict),
        from_(from) {}

  /// At every point of every trainer. `meanwhile`: what happens while it stands, when the others
  /// wait for it.
  Status at(int trainer, std::string_view point, std::int64_t step,
            const std::function<void()>& meanwhile) {
    std::unique_lock lock(mutex_);
    if (trainer != trainer_) {
      // Nobody has the sums of a step that one has not given its own to.
      const bool is_of_step = !is_of_entry(place_) && !is_of_files(place_) &&
                              place_ != point::kEvaluate && place_ != point::kFinish;
      const bool is_far =
          is_of_step ? point == point::kBucket || point == point::kScatter : point == place_;
      if (step >= kStandFrom && is_far) waiting_.insert(trainer);
      if (has_stood_ && point == point::kEnter) entering_.insert(trainer);
      changed_.notify_all();
      return {};
    }
    if (point != place_ || step < from_ || has_stood_) return {};
    was_waited_for = wait(lock, waiting_);
    has_stood_ = true;
    if (meanwhile) {
      lock.unlock();  // who comes meanwhile passes points of its own
      meanwhile();
      lock.lock();
    }
    if (verdict_ == StandVerdict::kLost) went_on_without = wait(lock, entering_);
    return {};
  }

  bool was_waited_for = false, went_on_without = false;

 private:
  bool wait(std::unique_lock<std::mutex>& lock, const std::set<int>& who) {
    return changed_.wait_for(lock, seconds(20), [&] { return who.size() == others_; });
  }

  const std::string_view place_;
  const int trainer_;
  const std::size_t others_;
  const StandVerdict verdict_;
  const std::int64_t from_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_stood_ = false;
  std::set<int> waiting_, entering_;
};

void stand_at(const PlaceCase& one, ConfigOf config_of, StandVerdict verdict) {
  CAPTURE(std::string(one.place));
  CAPTURE(one.workers);
  CAPTURE(one.config);
  const bool is_lost = verdict == StandVerdict::kLost;
  PlaceTrial trial(config_of, one.place);
  // Without slot 0 there would be nobody to write files to the end.
  const int trainer = is_of_files(one.place) ? one.workers - 1 : one.victim;
  CAPTURE(trainer);
  Standstill standstill(one.place, trainer, one.workers, verdict);
  trial.before = [&](ElasticWorld& world) {
    const auto lose = [&] { world.lose(trainer); };
    world.watch_points([&, lose](int who, std::string_view point, std::int64_t step) {
      return standstill.at(who, point, step, is_lost ? lose : std::function<void()>());
    });
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    // The one behind has made the step before by then.
    if (step == 14 && is_of_entry(one.place)) world.cut(0);
  };
  const auto world = trial.run(one.workers);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(standstill.was_waited_for);
  CHECK(standstill.went_on_without == is_lost);
  CHECK(ends.left == (is_lost ? 1 : 0));
  CHECK(ends.complete == one.workers - ends.left);
  if (is_lost) return;
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  const auto entries = static_cast<std::size_t>(one.workers) * (is_of_entry(one.place) ? 2u : 1u);
  CHECK(world->entries().size() == entries);
  if (!is_of_entry(one.place)) CHECK(ends.reads == ends.computations);
}

constexpr std::array kGrids = {PlaceGrid{kPlaces, kPlaceConfigs},
                               PlaceGrid{kShardedPlaces, kShardedGridConfigs}};

}  // namespace

// With every number of workers at each place something happens meanwhile: the others lose it, or
// one leaves or joins, below.
TEST_CASE("a trainer of 2 to 8 stands still at each place and goes on: nothing comes of it") {
  for (const PlaceGrid& grid : kGrids) {
    for (const PlaceCase& one : grid.cases_in_turn()) {
      stand_at(one, grid.configs[one.config], StandVerdict::kWaitedFor);
    }
  }
}

TEST_CASE("a trainer of 2 to 8 stands still at each place, and is left behind: it does nothing") {
  for (PlaceGrid grid : kGrids) {
    grid.turn = 1;
    for (const PlaceCase& one : grid.cases()) {
      stand_at(one, grid.configs[one.config], StandVerdict::kLost);
    }
  }
}

namespace {

enum class Who { kNobody, kStanding, kOther };

/// What was planned and happens to the members while one of them stands still.
struct Change {
  bool is_joiner = false;     ///< who stands is one more that is just coming
  Who leaves = Who::kNobody;  ///< kNobody: another joins
};
constexpr std::array kChanges = {Change{false, Who::kStanding}, Change{false, Who::kOther},
                                 Change{false, Who::kNobody}};
constexpr std::array kChangesOfJoin = {Change{true, Who::kStanding}, Change{true, Who::kOther},
                                       Change{true, Who::kNobody}};

/// Of one worker that nothing happens to.
const std::vector<std::string>& calm_record(ConfigOf config_of) {
  static std::map<ConfigOf, std::vector<std::string>> known;
  std::vector<std::string>& lines = known[config_of];
  if (!lines.empty()) return lines;
  PlaceTrial trial(config_of, point::kCheckpoint);
  trial.config.is_sharded = false;
  trial.run(1);
  lines = test::record_of(trial.directory.path());
  CHECK(lines.size() >= static_cast<std::size_t>(trial.steps));
  return lines;
}

/// Who stands still, and who leaves; -1: nobody, and one joins.
struct Roles {
  Roles(const PlaceCase& one, const Change& change)
      : members(one.workers), standing(one.victim), is_joining(change.is_joiner) {
    // Without slot 0 there would be nobody to write files to the end.
    const bool needs_files = is_of_files(one.place);
    if (needs_files && change.leaves == Who::kStanding && standing == 0) standing = members - 1;
    if (needs_files && change.leaves == Who::kOther && members == 2) standing = 0;
    int other = (standing + 1) % members;
    if (needs_files && other == 0) other = 1;
    if (is_joining) standing = members;
    leaver = change.leaves == Who::kNobody ? -1 : change.leaves == Who::kOther ? other : standing;
  }

  int members = 0, standing = 0, leaver = -1;
  bool is_joining = false;
  int before() const { return members + (is_joining ? 1 : 0); }
  int after() const { return leaver < 0 ? before() + 1 : before() - 1; }
};

/// Nobody waits for a change that was planned, whenever it comes: all make it after a step, nothing
/// is computed twice, and there is one membership more than without it.
void change_at(const PlaceCase& one, ConfigOf config_of, const Change& change) {
  const Roles roles(one, change);
  CAPTURE(std::string(one.place));
  CAPTURE(roles.members);
  CAPTURE(one.config);
  CAPTURE(roles.standing);
  CAPTURE(roles.leaver);
  PlaceTrial trial(config_of, one.place);
  const bool has_files = roles.leaver != 0;
  if (has_files) {
    trial.config.checkpoint_path = trial.directory.path();
    trial.config.checkpoint_every_steps = 20;
  }
  // A joiner has made no step when it enters.
  Standstill standstill(one.place, roles.standing, roles.before(), StandVerdict::kWaitedFor,
                        roles.is_joining ? 0 : kStandFrom);
  trial.before = [&](ElasticWorld& world) {
    const auto happens = [&world, &roles] {
      if (roles.leaver >= 0) return world.leave(roles.leaver);
      world.wait_for(world.add(roles.before()));
    };
    world.watch_points([&, happens](int who, std::string_view point, std::int64_t step) {
      return standstill.at(who, point, step, happens);
    });
  };
  const bool is_cut = !roles.is_joining && is_of_entry(one.place);
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (roles.is_joining && step == kStandFrom - 1) world.wait_for(world.add(roles.members));
    // The one behind has made the step before by then.
    if (is_cut && step == kStandFrom + 2) world.cut(0);
  };
  const auto world = trial.run(roles.members);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(standstill.was_waited_for);
  CHECK(ends.left == (roles.leaver < 0 ? 0 : 1));
  CHECK(ends.complete == roles.after());
  CHECK(ends.killed + ends.late == 0);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  const int entries =
      roles.members + (roles.is_joining || is_cut ? roles.before() : 0) + roles.after();
  CHECK(world->entries().size() == static_cast<std::size_t>(entries));
  if (has_files) CHECK(test::record_of(trial.directory.path()) == calm_record(config_of));
  if (is_cut) return;
  CHECK(ends.reads == ends.computations);
  CHECK(world->stalls() == 0);
}

/// When all is done, nobody goes over into anything.
bool may_change_at(std::string_view place) { return place != point::kFinish; }

}  // namespace

TEST_CASE("one of 3 leaves, or one joins, while one stands still at each place: no step is cut") {
  for (PlaceGrid grid : kGrids) {
    for (grid.turn = 0; grid.turn < kChanges.size(); ++grid.turn) {
      for (const PlaceCase& one : grid.cases()) {
        if (one.workers != 3 || !may_change_at(one.place)) continue;
        change_at(one, grid.configs[one.config], kChanges[grid.turn]);
      }
    }
  }
}

// One of the changes at a place, and all of them with each number of workers.
TEST_CASE("one of 2 to 8 leaves, or one joins, while one stands still at each place: the same") {
  for (const PlaceGrid& grid : kGrids) {
    std::size_t next = 0;
    std::set<std::pair<std::string_view, std::size_t>> met;
    for (const PlaceCase& one : grid.cases()) {
      if (one.workers == 3 || !may_change_at(one.place)) continue;
      const std::size_t change = next++ % kChanges.size();
      met.emplace(one.place, change);
      change_at(one, grid.configs[one.config], kChanges[change]);
    }
    CHECK(met.size() == (grid.places.size() - 1) * kChanges.size());
  }
}

TEST_CASE("one leaves, or one more joins, while a joiner stands still at each place: the same") {
  for (PlaceGrid grid : kGrids) {
    for (grid.turn = 0; grid.turn < kChangesOfJoin.size(); ++grid.turn) {
      for (PlaceCase one : grid.cases_in_turn()) {
        if (!may_change_at(one.place)) continue;
        // Of many the last may keep no block that it could update.
        if (one.place == point::kHalfUpdated) one.workers = 3;
        one.victim %= one.workers;
        change_at(one, grid.configs[one.config], kChangesOfJoin[grid.turn]);
      }
    }
  }
}

namespace {

/// What happens at random to the members of one run, of which one that nothing happens to keeps the
/// state.
class RandomChanges {
 public:
  RandomChanges(std::uint64_t seed, std::int64_t until) : rng_(seed), until_(until) {}

  void operator()(ElasticWorld& world, std::int64_t step) {
    if (step >= until_ || rng_.below(3) != 0) return;
    if (slow_ >= 0) world.let_connect(std::exchange(slow_, -1));
    const std::vector<int> members = world.members();
    const int one = members[rng_.below(members.size())];
    const auto event = rng_.below(8);
    if (event < 3 && members.size() > doomed.size() + 1 && world.slot_of(one) != 0) {
      const std::string_view place = kPlaces[rng_.below(kPlaces.size())];
      if (doomed.emplace(one, place).second) world.doom(one, place);
    } else if (event < 6 && members.size() < 8) {
      const int slot = 1 + static_cast<int>(rng_.below(12));
      if (rng_.below(2) == 0) {
        slow_ = world.add_slow(slot);
      } else {
        world.add(slot);
      }
    } else if (event == 6 && world.slot_of(one) != 0) {
      world.leave(one);
    } else {
      world.cut(one);
    }
  }

  std::map<int, std::string> doomed;  ///< by trainer: where it is to die

 private:
  Rng rng_;
  const std::int64_t until_;
  int slow_ = -1;
};

/// Where trainers died in one random run.
std::vector<std::string> deaths_of_run(std::uint32_t number) {
  const test::TempDirectory directory;
  Trial trial;
  trial.slots_of_host = 1 + static_cast<int>(number % 3);
  if (number % 4 >= 2) trial.config = digits_with_layers(trial.steps);
  if (number % 8 >= 4) trial.config = with_adamw(trial.config);
  if (number % 3 == 2) trial.config = digits_in_buckets(trial.steps);
  if (number % 5 == 4) trial.config = short_gpt(trial.steps);
  if (number % 2 == 1) {
    trial.config.checkpoint_path = directory.path();
    trial.config.checkpoint_every_steps = 5;
  }
  RandomChanges changes(test::seed() * 1'000 + number, 40);
  trial.at_step = std::ref(changes);
  const auto world = trial.run(kWorkers[number % kWorkers.size()]);
  CHECK(ends_of(*world, trial.steps).complete >= 1);
  std::vector<std::string> deaths;
  for (const auto& [trainer, place] : changes.doomed) {
    if (!world->outcome(trainer)->has_value()) deaths.push_back(place);
  }
  return deaths;
}

}  // namespace

TEST_CASE("random joins, leaves, deaths and cuts at random places: the same bits at every step") {
  constexpr std::uint32_t kRunsLeast = test::tries(60), kRunsMost = 300;
  std::map<std::string, int> deaths;
  std::uint32_t number = 0;
  // How far a trainer has come when others break a view is up to the machine.
  for (; number < kRunsLeast || (number < kRunsMost && deaths.size() < kPlaces.size()); ++number) {
    CAPTURE(number);
    CAPTURE(test::seed());
    for (const std::string& place : deaths_of_run(number)) ++deaths[place];
  }
  std::string table;
  for (const std::string_view place : kPlaces) {
    const int count = deaths[std::string(place)];
    table += " " + std::string(place) + " " + std::to_string(count);
    CHECK_MESSAGE(count >= 1, "nobody died at ", std::string(place));
  }
  MESSAGE("deaths by place in " << number << " runs:" << table);
}
