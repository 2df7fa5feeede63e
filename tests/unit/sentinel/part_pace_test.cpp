// Who slows a gang whose trainers have parts of a model, judged from what each does alone.
#include "worker/sentinel/part_pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

/// Trainers of some copies, each of stages that differ in what they have to do, and of slices.
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
    books_.resize(parts_.size());
  }
  /// Its computing takes so many times as long.
  double& times(std::size_t rank) { return times_[rank]; }
  double& data(std::size_t rank) { return data_[rank]; }
  double& files(std::size_t rank) { return files_[rank]; }
  /// How far off the graph's forecast of a stage is, by its number.
  void set_forecast(std::vector<double> forecast) { forecast_ = std::move(forecast); }

  void step(Rng* rng = nullptr, double jitter = 0) {
    ++step_;
    std::vector<double> compute;
    double longest = 0, all = 0;
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
      sample.whole_seconds = longest + kWire;
      sample.data_seconds = data_[i];
      sample.files_seconds = files_[i];
      sample.communicate_seconds = longest + kWire - compute[i] - data_[i] - files_[i];
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

 private:
  double cost(std::size_t i) const { return stages_[static_cast<std::size_t>(parts_[i].stage)]; }
  int ranks_of(std::size_t i) const { return ranks_[static_cast<std::size_t>(parts_[i].copy)]; }

  static constexpr double kWire = 0.002;
  std::int64_t step_ = 0;
  const std::vector<double> stages_;
  const int slices_;
  std::vector<int> ranks_;
  std::vector<Part> parts_;
  std::vector<double> times_, data_, files_, forecast_;
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
           {&pace.whole, &pace.data, &pace.compute, &pace.files, &pace.usual_wait})
        *time = any();
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
