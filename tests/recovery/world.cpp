#include "tests/recovery/world.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "tests/recovery/saved_steps.h"
#include "tests/recovery/sendings.h"
#include "tests/recovery/stage.h"
#include "tests/recovery/trainer.h"
#include "tests/recovery/wire.h"
#include "worker/engine/keeping.h"

namespace muster::sim {
namespace {

using engine::TrainingSummary;

constexpr seconds kEnd{1'500};  ///< of virtual time; an undisturbed run takes about one
constexpr milliseconds kGatherStart{5'000};
constexpr seconds kGrace{20};  ///< for those who were asked to stop

class World final : public WireWorld, public SeatWorld {
 public:
  World(std::uint64_t seed, const Lessons& lessons, std::string directory, bool is_loud)
      : seed_(seed),
        has_speeds_(is_about_speeds(seed)),
        has_flips_(is_about_flips(seed)),
        size_(size_of_world(seed)),
        rng_(seed),
        lesson_(lessons.of(seed)[rng_.below(lessons.of(seed).size())]),
        config_(lesson_.config),
        directory_(std::move(directory)),
        is_loud_(is_loud),
        stage_(rng_) {}
  ~World() override {
    stage_.end();
    trainers_.clear();  // their connections tell the stage that they close
    stage_.end();
  }

  RecoveryResult run() {
    plan();
    begin();
    const auto ended = stage_.run(stage_.now() + kEnd, [this] { return is_over(); });
    if (result_.wrong.empty() && ended != Stage::Ended::kOver) {
      fail(std::string(ended == Stage::Ended::kTime ? "it does not end" : "nobody gets on") +
           describe());
    }
    if (result_.wrong.empty()) fail(wrong_in_record(directory_, lesson_));
    return result_;
  }

  // ---- For the wires

  int host_of(int number) override { return trainer(number).slot / slots_of_host_; }
  std::size_t kind_of_next(int from) override { return trainer(from).place; }
  nanoseconds short_time() override { return microseconds(20 + rng_.below(400)); }
  void wrong(const std::string& what) override { fail(what); }

  Journey depart(int from, int to, std::size_t kind) override {
    ++result_.messages[std::min(kind, kMessagePlaces.size() - 1)];
    Journey journey;
    journey.under_way = short_time();
    const auto fault = spring(kind, [](MessageFault one) { return is_of_sender(one); });
    if (!fault) return journey;
    say("a message from " + text(from) + " to " + text(to) + " meets: " +
        kMessageFaultNames[static_cast<std::size_t>(*fault)] + ", sent at " + place_of(kind));
    switch (*fault) {
      case MessageFault::kLate:
        // Longer than anybody waits for it, at times.
        journey.under_way = chance(0.2) ? nanoseconds(seconds(35)) : span(50, 3'000);
        break;
      case MessageFault::kCut:
        journey.is_cut = true;
        break;
      case MessageFault::kFlipped:
        journey.is_flipped = true;
        break;
      case MessageFault::kTwice:
        journey.is_twice = true;
        break;
      default:
        die(from, *fault == MessageFault::kSenderLosesPower);
    }
    return journey;
  }

  void arrive(int from, int to, std::size_t kind) override {
    const auto fault = spring(kind, [](MessageFault one) { return !is_of_sender(one); });
    if (!fault) return;
    say("a message from " + text(from) + " to " + text(to) + " meets: " +
        kMessageFaultNames[static_cast<std::size_t>(*fault)] + ", sent at " + place_of(kind));
    if (*fault == MessageFault::kReceiverDies) return die(to, false);
    freeze(to, span(20, 2'000));
  }

  // ---- For the seats

  void on_ready(int number, const Sha256Digest& digest) override {
    if (digest_ && *digest_ != digest) fail("trainers are about different things");
    digest_ = digest;
    trainer(number).is_ready = true;
    trainer(number).ready_at = stage_.now();
    evaluate_soon();
  }

  void on_broken(int number, std::int64_t epoch, const Error& why) override {
    const Trainer& self = trainer(number);
    say(text(number) + " gives up " + std::to_string(epoch) + ": " + why.message());
    trainer(number).broken_epoch = epoch;
    if (why.message().find("has not made the step") != std::string::npos) {
      ++result_.events["foreseen wrongly"];
    }
    const bool is_in_vain = self.ahead_epoch == epoch && !self.has_made_step_in(epoch);
    if (is_in_vain) ++result_.events["went ahead in vain"];
    break_up(number, epoch);
  }

  /// Once all who train have said so of one membership in one step, they go over after it.
  void on_prepared(int number, std::int64_t epoch) override {
    Trainer& self = trainer(number);
    self.prepared_epoch = epoch;
    self.prepared_step = self.last_step;
    const auto goes_over = [&](const auto& one) {
      if (!one->lives() || one->entered_epoch != self.entered_epoch) return true;
      return one->prepared_epoch == epoch && one->prepared_step == self.last_step;
    };
    if (flip_epoch_ == epoch || !std::ranges::all_of(trainers_, goes_over)) return;
    flip_epoch_ = epoch;
    ++result_.events["flips"];
    if (flip_faults_left_ > 0) disturb_flip();
  }

  void on_connected(int number, std::int64_t epoch) override {
    trainer(number).connected_epoch = epoch;
  }

  void on_entered(int number, const engine::Entry& entry) override {
    Trainer& self = trainer(number);
    say(text(number) + " enters " + std::to_string(entry.epoch) + " at step " +
        std::to_string(entry.step) + (entry.returned.empty() ? "" : ": " + entry.returned));
    const auto [found, is_first] = entered_.emplace(entry.epoch, entry.step);
    if (!is_first && found->second != entry.step) {
      fail("members of " + std::to_string(entry.epoch) + " enter at steps " +
           std::to_string(found->second) + " and " + std::to_string(entry.step));
    }
    fail(saved_.see_entered(entry.step));
    const std::int64_t before = std::max(self.last_step, std::exchange(self.fell_from, -1));
    if (entry.step < before) note_fall(number, before, entry);
    self.entered_epoch = entry.epoch;
    self.entered_step = entry.step;
    self.steps_in_epoch = 0;
    for (const auto& one : trainers_) one->is_spared = false;
    const bool is_ahead =
        entry.epoch == round_.epoch && std::ranges::any_of(round_.members, [&](int member) {
          const Trainer& one = trainer(member);
          return one.came_epoch < entry.epoch && one.connected_epoch < entry.epoch;
        });
    if (!is_ahead) return;
    self.ahead_epoch = entry.epoch;
    ++result_.events["went ahead"];
  }

  void on_waits(int number, std::int64_t epoch) override {
    say(text(number) + " waits in " + std::to_string(epoch));
    ++result_.events["waits for its copy"];
    trainer(number).entered_epoch = epoch;
    trainer(number).steps_in_epoch = 0;
  }

  void on_spared(int, std::int64_t epoch, const std::vector<int>& slots) override {
    if (epoch != round_.epoch) return;
    for (const int member : round_.members) {
      Trainer& one = trainer(member);
      one.is_spared = one.is_leaving && std::ranges::find(slots, one.slot) != slots.end();
    }
    evaluate_soon();
  }

 private:
  // ---- Small things

  Trainer& trainer(int number) { return *trainers_[static_cast<std::size_t>(number)]; }
  bool chance(double probability) { return rng_.unit() < probability; }
  nanoseconds span(std::uint64_t from_ms, std::uint64_t to_ms) {
    return milliseconds(from_ms) + microseconds(rng_.below((to_ms - from_ms) * 1'000 + 1));
  }
  /// Nothing where `what` is empty.
  void fail(const std::string& what) {
    if (result_.wrong.empty()) result_.wrong = what;
  }
  std::string text(int number) {
    const Trainer& one = trainer(number);
    return "#" + std::to_string(number) + " (slot " + std::to_string(one.slot) + ")";
  }
  void say(const std::string& what) {
    if (is_loud_) {
      std::printf("%10.3f ms  %s\n", seconds_of(stage_.now().time_since_epoch()) * 1e3,
                  what.c_str());
    }
  }
  std::string describe() {
    std::string all =
        "; round " + std::to_string(round_.epoch) + " of " + std::to_string(round_.members.size());
    for (std::size_t i = 0; i < trainers_.size(); ++i) {
      const Trainer& one = *trainers_[i];
      if (!one.lives()) continue;
      all += "; " + text(static_cast<int>(i)) + " at " + place_of(one.place) + ", step " +
             std::to_string(one.last_step) + ", knows " + std::to_string(one.seat->newest_epoch()) +
             ", entered " + std::to_string(one.entered_epoch);
    }
    return all;
  }

  /// The fault that waits for this message, if one does.
  template <typename Fits>
  std::optional<MessageFault> spring(std::size_t kind, const Fits& fits) {
    if (is_job_over_) return std::nullopt;
    for (std::size_t i = 0; i < traps_.size(); ++i) {
      if (traps_[i].place != kind || !fits(traps_[i].fault)) continue;
      if (traps_[i].left-- > 0) continue;
      const MessageFault fault = traps_[i].fault;
      traps_.erase(traps_.begin() + static_cast<std::ptrdiff_t>(i));
      ++result_.coverage[kind][static_cast<std::size_t>(fault)];
      if (has_uneven_sums()) ++result_.events["faults of uneven sums"];
      if (is_about_many(seed_) && round_.members.size() > 6) ++result_.events["faults of many"];
      return fault;
    }
    return std::nullopt;
  }

  // ---- Plan

  void plan() {
    config_.checkpoint_path = directory_;
    config_.checkpoint_every_steps = static_cast<std::int64_t>(5 + rng_.below(8));
    std::filesystem::create_directories(directory_);
    is_slow_disk_ = chance(0.3);
    const bool has_layers = config_.cnn && config_.cnn->normalise && config_.cnn->dropout > 0;
    if (has_layers) ++result_.events["worlds of batch statistics and masks"];
    is_late_sentinel_ = chance(0.3);
    tears_left_ = chance(0.4) ? 1 + rng_.below(6) : 0;
    // Of every fifth seed, so that the others are as they were.
    if (seed_ % 5 == 2 || has_speeds_) config_.look_steps = 2;
    holds_left_ = seed_ % 3 == 2 ? 6 : 0;
    set_workers();
    if (workers_ == 1 && chance(0.7)) workers_ = 3;
    // One that seeds have in turn, so that none is left out, and some more.
    const std::uint64_t places = sendings().size();
    set_trap(sendings()[seed_ % places], seed_ / places % kDrawnFaults);
    for (std::uint64_t more = has_flips_ ? 0 : rng_.below(10); more > 0; --more) {
      const std::uint64_t fault = rng_.below(kDrawnFaults);
      set_trap(sendings()[rng_.below(places)], fault);
    }
    share_hosts();
    if (is_about_many(seed_)) std::ranges::copy(traps_of_many(seed_), std::back_inserter(traps_));
    if (sends_twice(seed_)) {
      std::ranges::copy(traps_of_twice(seed_, sendings()), std::back_inserter(traps_));
    }
    const std::uint64_t others = has_flips_ ? 0 : rng_.below(7);
    for (std::uint64_t i = 0; i < others; ++i) {
      stage_.after(span(100, 1'200), [this] { disturb(); });
    }
    uneven_left_ = has_speeds_ ? 4 : 0;
    if (!has_flips_) return;
    flip_faults_left_ = 8;
    for (int i = 0; i < 16; ++i) {
      stage_.after(span(50, 2'500), [this] { come_or_go(); });
    }
  }

  /// Of two in seven seeds: hosts of two or three, whose sums leave them behind the point kScatter.
  void share_hosts() {
    if (seed_ % 7 != 1 && seed_ % 7 != 5) return;
    slots_of_host_ = 2 + static_cast<int>(seed_ / 7 % 2);
    traps_.push_back({place_number(engine::point::kScatter),
                      static_cast<MessageFault>(seed_ / 14 % kDrawnFaults), seed_ % 30});
  }

  /// Those of a split model make whole copies.
  void set_workers() {
    workers_ = size_.draw_workers(rng_);
    const int slots = size_.slots_most, stages = config_.group_size();
    if (config_.logical_ranks < size_.workers_most) workers_ = slots - 1;  // with spares
    workers_ = std::min((workers_ + stages - 1) / stages * stages, slots / stages * stages);
  }
  int stage_of(int number) { return trainer(number).slot % config_.group_size(); }

  std::span<const Sending> sendings() const {
    if (config_.group_size() == 1) return kSendings;
    if (config_.is_sharded) return kShardedSplitSendings;
    return kSplitSendings;
  }

  void set_trap(const Sending& from, std::uint64_t fault) {
    traps_.push_back(
        {place_number(from.place), static_cast<MessageFault>(fault), rng_.below(from.passed_most)});
  }

  /// A gang, all of whose members start together.
  void begin() {
    say("a gang of " + std::to_string(workers_));
    for (int slot = 0; slot < workers_; ++slot) add(slot);
  }

  void disturb() {
    if (is_job_over_ || is_stopping_) return;
    const auto number = static_cast<int>(rng_.below(trainers_.size()));
    switch (rng_.below(9)) {
      case 0:
        return die(number, false);
      case 1:
        return die(number, true);
      case 2:
        return freeze(number, span(20, 2'000));
      case 3:
        return suspect(number);
      case 4:
        return leave(number);
      case 5:
      case 6:
        return replace(size_.draw_slot(rng_));
      case 7:
        ++result_.events["broken for nothing"];
        return break_up(number, round_.epoch);
      default:
        return chance(0.3) ? stop_all() : lose_all();
    }
  }

  void come_or_go() {
    if (is_job_over_ || is_stopping_) return;
    if (chance(0.7)) return replace(size_.draw_slot(rng_));
    leave(static_cast<int>(rng_.below(trainers_.size())));
  }

  /// What meets the last messages of one membership and the first of the next meets those who take
  /// it for granted what others will say.
  void disturb_flip() {
    --flip_faults_left_;
    if (chance(0.25)) return stage_.after(span(0, 20), [this] { disturb(); });
    // Of the last message's faults those that nobody dies of leave who lacks it one step behind.
    const auto most = static_cast<std::uint64_t>(MessageFault::kSenderDies);
    const std::uint64_t fault = rng_.below(chance(0.5) ? most : kDrawnFaults);
    set_trap(kFlipSendings[rng_.below(kFlipSendings.size())], fault);
  }

  // ---- Trainers

  void add(int slot) {
    if (trainers_.size() >= size_.trainers_most) return;
    const int number = static_cast<int>(trainers_.size());
    trainers_.push_back(std::make_unique<Trainer>());
    Trainer& self = *trainers_.back();
    self.slot = slot;
    self.incarnation = number;
    self.seat = std::make_unique<Seat>(stage_, *this, number);
    self.actor = stage_.add([this, number] { train(number); });
    say(text(number) + " starts");
  }

  void train(int number) {
    Trainer& self = trainer(number);
    stage_.pass(span(5, 300));
    engine::TrainingHooks hooks;
    hooks.at = [this, number](std::string_view point, std::int64_t) {
      come_to(number, point);
      return Status();
    };
    hooks.on_state = [this, number](std::int64_t step, std::span<const float> parameters,
                                    const engine::OptimizerState& optimizer) {
      see_state(number, step, parameters, optimizer);
    };
    hooks.on_batch = [this, number](std::int64_t step, data::RankRange ranks,
                                    std::span<const std::uint64_t> samples) {
      see_batch(step, ranks, samples);
      if (config_.look_steps > 0) stage_.pass(ranks.size() * taken_by(number).rank);
    };
    hooks.on_division = [this, number](const engine::DivisionChange& change) {
      see_division(number, change);
    };
    hooks.saves_in_place = true;  // threads take turns here
    hooks.is_record_held = [this, number] { return is_record_held(number); };
    hooks.on_files = [this, number](std::string_view path) { use_files(number, !path.empty()); };
    engine::TrainingConfig config = config_;
    config.place = stage_of(number);
    const auto outcome = engine::run_training(config, *self.seat, stage_.clock(), hooks);
    self.life = Life::kEnded;
    end(number, outcome);
  }

  void come_to(int number, std::string_view point) {
    if (point == engine::point::kLayer) return;  // too many for the time that each takes
    const std::size_t place = place_number(point);
    if (place != kNowhere) trainer(number).place = place;
    stage_.pass(microseconds(1 + rng_.below(2'000)));
    // Others go on without one whom nobody waits for, and its connections are made meanwhile.
    const bool is_late = has_flips_ && point == engine::point::kIdle && chance(0.02);
    if (is_late) stage_.pass(span(20, 250));
    if (!has_speeds_) return;
    if (point == engine::point::kUpdate) stage_.pass(taken_by(number).update);
    if (point == engine::point::kReduced) stage_.pass(taken_by(number).sums);
  }

  Taken taken_by(int number) {
    if (!has_speeds_) return {milliseconds(number % 3 == 1 ? 16 : 4), {}, {}};
    return taken_at(seed_, number, trainer(number).last_step);
  }

  void see_division(int number, const engine::DivisionChange& change) {
    ++result_.events["divisions by speed"];
    const auto is_uneven = [](std::span<const std::uint8_t> weights) {
      return std::ranges::find_if(weights, [&](auto one) { return one != weights[0]; }) !=
             weights.end();
    };
    const std::int64_t epoch = trainer(number).entered_epoch;
    if (!is_uneven(change.weights_now)) {
      if (uneven_epoch_ == epoch) uneven_epoch_ = 0;
      return;
    }
    ++result_.events["sums by speed"];
    if (is_uneven(change.weights_before)) ++result_.events["sums by another speed"];
    if (std::exchange(uneven_epoch_, epoch) == epoch || uneven_left_ == 0) return;
    // What the seed has else is over mostly when all know how fast they are.
    --uneven_left_;
    const std::uint64_t fault = rng_.below(kDrawnFaults);
    set_trap(sendings()[rng_.below(sendings().size())], fault);
    if (chance(0.3)) stage_.after(span(1, 300), [this] { disturb(); });
  }
  bool has_uneven_sums() const { return uneven_epoch_ > 0 && uneven_epoch_ == round_.epoch; }

  void end(int number, const Result<TrainingSummary>& outcome) {
    Trainer& self = trainer(number);
    drop_wires(number, false);
    if (!outcome) return fail(text(number) + " ends: " + outcome.error().message());
    if (outcome->left) {
      say(text(number) + " has left");
      if (!self.is_leaving) fail(text(number) + " left without having been asked");
      const bool is_cut = is_stopping_ || round_.urgent_epoch > self.entered_epoch;
      const bool is_of_many = config_.is_sharded || config_.group_size() > 1;
      const Leave planned = is_of_many ? Leave::kOfMany : Leave::kAlone;
      fail(saved_.see_left(self, *outcome, self.slot != 0 || is_cut ? Leave::kOther : planned));
      result_.events["leaves with the files"] = saved_.leaves();
      // It may be the one with the files, for whom the others wait.
      stage_.after(span(50, 1'500), [this, slot = self.slot] { replace(slot); });
    } else if (outcome->complete) {
      say(text(number) + " is complete");
      if (outcome->model_sha256 != lesson_.expected->at(config_.steps).parameters) {
        fail("the model is another one");
      }
      if (self.slot == 0) is_job_over_ = true;
    } else if (is_stopping_) {
      say(text(number) + " has stopped");
      ++result_.events["stopped"];
      std::set<int> slots;
      for (const int one : round_.members) slots.insert(trainer(one).slot);
      fail(saved_.see_stopped(self, *outcome, round_, slots, config_.group_size()));
    } else {
      fail(text(number) + " stopped without having been asked");
    }
    evaluate_soon();
  }

  // ---- The rules

  void see_state(int number, std::int64_t step, std::span<const float> parameters,
                 const engine::OptimizerState& optimizer) {
    Trainer& self = trainer(number);
    if (step > 0) {
      const auto found = lesson_.expected->find(step);
      if (found == lesson_.expected->end() ||
          !is_right(number, found->second, parameters, optimizer)) {
        fail("step " + std::to_string(step) + " of " + text(number) + " has other bits");
      }
    }
    if (step <= self.last_step) {
      // By a step it can only get further; another state is given to it.
      const bool is_given =
          kMessagePlaces[std::min(self.place, kNowhere - 1)] == engine::point::kTransfer;
      if (!is_given) fail(text(number) + " makes step " + std::to_string(step) + " again");
      self.fell_from = std::max(self.fell_from, self.last_step);
    }
    self.last_step = step;
    self.held = optimizer.held;
    see_leaver(number);
    ++result_.events["states"];
    if (self.entered_epoch != round_.epoch || ++self.steps_in_epoch < 2) return;
    const auto is_through = [&](int member) {
      const Trainer& one = trainer(member);
      return one.entered_epoch == round_.epoch && one.steps_in_epoch >= 2;
    };
    if (!std::all_of(round_.members.begin(), round_.members.end(), is_through)) return;
    const auto members = static_cast<int>(round_.members.size()) / config_.group_size();
    const int copies = config_.is_sharded ? std::min(members, config_.buddies + 1) : members;
    if (config_.is_sharded && count_copies() < copies) {
      ++result_.events["steps with too few copies"];
      return;
    }
    losses_ = 0;
    copies_ = copies;
  }

  /// Whoever may leave makes the step under way with the others, and goes.
  void see_leaver(int number) {
    Trainer& self = trainer(number);
    const bool may_go = self.counts() && self.is_leaving && !is_member(number);
    if (!may_go || stage_.now() - round_.since < kConnecting) return;
    if (++self.last_states <= kLastStates) return;
    fail(text(number) + " makes step after step, although it may leave" + describe());
  }

  bool is_right(int number, const test::ReferenceState& right, std::span<const float> parameters,
                const engine::OptimizerState& optimizer) {
    if (!lesson_.stages) return test::is_right(right, parameters, optimizer);
    return lesson_.stages->is_right(stage_of(number), right, parameters, optimizer);
  }

  /// Of what the fewest members keep of the optimiser's state, of any part of the model, how many
  /// do.
  int count_copies() {
    std::size_t fewest = round_.members.size();
    for (int stage = 0; stage < config_.group_size(); ++stage) {
      std::vector<engine::Ranges> held;
      std::size_t trained = 0;
      for (const int member : round_.members) {
        if (stage_of(member) != stage) continue;
        held.push_back(trainer(member).held);
        if (!held.back().empty()) trained = std::max(trained, held.back().back().end);
      }
      for (const auto& stretch : engine::stretches_of(trained, held)) {
        fewest = std::min(fewest, stretch.keepers.size());
      }
    }
    return static_cast<int>(fewest);
  }

  void see_batch(std::int64_t step, data::RankRange ranks, std::span<const std::uint64_t> samples) {
    const auto found = lesson_.expected->find(step);
    if (found == lesson_.expected->end()) return fail("samples of a step that is none");
    const auto& right = found->second.samples;
    const std::size_t rows = right.size() / static_cast<std::size_t>(config_.logical_ranks);
    const auto first =
        right.begin() + static_cast<std::ptrdiff_t>(rows * static_cast<std::size_t>(ranks.first));
    if (samples.size() != rows * static_cast<std::size_t>(ranks.size()) ||
        !std::equal(samples.begin(), samples.end(), first)) {
      fail("other samples are read for step " + std::to_string(step));
    }
  }

  /// Who has come to a step goes back only where a part of the state is gone with all who kept it.
  void note_fall(int number, std::int64_t before, const engine::Entry& entry) {
    // Who has lost a stage of its copy is given what the others have come to; of shards it is given
    // nothing before it has learned.
    if (config_.group_size() > 1 && entry.returned.empty() && before - entry.step <= 1) {
      if (config_.is_sharded) trainer(number).last_step = entry.step;
      return;
    }
    ++result_.events["went back"];
    if (entry.returned.empty() || losses_ < copies_) {
      fail(text(number) + " goes back from step " + std::to_string(before) + " to " +
           std::to_string(entry.step) + " after " + std::to_string(losses_) + " losses" +
           (entry.returned.empty() ? ", and tells no reason" : ": " + entry.returned));
    }
    trainer(number).last_step = entry.step;
  }

  bool is_over() {
    if (!result_.wrong.empty()) return true;
    const bool is_anybody_left = std::any_of(trainers_.begin(), trainers_.end(),
                                             [](const auto& one) { return one->lives(); });
    if (is_job_over_ && !is_anybody_left) return true;
    if (is_job_over_ && !is_clearing_) {
      // The operator removes the pods of a job that is complete.
      is_clearing_ = true;
      stage_.after(seconds(5), [this] { kill_all(); });
    }
    if (is_stopping_ && !is_anybody_left) {
      // Suspended; it is resumed in another size.
      is_stopping_ = false;
      ++lives_;
      round_.members.clear();
      round_.stop = false;
      set_workers();
      begin();
    }
    return false;
  }

  // ---- Faults

  void break_up(int number, std::int64_t epoch) {
    if (epoch != round_.epoch || !trainer(number).counts()) return;
    ++result_.events["broken"];
    broken_epoch_ = epoch;
    stage_.after(span(80, 160), [this, epoch] {
      if (round_.epoch == epoch) evaluate();
    });
  }

  void die(int number, bool is_silent) {
    Trainer& self = trainer(number);
    if (!self.lives()) return;
    const bool is_new = self.came_epoch == round_.epoch && !self.has_made_step_in(round_.epoch);
    if (is_new && std::ranges::any_of(trainers_, [&](const auto& one) {
          return one->entered_epoch == round_.epoch && one->came_epoch < round_.epoch;
        })) {
      ++result_.events["newcomers lost in their first step"];
    }
    say(text(number) + (is_silent ? " loses power" : " is killed"));
    ++result_.events[is_silent ? "power lost" : "killed"];
    self.life = Life::kDead;
    stage_.kill(self.actor);
    drop_wires(number, is_silent);
    stage_.after(is_silent ? span(300, 450) : span(1, 60), [this, number] {
      trainer(number).is_known_dead = true;
      evaluate();
    });
    stage_.after(span(50, 1'500), [this, slot = self.slot] { replace(slot); });
  }

  void drop_wires(int number, bool is_silent) {
    for (const auto& wire : wires_) wire->lose(number, is_silent);
  }

  void freeze(int number, nanoseconds time) {
    Trainer& self = trainer(number);
    if (!self.lives() || self.frozen_until > stage_.now()) return;
    say(text(number) + " freezes for " + std::to_string(time.count() / 1'000'000) + " ms");
    ++result_.events["frozen"];
    self.frozen_until = stage_.now() + time;
    stage_.freeze(self.actor, self.frozen_until);
    const auto silence = span(300, 400);
    if (time > silence) stage_.after(silence, [this, number] { cut_off(number); });
  }

  /// The sentinels hear nothing of it, though it runs.
  void suspect(int number) {
    if (!trainer(number).counts()) return;
    ++result_.events["suspected"];
    cut_off(number);
  }

  /// The others go on without it. It hears of that once it is heard again, and is started anew.
  void cut_off(int number) {
    Trainer& self = trainer(number);
    const bool is_alone = std::none_of(round_.members.begin(), round_.members.end(), [&](int one) {
      return one != number && trainer(one).counts();
    });
    if (!self.counts() || is_alone) return;
    say(text(number) + " is cut off");
    self.is_cut_off = true;
    evaluate();
    const nanoseconds asleep = std::max(nanoseconds(0), self.frozen_until - stage_.now());
    stage_.after(asleep + span(0, 1'500), [this, number] { die(number, false); });
  }

  void leave(int number) {
    Trainer& self = trainer(number);
    if (!self.counts() || self.is_leaving) return;
    const auto stays = [&](int one) { return trainer(one).counts() && !trainer(one).is_leaving; };
    const auto others = std::count_if(round_.members.begin(), round_.members.end(),
                                      [&](int one) { return one != number && stays(one); });
    if (!is_member(number) || others == 0) return;
    say(text(number) + " wants to leave");
    ++result_.events["leaves"];
    self.is_leaving = true;
    self.asked_at = stage_.now();
    self.seat->ask_to_leave();
    if (config_.is_sharded) stage_.after(kRelief, [this] { evaluate(); });
    stage_.after(kGrace, [this, number] { die(number, false); });
    evaluate_soon();
  }

  void stop_all() {
    if (round_.members.empty()) return;
    say("all shall stop");
    ++result_.events["all stop"];
    is_stopping_ = true;
    stage_.after(kGrace, [this, life = lives_] {
      if (life == lives_) kill_all();
    });
    evaluate();
  }

  void kill_all() {
    for (std::size_t i = 0; i < trainers_.size(); ++i) die(static_cast<int>(i), false);
  }

  void lose_all() {
    ++result_.events["all lost"];
    for (std::size_t i = 0; i < trainers_.size(); ++i) die(static_cast<int>(i), chance(0.3));
  }

  /// The operator's part, or that of the sentinel whose trainer has died.
  void replace(int slot) {
    if (is_job_over_ || is_stopping_) return;
    const bool is_taken = std::any_of(trainers_.begin(), trainers_.end(), [&](const auto& one) {
      return one->slot == slot && one->lives();
    });
    if (!is_taken) add(slot);
  }

  // ---- Files

  /// Whether the disk gives no answer to who would write lines of the record, and may die of it.
  bool is_record_held(int number) {
    // Who has been killed takes along what it has not written.
    if (!trainer(number).lives()) return true;
    if (stage_.now() < record_held_until_) return true;
    if (holds_left_ == 0 || !chance(0.15)) return false;
    --holds_left_;
    ++result_.events["record held"];
    const nanoseconds time = span(1, 300);
    record_held_until_ = stage_.now() + time;
    if (chance(0.4)) {
      stage_.after(time / (1 + rng_.below(20)), [this, number] {
        if (!is_job_over_) die(number, false);
      });
    }
    return true;
  }

  void use_files(int number, bool begins) {
    Trainer& self = trainer(number);
    if (!self.lives() || std::uncaught_exceptions() > 0) return;  // it is being killed
    if (!begins) {
      if (--self.on_files > 0 || self.tears < TearAt::kMiddle || !self.lives()) return;
      // What was written meanwhile is slot 0's, which alone writes: nobody else's death tears it.
      if (self.tears == TearAt::kMiddle && self.slot == 0) tear(directory_, self.files);
      return die(number, false);  // gone where it waits next
    }
    if (++self.on_files > 1) return;
    // Each step has a line of the record: with every other seed only what is saved counts.
    const bool counts = seed_ % 2 == 0 || is_saving(self);
    if (counts && tears_left_ > 0 && --tears_left_ == 0 && !is_job_over_) {
      self.tears = static_cast<TearAt>(1 + rng_.below(3));
      ++result_.events["dies over files"];
      say(text(number) + " dies over its files");
      if (self.tears == TearAt::kBefore) die(number, false);
      self.files = look_at(directory_);
    }
    const nanoseconds time = is_slow_disk_ ? span(0, 1'500) : short_time();
    if (time > milliseconds(100)) ++result_.events["slow disk"];
    stage_.pass(time);
  }

  // ---- The sentinels

  bool is_member(int number) const {
    return std::find(round_.members.begin(), round_.members.end(), number) != round_.members.end();
  }

  void evaluate_soon() {
    stage_.after(span(1, is_late_sentinel_ ? 200 : 20), [this] { evaluate(); });
  }

  /// What a leader among the sentinels would have next; as sentinel/membership_wish.cpp.
  void evaluate() {
    if (is_job_over_) return;
    std::vector<int> next, leaving;
    bool is_lost = false, is_quiet = true;
    for (const int member : round_.members) {
      const Trainer& one = trainer(member);
      if (one.life == Life::kEnded) continue;
      if (one.is_known_dead || one.is_cut_off) {
        is_lost = true;
        is_quiet = is_quiet && !one.is_cut_off;
      } else {
        const bool may_go = !config_.is_sharded || one.is_relieved(stage_.now());
        (one.is_leaving && may_go ? leaving : next).push_back(member);
      }
    }
    // Who leaves stays while nobody else holds the state.
    if (next.empty()) next.swap(leaving);
    if (next.empty()) return start_anew();
    is_quiet = is_quiet && leaving.empty();
    if (is_quiet && !is_stopping_) add_newcomers(next);
    const bool is_reform = broken_epoch_ == round_.epoch;
    if (is_lost || is_reform) put_off_joiners(next);
    if (next == round_.members && is_stopping_ == round_.stop && !is_reform) return;
    count_losses(next);
    publish(std::move(next), is_lost || is_reform);
    if (is_lost || is_reform) evaluate_soon();  // for those who were put off
  }

  /// Of a split model each who goes counts, as its copy goes with it.
  void count_losses(const std::vector<int>& next) {
    const auto takes_nothing = [&](int one) {
      return config_.is_sharded && trainer(one).is_spared && config_.group_size() == 1;
    };
    const auto is_loss = [&](int one) {
      return !trainer(one).is_put_off && !takes_nothing(one) && !std::ranges::count(next, one);
    };
    const auto relieved = std::ranges::count_if(round_.members, takes_nothing);
    const auto keepers = static_cast<int>(std::ssize(round_.members) - relieved);
    if (relieved > 0) copies_ = std::min(copies_, losses_ + keepers);
    result_.events["leaves with copied shards"] += relieved;
    losses_ += static_cast<int>(std::ranges::count_if(round_.members, is_loss));
  }

  /// Those who train wait for nobody who is not in yet. Who is, the leader knows from its own
  /// trainer.
  void put_off_joiners(std::vector<int>& next) {
    const auto leads = std::find_if(round_.members.begin(), round_.members.end(),
                                    [&](int one) { return !trainer(one).is_cut_off; });
    if (leads == round_.members.end()) return;
    const std::int64_t entered = trainer(*leads).entered_epoch;
    const auto is_in = [&](int one) {
      return is_member(one) && trainer(one).came_epoch <= entered;
    };
    if (std::none_of(next.begin(), next.end(), is_in)) return;
    for (const int one : next) {
      if (is_in(one) || !is_member(one)) continue;
      ++result_.events["put off"];
      say(text(one) + " is to enter later");
      trainer(one).is_put_off = true;
      trainer(one).was_member = false;
      trainer(one).came_epoch = 0;
    }
    std::erase_if(next, [&](int one) { return !is_in(one); });
  }

  void add_newcomers(std::vector<int>& next) {
    for (std::size_t i = 0; i < trainers_.size(); ++i) {
      const auto number = static_cast<int>(i);
      const Trainer& one = *trainers_[i];
      if (!one.counts() || !one.is_ready || one.was_member || one.is_leaving) continue;
      const bool is_taken = std::any_of(next.begin(), next.end(),
                                        [&](int other) { return trainer(other).slot == one.slot; });
      if (!is_taken) next.push_back(number);
    }
    sort_by_slot(next);
  }

  void sort_by_slot(std::vector<int>& members) {
    std::sort(members.begin(), members.end(),
              [&](int a, int b) { return trainer(a).slot < trainer(b).slot; });
  }

  /// Nobody holds the state: those who are there begin together, once all are ready.
  void start_anew() {
    std::vector<int> ready;
    bool is_waiting = false;
    MonoTime since = stage_.now();
    for (std::size_t i = 0; i < trainers_.size(); ++i) {
      const Trainer& one = *trainers_[i];
      if (!one.counts() || one.was_member || one.is_leaving) continue;
      if (!one.is_ready) is_waiting = true;
      if (!one.is_ready) continue;
      since = std::min(since, one.ready_at);
      ready.push_back(static_cast<int>(i));
    }
    if (ready.empty() || is_stopping_) return;
    if (is_waiting && stage_.now() - since < kGatherStart) {
      stage_.after(span(20, 100), [this] { evaluate(); });
      return;
    }
    sort_by_slot(ready);
    ++result_.events["starts"];
    losses_ = copies_ = 0;  // whatever was kept is gone
    publish(std::move(ready), true);
  }

  void publish(std::vector<int> members, bool is_urgent) {
    if (has_uneven_sums()) ++result_.events["memberships after uneven sums"];
    const std::vector<int> before = std::exchange(round_.members, std::move(members));
    ++round_.epoch;
    round_.since = stage_.now();
    round_.stop = is_stopping_;
    if (is_urgent) round_.urgent_epoch = round_.epoch;
    ++result_.events["memberships"];
    say("membership " + std::to_string(round_.epoch) + (is_urgent ? ", urgent," : "") +
        (round_.stop ? " to stop" : "") + " of " + std::to_string(round_.members.size()));
    std::set<int> told(before.begin(), before.end());
    told.insert(round_.members.begin(), round_.members.end());
    // Whoever makes its last step leaves it for the same one as the others.
    for (std::size_t i = 0; i < trainers_.size(); ++i) {
      if (trainers_[i]->is_leaving && trainers_[i]->counts()) told.insert(static_cast<int>(i));
    }
    for (const int number : told) {
      Trainer& one = trainer(number);
      one.was_member = one.was_member || is_member(number);
      if (is_member(number) && one.came_epoch == 0) one.came_epoch = round_.epoch;
      one.is_put_off = one.is_put_off && !is_member(number);
      tell_soon(number);
    }
  }

  void tell_soon(int number) {
    Trainer& self = trainer(number);
    const nanoseconds delay = chance(0.2) ? span(1, 300) : span(1, 15);
    self.told = std::max(self.told, stage_.now() + delay);
    stage_.after(self.told - stage_.now(), [this, number] { tell(number); });
  }

  void tell(int number) {
    Trainer& self = trainer(number);
    if (!self.counts() || self.is_put_off || self.told_epoch == round_.epoch) return;
    if (self.frozen_until > stage_.now()) {
      stage_.after(self.frozen_until - stage_.now() + microseconds(1),
                   [this, number] { tell(number); });
      return;
    }
    sentinel::ViewMessage view;
    view.epoch = round_.epoch;
    view.stop = round_.stop;
    view.urgent = self.told_epoch > 0 && self.told_epoch < round_.urgent_epoch;
    for (const int member : round_.members) {
      const Trainer& one = trainer(member);
      if (member == number) view.rank = static_cast<int>(view.peers.size());
      const auto domain = static_cast<std::uint64_t>(1 + one.slot / 2);
      view.peers.push_back({"host", 1 + member, one.slot, 0, one.incarnation, domain});
    }
    self.told_epoch = round_.epoch;
    self.seat->take(std::move(view));
    stage_.after(short_time(), [this, epoch = round_.epoch] { connect(epoch); });
  }

  /// Once all members know of it, and live.
  void connect(std::int64_t epoch) {
    if (epoch != round_.epoch || connected_epoch_ == epoch) return;
    const bool is_possible =
        std::all_of(round_.members.begin(), round_.members.end(), [&](int one) {
          return trainer(one).lives() && trainer(one).seat->newest_epoch() == epoch;
        });
    if (!is_possible) return;
    const bool is_any_asleep =
        std::any_of(round_.members.begin(), round_.members.end(),
                    [&](int one) { return trainer(one).frozen_until > stage_.now(); });
    if (is_any_asleep) {
      stage_.after(span(1, 50), [this, epoch] { connect(epoch); });
      return;
    }
    connected_epoch_ = epoch;
    auto wire = std::make_shared<Wire>(stage_, *this, round_.members);
    for (std::size_t rank = 0; rank < round_.members.size(); ++rank) {
      const int number = round_.members[rank];
      auto end = std::make_shared<std::unique_ptr<comm::Communicator>>(
          wire->end_of(static_cast<int>(rank)));
      // Each of them is through with it at a time of its own.
      stage_.after(chance(0.2) ? span(1, 100) : short_time(), [this, number, epoch, end] {
        if (trainer(number).lives()) trainer(number).seat->connected(epoch, std::move(*end));
      });
    }
    wires_.push_back(std::move(wire));
  }

  const std::uint64_t seed_;
  const bool has_speeds_, has_flips_;
  const WorldSize size_;
  Rng rng_;
  RecoveryResult result_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<std::shared_ptr<Wire>> wires_;
  const Lesson& lesson_;
  engine::TrainingConfig config_;
  std::string directory_;
  bool is_loud_;

  int workers_ = 1, slots_of_host_ = 1;
  SavedSteps saved_;
  int lives_ = 1;  ///< of the gang: it was resumed so often, less one
  bool is_slow_disk_ = false, is_late_sentinel_ = false;
  int holds_left_ = 0, uneven_left_ = 0, flip_faults_left_ = 0;
  std::int64_t flip_epoch_ = 0;    ///< that all who train have said they will enter now
  std::int64_t uneven_epoch_ = 0;  ///< in which not all add up as much of the sum
  MonoTime record_held_until_{};
  std::uint64_t tears_left_ = 0;  ///< so many uses of files until somebody dies over one
  std::vector<Trap> traps_;
  bool is_job_over_ = false, is_clearing_ = false, is_stopping_ = false;
  std::optional<Sha256Digest> digest_;
  Round round_;
  std::int64_t connected_epoch_ = 0, broken_epoch_ = 0;
  std::map<std::int64_t, std::int64_t> entered_;  ///< epoch -> step
  int losses_ = 0;  ///< members lost since all of a membership had made two steps in it, and had
                    ///< all copies of shards
  int copies_ = 0;  ///< of each block that there were then
  Stage stage_;     ///< whose actors use all of the above
};

}  // namespace

RecoveryResult run_recovery_seed(std::uint64_t seed, const Lessons& lessons,
                                 const std::string& directory, bool is_loud) {
  RecoveryResult result;
  {
    World world(seed, lessons, directory, is_loud);
    result = world.run();
  }
  std::filesystem::remove_all(directory);
  return result;
}

}  // namespace muster::sim
