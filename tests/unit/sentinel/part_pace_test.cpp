// Who slows a gang whose trainers have parts of a model, judged from what each does alone and from
// how fast large messages come and go.
#include "worker/sentinel/part_pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

/// Trainers of some copies, each of stages that differ in what they have to do, and of slices.
/// Those beside each other in a copy, and those with the same part, send each other large messages.
class PartGang {
 public:
  /// `stages`: seconds that each slice of a stage takes for a logical rank.
  PartGang(int copies, std::vector<double> stages, int slices = 1, std::vector<int> ranks = {})
      : stages_(std::move(stages)), slices_(slices), ranks_(std::move(ranks)) {
    ranks_.resize(static_cast<std::size_t>(copies), 4);
    for (int copy = 0; copy < copies; ++copy) {
      for (int stage = 0; stage < static_cast<int>(stages_.size()); ++stage) {
        for (int slice = 0; slice < slices_; ++slice) parts_.push_back({copy, stage, slice});
      }
    }
    times_.assign(parts_.size(), 1);
    data_.assign(parts_.size(), 0.001);
    files_.assign(parts_.size(), 0);
    starved_.assign(parts_.size(), 0);
    into_.assign(parts_.size(), 1);
    out_.assign(parts_.size(), 1);
    books_.resize(parts_.size());
  }
  /// Its computing takes so many times as long.
  double& times(std::size_t rank) { return times_[rank]; }
  double& data(std::size_t rank) { return data_[rank]; }
  double& files(std::size_t rank) { return files_[rank]; }
  double& starved(std::size_t rank) { return starved_[rank]; }
  /// What is sent to it, or what it sends, takes so many times as long.
  double& into(std::size_t rank) { return into_[rank]; }
  double& out_of(std::size_t rank) { return out_[rank]; }
  /// Of what each sends each of its peers in a step.
  double bytes = 16 << 20;
  bool is_hidden = false;       ///< nobody waits for messages
  std::int64_t timed_each = 1;  ///< of so many steps one has messages that were read as they came
  /// How far off the graph's forecast of a stage is, by its number.
  void set_forecast(std::vector<double> forecast) { forecast_ = std::move(forecast); }

  void step(Rng* rng = nullptr, double jitter = 0) {
    ++step_;
    std::vector<double> compute;
    double longest = 0, all = 0;
    const double wire = kWire + (is_hidden ? 0 : longer_on_wire());
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const double more =
          rng == nullptr ? 0 : jitter * static_cast<double>(rng->below(1000)) / 1000;
      compute.push_back(cost(i) * ranks_of(i) * times_[i] * (1 + more));
      longest = std::max(longest, compute.back() + data_[i] + files_[i]);
    }
    for (const double one : stages_) all += one * slices_;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      StepSample sample;
      sample.epoch = 3;
      sample.step = step_;
      sample.rank = static_cast<int>(i);
      sample.is_of_part = true;
      const auto stage = static_cast<std::size_t>(parts_[i].stage);
      const double forecast = forecast_.empty() ? 1 : forecast_[stage];
      sample.logical_ranks =
          static_cast<std::int64_t>(ranks_of(i) * cost(i) * forecast / all * kRankUnits);
      sample.whole_seconds = longest + wire;
      sample.data_seconds = data_[i];
      sample.files_seconds = files_[i];
      sample.communicate_seconds = longest + wire - compute[i] - data_[i] - files_[i];
      sample.starved_seconds = starved_[i];
      sample.arrivals = arrivals(i, rng, jitter);
      books_[i].add(sample);
    }
  }
  std::vector<Pace> paces() const {
    std::vector<Pace> all;
    for (const PaceBook& book : books_) {
      if (auto pace = book.pace()) all.push_back(*std::move(pace));
    }
    return all;
  }
  std::vector<Slowness> judge() const { return judge_parts(paces(), parts_); }
  /// Who is named in so many steps, with the step and the cause: "3 after 17: compute".
  std::string named(int most, Rng* rng = nullptr, double jitter = 0) {
    std::vector<SlowWatch> watches(parts_.size());
    std::string all;
    for (int i = 1; i <= most; ++i) {
      step(rng, jitter);
      const auto verdicts = judge();
      for (std::size_t r = 0; r < verdicts.size(); ++r) {
        if (!watches[r].take(verdicts[r])) continue;
        CHECK(i <= 20);
        all += (all.empty() ? "" : ", ") + std::to_string(r) + ": " +
               std::string(name_of(verdicts[r].cause));
      }
    }
    return all;
  }
  std::size_t size() const { return parts_.size(); }
  bool are_peers(std::size_t a, std::size_t b) const {
    const Part &one = parts_[a], &other = parts_[b];
    const int apart = std::abs(one.stage - other.stage) + std::abs(one.slice - other.slice);
    return (one.copy == other.copy && apart == 1) || (one.copy != other.copy && apart == 0);
  }
  std::size_t peers_of(std::size_t i) const {
    std::size_t count = 0;
    for (std::size_t peer = 0; peer < size(); ++peer) count += are_peers(i, peer) ? 1 : 0;
    return count;
  }

 private:
  double times_as_long(std::size_t from, std::size_t to) const {
    return std::max(out_[from], into_[to]);
  }
  /// What all wait for the one whose messages take the longest.
  double longer_on_wire() const {
    double most = 0;
    for (std::size_t i = 0; i < size(); ++i) {
      double in = 0, out = 0;
      for (std::size_t peer = 0; peer < size(); ++peer) {
        if (!are_peers(i, peer)) continue;
        in += (times_as_long(peer, i) - 1) * bytes / kRate;
        out += (times_as_long(i, peer) - 1) * bytes / kRate;
      }
      most = std::max({most, in, out});
    }
    return most;
  }
  std::vector<Arrival> arrivals(std::size_t to, Rng* rng, double jitter) const {
    std::vector<Arrival> all(size());
    for (std::size_t from = 0; from < size(); ++from) {
      if (!are_peers(from, to)) continue;
      const double more =
          rng == nullptr ? 0 : 3 * jitter * static_cast<double>(rng->below(1000)) / 1000;
      const bool is_timed = step_ % timed_each == 0;
      all[from] = {bytes, is_timed ? kRate / times_as_long(from, to) / (1 + more) : 0};
    }
    return all;
  }

  double cost(std::size_t i) const { return stages_[static_cast<std::size_t>(parts_[i].stage)]; }
  int ranks_of(std::size_t i) const { return ranks_[static_cast<std::size_t>(parts_[i].copy)]; }

  static constexpr double kWire = 0.002, kRate = 1e9;
  std::int64_t step_ = 0;
  const std::vector<double> stages_;
  const int slices_;
  std::vector<int> ranks_;
  std::vector<Part> parts_;
  std::vector<double> times_, data_, files_, starved_, into_, out_, forecast_;
  std::vector<PaceBook> books_;
};

}  // namespace

TEST_CASE("uneven stages and slices without a slow process name nobody") {
  Rng rng(test::seed());
  for (const int copies : {1, 2, 3, 5}) {
    for (const int slices : {1, 2, 4}) {
      for (const double jitter : {0.0, 0.1, 0.5, 1.0}) {
        CAPTURE(copies);
        CAPTURE(slices);
        CAPTURE(jitter);
        PartGang gang(copies, {0.005, 0.02, 0.012}, slices);
        // A forecast that is wrong by less than twice.
        gang.set_forecast({1.3, 1.0, 0.8});
        CHECK(gang.named(400, &rng, jitter).empty());
      }
    }
  }
}

TEST_CASE("who is slow is named within 20 steps, held against the same part of other copies") {
  for (const int copies : {2, 3, 4}) {
    for (const int slices : {1, 2}) {
      PartGang calm(copies, {0.01, 0.012, 0.009}, slices);
      for (std::size_t slow = 0; slow < calm.size(); ++slow) {
        PartGang gang(copies, {0.01, 0.012, 0.009}, slices);
        for (int i = 0; i < 50; ++i) gang.step();
        gang.times(slow) = 2;
        CHECK(gang.named(40) == std::to_string(slow) + ": compute");
      }
    }
  }
}

TEST_CASE("what takes a part longer is its cause") {
  PartGang reads(2, {0.01, 0.01});
  reads.data(2) = 0.03;
  CHECK(reads.named(40) == "2: data");
  PartGang writes(2, {0.01, 0.01});
  writes.files(0) = 0.03;
  CHECK(writes.named(40) == "0: files");
  // In a step now and then it is no slowness.
  PartGang sometimes(2, {0.01, 0.01});
  std::string all;
  for (int i = 0; i < 200; ++i) {
    sometimes.files(0) = i % 3 == 0 ? 0.2 : 0;
    all += sometimes.named(1);
  }
  CHECK(all.empty());
}

TEST_CASE(
    "of one copy alone slices are held against each other, and stages against their forecast") {
  for (std::size_t slow = 0; slow < 4; ++slow) {
    PartGang slices(1, {0.01, 0.012}, 2);
    slices.times(slow) = 1.6;
    CHECK(slices.named(40) == std::to_string(slow) + ": compute");
  }
  for (const std::vector<double>& stages :
       {std::vector{0.01, 0.012}, {0.008, 0.01, 0.012, 0.007}}) {
    for (std::size_t slow = 0; slow < stages.size(); ++slow) {
      PartGang gang(1, stages);
      gang.set_forecast(std::vector<double>(stages.size(), slow == 0 ? 1.2 : 0.9));
      gang.times(slow) = 4;
      CHECK(gang.named(40) == std::to_string(slow) + ": compute");
    }
  }
  // Both slices of a stage, because they share a machine.
  PartGang both(1, {0.01, 0.012}, 2);
  both.times(2) = both.times(3) = 4;
  CHECK(both.named(40) == "2: compute, 3: compute");
}

TEST_CASE("whose network is slow, either way, is named within 20 steps where anybody can tell") {
  for (const int copies : {1, 2, 3}) {
    for (const std::vector<double>& stages :
         {std::vector{0.01, 0.012}, {0.01, 0.012, 0.009}, {0.01, 0.012, 0.009, 0.011}}) {
      for (const int slices : {1, 2}) {
        const PartGang calm(copies, stages, slices);
        for (std::size_t slow = 0; slow < calm.size(); ++slow) {
          // A peer that has another one sees by that one that its own network is not slow.
          bool can_tell = false;
          for (std::size_t peer = 0; peer < calm.size(); ++peer) {
            can_tell = can_tell || (calm.are_peers(slow, peer) && calm.peers_of(peer) > 1);
          }
          for (const int ways : {1, 2, 3}) {
            CAPTURE(copies);
            CAPTURE(stages.size());
            CAPTURE(slices);
            CAPTURE(slow);
            CAPTURE(ways);
            PartGang gang(copies, stages, slices);
            for (int i = 0; i < 50; ++i) gang.step();
            if ((ways & 1) != 0) gang.into(slow) = 10;
            if ((ways & 2) != 0) gang.out_of(slow) = 10;
            CHECK(gang.named(40) == (can_tell ? std::to_string(slow) + ": network" : ""));
          }
        }
      }
    }
  }
}

TEST_CASE("of a slow network it is told how much longer a step takes for it") {
  PartGang gang(2, {0.01, 0.012});
  gang.into(1) = gang.out_of(1) = 10;
  for (int i = 0; i < 20; ++i) gang.step();
  const auto verdicts = gang.judge();
  REQUIRE(verdicts.size() == 4);
  // 32 MiB at a tenth of 10^9 bytes a second, in steps of 51 ms.
  CHECK(verdicts[1].delay > microseconds(301'000));
  CHECK(verdicts[1].delay < microseconds(303'000));
  CHECK(verdicts[1].percent > 550);
  CHECK(verdicts[1].percent < 610);
  for (const std::size_t other : {0U, 2U, 3U}) CHECK(verdicts[other].delay == microseconds(0));
}

TEST_CASE("a network that is not four times as slow, or for which nobody waits, is not told") {
  PartGang gang(2, {0.01, 0.012});
  gang.into(3) = gang.out_of(3) = 3.9;
  CHECK(gang.named(60).empty());
  gang.into(3) = gang.out_of(3) = 10;
  gang.is_hidden = true;
  CHECK(gang.named(60).empty());
  gang.is_hidden = false;
  gang.bytes = 100'000;
  CHECK(gang.named(60).empty());
  gang.bytes = 16 << 20;
  CHECK(gang.named(60) == "3: network");
}

TEST_CASE("messages that stall with a process that is short of processor time are no network") {
  // In every step some of them come as they should, in three steps of eight at least.
  PartGang stalls(2, {0.01, 0.012});
  std::string all;
  for (int i = 0; i < 200; ++i) {
    stalls.out_of(3) = i % 8 < 5 ? 20 : 1;
    all += stalls.named(1);
  }
  CHECK(all.empty());
  PartGang starved(2, {0.01, 0.012});
  starved.out_of(3) = 10;
  starved.starved(3) = 0.3;
  CHECK(starved.named(40) == "3: compute");
  PartGang slow(2, {0.01, 0.012});
  slow.out_of(3) = slow.times(3) = 5;
  CHECK(slow.named(40) == "3: compute");
}

TEST_CASE("what was timed in fewer than half of the steps says nothing of a network") {
  for (const int each : {2, 3}) {
    CAPTURE(each);
    PartGang gang(2, {0.01, 0.012});
    gang.into(2) = gang.out_of(2) = 10;
    gang.timed_each = each;
    CHECK(gang.named(60) == (each == 2 ? "2: network" : ""));
  }
}

TEST_CASE("of many who send to a part the fastest and the slowest are told, and how much it is") {
  PaceBook book;
  for (int step = 0; step < 20; ++step) {
    StepSample sample;
    sample.rank = 2;
    sample.is_of_part = true;
    sample.whole_seconds = 0.1;
    // Rank 2 itself; of 6 it is not known; a MiB in 4, 5, 8, 3 and 2 ms.
    for (const double milliseconds_each : {4.0, 5.0, 0.0, 8.0, 3.0, 2.0, 0.0}) {
      const double rate = milliseconds_each > 0 ? 1'048'576'000 / milliseconds_each : 0;
      sample.arrivals.push_back({sample.arrivals.size() == 2 ? 0.0 : 2'097'152.0, rate});
    }
    book.add(sample);
  }
  const auto pace = book.pace();
  REQUIRE(pace);
  CHECK_FALSE(pace->waits_for_all);
  // Twelve MiB come in a step, from the fastest in 24 ms.
  CHECK(pace->waits == std::vector<Wait>{{1, microseconds(5'000)},
                                         {2, microseconds(24'000)},
                                         {3, microseconds(8'000)},
                                         {5, microseconds(2'000)}});
}

TEST_CASE("who sends into another rack slowly is not named where not all that it sends is told") {
  // 0 and 1 are far from 2 and 3. In microseconds of a MiB, and of all that comes.
  using Told = std::vector<Wait>;
  const auto us = [](int time) { return microseconds(time); };
  const std::vector<Told> told{{{0, us(10'000)}, {1, us(1'000)}, {2, us(9'000)}, {3, us(9'000)}},
                               {{1, us(10'000)}, {2, us(9'000)}, {3, us(9'000)}, {4, us(900)}},
                               {{0, us(9'000)}, {1, us(9'000)}, {2, us(10'000)}, {3, us(1'000)}},
                               {{0, us(9'000)}, {1, us(9'000)}, {2, us(1'000)}, {3, us(10'000)}},
                               {{1, us(1'000)}, {4, us(10'000)}},
                               {{4, us(1'000)}, {5, us(10'000)}}};
  std::vector<Pace> paces;
  std::vector<Part> parts;
  for (int rank = 0; rank < 6; ++rank) {
    Pace pace;
    pace.rank = rank;
    pace.whole = us(100'000);
    pace.compute = pace.usual_wait = us(10'000);
    pace.waits = told[static_cast<std::size_t>(rank)];
    paces.push_back(pace);
    parts.push_back({rank / 2, rank % 2, 0});
  }
  for (const Slowness& one : judge_parts(paces, parts)) CHECK(one.delay == us(0));
  // Now also what goes to its neighbour is slow.
  paces[1].waits[1] = {0, us(9'000)};
  const auto verdicts = judge_parts(paces, parts);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    CHECK(verdicts[rank].delay == us(rank == 0 ? 80'000 : 0));
  }
  CHECK(verdicts[0].cause == Cause::kNetwork);
}

TEST_CASE("a part that is slow and still has less to do than others delays nobody") {
  PartGang gang(3, {0.004, 0.02});
  gang.times(2) = 4;
  CHECK(gang.named(40).empty());
  gang.times(2) = 10;  // 40 ms a rank where others take 20
  CHECK(gang.named(40) == "2: compute");
  const auto verdicts = gang.judge();
  CHECK(verdicts[2].delay > microseconds(75'000));
  CHECK(verdicts[2].delay < microseconds(85'000));
  CHECK(verdicts[2].percent > 90);
}

TEST_CASE("a copy that computes more logical ranks is not slow") {
  PartGang gang(3, {0.01, 0.012}, 1, {6, 5, 5});
  CHECK(gang.named(60).empty());
  gang.times(0) = 2;
  CHECK(gang.named(40) == "0: compute");
}

TEST_CASE("older members are told paces of parts that they draw nothing from") {
  PartGang gang(2, {0.01, 0.01});
  gang.times(1) = 5;
  for (int i = 0; i < 30; ++i) gang.step();
  REQUIRE(gang.paces().size() == 4);
  CHECK(judge_paces(gang.paces(), {0, 1, 2, 3}).empty());
}

TEST_CASE("paces of different memberships, or not of all with a part, say nothing") {
  PartGang gang(2, {0.01, 0.01});
  for (int i = 0; i < 30; ++i) gang.step();
  auto paces = gang.paces();
  const std::vector<Part> parts = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}};
  CHECK(judge_parts(paces, parts).size() == 4);
  // Who waits for others of its copy tells none, and need not.
  auto waiting = parts;
  waiting.emplace_back();
  CHECK(judge_parts(paces, waiting).size() == 5);
  paces[1].epoch = 4;
  CHECK(judge_parts(paces, parts).empty());
  paces[1].epoch = 3;
  paces[1].rank = 0;
  CHECK(judge_parts(paces, parts).empty());
  paces.erase(paces.begin() + 1);
  CHECK(judge_parts(paces, parts).empty());
  CHECK(judge_parts({}, {}).empty());
  CHECK(judge_parts({}, {Part(), Part()}).empty());
}

TEST_CASE("figures of parts that nobody can have measured give a verdict within bounds") {
  Rng rng(test::seed());
  for (int round = 0; round < 2000; ++round) {
    std::vector<Pace> paces;
    std::vector<Part> parts;
    const auto any = [&] {
      const auto scale = static_cast<int>(rng.below(63));
      return microseconds(static_cast<std::int64_t>(rng.below(std::uint64_t{1} << scale)));
    };
    const int size = 2 + static_cast<int>(rng.below(6));
    for (int rank = 0; rank < size; ++rank) {
      Pace pace;
      pace.epoch = 1;
      pace.rank = rank;
      pace.logical_ranks = static_cast<int>(rng.below(kMostRank));
      for (microseconds* time :
           {&pace.whole, &pace.data, &pace.compute, &pace.files, &pace.starved, &pace.usual_wait}) {
        *time = any();
      }
      for (std::size_t i = rng.below(kMostWaits + 1); i > 0; --i) {
        pace.waits.push_back({static_cast<int>(rng.below(9)) - 1, any()});
      }
      paces.push_back(pace);
      parts.push_back({static_cast<int>(rng.below(3)) - 1, static_cast<int>(rng.below(3)),
                       static_cast<int>(rng.below(2))});
    }
    for (const Slowness& one : judge_parts(paces, parts)) {
      CHECK(one.delay >= microseconds(0));
      CHECK(one.percent >= 0);
      CHECK(one.percent <= 10'000);
    }
  }
}

TEST_CASE(
    "parts follow from the view as trainers find them, and copies that are not whole have none") {
  View view;
  const auto seat = [](int slot, std::vector<int> trainers) {
    Seat one{{slot, 0}, "h", 1, 2, {}};
    for (const int local : trainers) one.trainers.push_back({local, 0, 1});
    return one;
  };
  // 4 processes a copy; that of slots 2 and 3 lacks one.
  view.seats = {seat(0, {0, 1}), seat(1, {0, 1}), seat(2, {1}),
                seat(3, {0, 1}), seat(4, {0, 1}), seat(5, {0, 1})};
  const auto parts = parts_of(view, {2, 2});
  CHECK(parts == std::vector<Part>{{0, 0, 0},
                                   {0, 0, 1},
                                   {0, 1, 0},
                                   {0, 1, 1},
                                   Part(),
                                   Part(),
                                   Part(),
                                   {2, 0, 0},
                                   {2, 0, 1},
                                   {2, 1, 0},
                                   {2, 1, 1}});
}

TEST_CASE("how a copy is divided is read from the spec") {
  const auto read = [](const char* text) { return split_of(*parse_json(text)); };
  CHECK(read(R"({"parallelism": {"tensor": 2, "pipeline": 3}})") == Split{2, 3});
  CHECK(read(R"({"parallelism": {"pipeline": 3, "mode": "Auto"}})") == Split{1, 3});
  for (const char* text : {"{}", "3", R"({"parallelism": null})", R"({"parallelism": 4})",
                           R"({"parallelism": {"tensor": 0, "pipeline": 65}})",
                           R"({"parallelism": {"tensor": "2", "pipeline": 1e30}})"}) {
    CAPTURE(text);
    CHECK(read(text) == Split());
  }
}
