// Who slows the gang, judged from a model of its steps: what a trainer does alone, when its
// messages arrive, and what the others therefore wait for.
#include "worker/sentinel/pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "common/rng.h"
#include "tests/test_main.h"
#include "worker/sentinel/membership.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

/// Seconds of one trainer's step.
struct Cost {
  double data = 0.005, compute = 0.05, files = 0;
  double starved = 0;
  double late = 0;  ///< how long its messages are under way, beyond what others' are
  int logical_ranks = 4;
  bool waits_for_all = true;
  double alone() const { return data + compute + files; }
};

class Gang {
 public:
  explicit Gang(std::vector<Cost> costs)
      : costs_(std::move(costs)), books_(costs_.size()), waited_(costs_.size()) {
    for (auto& waited : waited_) waited.assign(costs_.size(), 0);
    for (std::size_t i = 0; i < costs_.size(); ++i) host_of_.push_back(static_cast<int>(i));
  }
  /// So many on each host. `sums`: a host adds up what its trainers have before others are sent it,
  /// and so these wait for the last of it.
  void share_hosts(int beside, bool sums) {
    for (std::size_t i = 0; i < costs_.size(); ++i) host_of_[i] = static_cast<int>(i) / beside;
    sums_by_host_ = sums;
  }
  std::vector<Cost>& costs() { return costs_; }
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// `jitter`: each trainer's own work takes up to that share longer, anew in each step.
  void step(Rng* rng = nullptr, double jitter = 0) {
    ++step_;
    std::vector<double> sent, alone;
    for (const Cost& cost : costs_) {
      const double more =
          rng == nullptr ? 0 : jitter * static_cast<double>(rng->below(1000)) / 1000;
      alone.push_back(cost.alone() * (1 + more));
      sent.push_back(alone.back() + cost.late);
    }
    const double whole = *std::max_element(sent.begin(), sent.end()) + kWire;
    for (std::size_t i = 0; i < costs_.size(); ++i) {
      for (std::size_t peer = 0; peer < costs_.size(); ++peer) {
        if (peer != i) waited_[i][peer] += std::max(0.0, arrives(i, peer, sent) + kWire - alone[i]);
      }
      StepSample sample;
      sample.epoch = epoch_;
      sample.step = step_;
      sample.rank = static_cast<int>(i);
      sample.logical_ranks = costs_[i].logical_ranks;
      sample.whole_seconds = whole;
      sample.data_seconds = costs_[i].data;
      sample.files_seconds = costs_[i].files;
      sample.starved_seconds = costs_[i].starved;
      sample.communicate_seconds = whole - alone[i];
      if (costs_[i].waits_for_all) sample.waited_seconds = waited_[i];
      books_[i].add(sample);
    }
  }

  std::vector<Slowness> judge() const {
    std::vector<Pace> paces;
    for (const PaceBook& book : books_) {
      if (auto pace = book.pace()) paces.push_back(*std::move(pace));
    }
    return judge_paces(std::move(paces), host_of_);
  }
  /// Steps until `rank` is named; 1,000 = never. `others`: how often anybody else was.
  int steps_until_named(int rank, Cause cause, int& others, int most = 1000) {
    std::vector<SlowWatch> watches(costs_.size());
    int named = 1000;
    for (int i = 1; i <= most; ++i) {
      step();
      const auto verdicts = judge();
      for (std::size_t r = 0; r < verdicts.size(); ++r) {
        if (!watches[r].take(verdicts[r])) continue;
        const bool is_meant = static_cast<int>(r) == rank && verdicts[r].cause == cause;
        if (is_meant && named == 1000) named = i;
        if (!is_meant) ++others;
      }
    }
    return named;
  }

 private:
  /// When what `i` needs of a peer's is sent.
  double arrives(std::size_t i, std::size_t peer, const std::vector<double>& sent) const {
    double last = sent[peer];
    for (std::size_t other = 0; sums_by_host_ && other < sent.size(); ++other) {
      const bool is_beside = host_of_[other] == host_of_[peer] && host_of_[other] != host_of_[i];
      if (is_beside) last = std::max(last, sent[other]);
    }
    return last;
  }

  static constexpr double kWire = 0.002;
  std::int64_t epoch_ = 5, step_ = 0;
  std::vector<Cost> costs_;
  std::vector<int> host_of_;
  bool sums_by_host_ = false;
  std::vector<PaceBook> books_;
  std::vector<std::vector<double>> waited_;
};

}  // namespace

TEST_CASE("a slow trainer is named within 20 steps, with its cause, and nobody else is") {
  for (const int size : {2, 3, 4, 8, 16}) {
    for (const int slow : {0, size - 1}) {
      for (const Cause cause : {Cause::kCompute, Cause::kData, Cause::kFiles, Cause::kNetwork}) {
        CAPTURE(size);
        CAPTURE(slow);
        CAPTURE(std::string(name_of(cause)));
        Gang gang(std::vector<Cost>(static_cast<std::size_t>(size)));
        for (int i = 0; i < 50; ++i) gang.step();
        Cost& cost = gang.costs()[static_cast<std::size_t>(slow)];
        if (cause == Cause::kCompute) cost.compute += 0.03;
        if (cause == Cause::kData) cost.data += 0.03;
        if (cause == Cause::kFiles) cost.files += 0.03;
        if (cause == Cause::kNetwork) cost.late += 0.03;
        int others = 0;
        CHECK(gang.steps_until_named(slow, cause, others, 40) <= 20);
        CHECK(others == 0);
        const auto verdicts = gang.judge();
        REQUIRE(verdicts.size() == static_cast<std::size_t>(size));
        const Slowness& worst = verdicts[static_cast<std::size_t>(slow)];
        CHECK(worst.delay > microseconds(29'000));
        CHECK(worst.delay < microseconds(33'000));  // with what messages need at all
        CHECK(worst.percent > 50);                  // 30 of 57 ms
        CHECK(worst.percent < 60);
      }
    }
  }
}

TEST_CASE(
    "of those who share a host the slow one is named, whoever sends what they have together") {
  for (const int hosts : {2, 3, 8}) {
    for (const int beside : {2, 4, 8}) {
      for (const bool sums : {false, true}) {
        CAPTURE(hosts);
        CAPTURE(beside);
        CAPTURE(sums);
        const int slow = beside + 1;  // the second of the second host
        Gang gang(std::vector<Cost>(static_cast<std::size_t>(hosts * beside)));
        gang.share_hosts(beside, sums);
        gang.costs()[static_cast<std::size_t>(slow)].compute += 0.03;
        int others = 0;
        CHECK(gang.steps_until_named(slow, Cause::kCompute, others, 40) <= 20);
        CHECK(others == 0);
        const auto verdicts = gang.judge();
        CHECK(verdicts[static_cast<std::size_t>(slow)].delay > microseconds(29'000));
        CHECK(verdicts[static_cast<std::size_t>(slow)].delay < microseconds(33'000));
      }
    }
  }
}

TEST_CASE("a host that is slow as a whole is named by all of it, and nobody else is") {
  for (const bool sums : {false, true}) {
    CAPTURE(sums);
    Gang gang(std::vector<Cost>(12));
    gang.share_hosts(4, sums);
    for (std::size_t i = 4; i < 8; ++i) gang.costs()[i].late += 0.03;
    for (int i = 0; i < 20; ++i) gang.step();
    const auto verdicts = gang.judge();
    REQUIRE(verdicts.size() == 12);
    for (std::size_t i = 0; i < 12; ++i) {
      CAPTURE(i);
      CHECK((verdicts[i].percent > 40) == (i / 4 == 1));
      if (i / 4 == 1) CHECK(verdicts[i].cause == Cause::kNetwork);
    }
  }
}

TEST_CASE(
    "of a host whose processes are told in part, those that are not are waited for as usual") {
  constexpr microseconds kShort{1'000}, kLong{50'000};
  std::vector<Pace> paces;
  for (int rank = 0; rank < 4; ++rank) {
    Pace pace;
    pace.epoch = 1;
    pace.rank = rank;
    pace.whole = microseconds(200'000);
    pace.waits_for_all = true;
    pace.usual_wait = kLong;
    for (int other = 0; other < 3; ++other) {
      if (other != rank) pace.waits.push_back({other, kShort});
    }
    paces.push_back(std::move(pace));
  }
  const auto verdicts = judge_paces(paces, {0, 0, 1, 1});
  REQUIRE(verdicts.size() == 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(verdicts[rank].delay == (rank == 3 ? kLong - kShort : microseconds(0)));
  }
}

TEST_CASE(
    "a slow link names whoever is behind it, and nobody who only waited for its part of a sum") {
  // Messages pass the link one by one, so who is sent his last gets on last, and others wait for
  // what he adds up. In milliseconds: one message takes 10.
  for (const int size : {4, 8, 16}) {
    CAPTURE(size);
    const int last = 10 * (size - 1), slow = size / 2;
    const auto reached = [&](int rank) { return 10 * ((rank - slow + size) % size); };
    std::vector<Pace> paces;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<Wait> all;
      for (int other = 0; other < size; ++other) {
        const int time = rank == slow    ? 2 * last
                         : other == slow ? reached(rank) + last
                                         : std::max(0, reached(other) - reached(rank));
        if (other != rank) all.push_back({other, milliseconds(time)});
      }
      std::ranges::sort(all, [](const Wait& a, const Wait& b) {
        return a.time != b.time ? a.time > b.time : a.rank < b.rank;
      });
      Pace pace;
      pace.rank = rank;
      pace.whole = milliseconds(2 * last + 10);
      pace.waits_for_all = true;
      pace.usual_wait = all[all.size() / 2].time;
      all.resize(std::min(all.size(), kMostWaits));
      std::ranges::sort(all, {}, &Wait::rank);
      pace.waits = std::move(all);
      paces.push_back(std::move(pace));
    }
    std::vector<int> host_of(static_cast<std::size_t>(size));
    std::iota(host_of.begin(), host_of.end(), 0);
    const auto verdicts = judge_paces(paces, host_of);
    REQUIRE(verdicts.size() == paces.size());
    for (int rank = 0; rank < size; ++rank) {
      CAPTURE(rank);
      const Slowness& one = verdicts[static_cast<std::size_t>(rank)];
      CHECK((one.delay > milliseconds(last)) == (rank == slow));
      if (rank != slow) CHECK(one.delay == microseconds(0));
      if (rank == slow) CHECK(one.cause == Cause::kNetwork);
    }
  }
}

TEST_CASE("who is slow itself is named beside one that is far slower") {
  Gang gang(std::vector<Cost>(4));
  gang.costs()[1].compute += 0.1;
  gang.costs()[2].compute += 0.04;
  for (int i = 0; i < 20; ++i) gang.step();
  const auto verdicts = gang.judge();
  REQUIRE(verdicts.size() == 4);
  for (const std::size_t rank : {1U, 2U}) {
    CAPTURE(rank);
    CHECK(verdicts[rank].cause == Cause::kCompute);
    CHECK(verdicts[rank].percent >= 20);
  }
}

TEST_CASE("late messages of one that is short of processor time are no matter of the network") {
  Gang gang(std::vector<Cost>(4));
  gang.costs()[2].late = gang.costs()[2].starved = 0.03;
  int others = 0;
  CHECK(gang.steps_until_named(2, Cause::kCompute, others, 40) <= 20);
  CHECK(others == 0);
}

TEST_CASE("an even gang has no slow trainer, however much its steps vary") {
  Rng rng(test::seed());
  for (const int size : {2, 3, 5, 8}) {
    for (const double jitter : {0.0, 0.1, 0.5, 1.0}) {
      Gang gang(std::vector<Cost>(static_cast<std::size_t>(size)));
      if (size == 5 || size == 8) gang.share_hosts(2, size == 8);
      std::vector<SlowWatch> watches(static_cast<std::size_t>(size));
      int named = 0;
      for (int i = 0; i < 2000; ++i) {
        gang.step(&rng, jitter);
        const auto verdicts = gang.judge();
        for (std::size_t r = 0; r < verdicts.size(); ++r) named += watches[r].take(verdicts[r]);
      }
      CAPTURE(size);
      CAPTURE(jitter);
      CHECK(named == 0);
    }
  }
}

TEST_CASE("a checkpoint now and then is no slowness, one in every step is") {
  Gang gang(std::vector<Cost>(4));
  std::vector<SlowWatch> watches(4);
  int named = 0;
  for (int i = 0; i < 200; ++i) {
    gang.costs()[0].files = i % 3 == 0 ? 0.2 : 0;
    gang.step();
    const auto verdicts = gang.judge();
    for (std::size_t r = 0; r < verdicts.size(); ++r) named += watches[r].take(verdicts[r]);
  }
  CHECK(named == 0);
  gang.costs()[0].files = 0.2;
  int others = 0;
  CHECK(gang.steps_until_named(0, Cause::kFiles, others, 40) <= 20);
  CHECK(others == 0);
}

TEST_CASE("who has more logical ranks takes longer and is not slow; who is slow besides is") {
  // 16 over 7: two have three, five have two.
  std::vector<Cost> costs(7);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    costs[i].logical_ranks = i < 2 ? 3 : 2;
    costs[i].compute = 0.025 * costs[i].logical_ranks;
  }
  Gang gang(costs);
  int others = 0;
  CHECK(gang.steps_until_named(-1, Cause::kCompute, others, 100) == 1000);
  CHECK(others == 0);
  gang.costs()[1].compute *= 2;
  CHECK(gang.steps_until_named(1, Cause::kCompute, others, 40) <= 20);
  CHECK(others == 0);
}

TEST_CASE("those who own nothing of the sum are no witnesses, but are seen by those who do") {
  std::vector<Cost> costs(6);
  for (const std::size_t idle : {0U, 2U, 3U, 5U}) costs[idle].waits_for_all = false;
  Gang gang(costs);
  for (int i = 0; i < 30; ++i) gang.step();
  gang.costs()[3].compute += 0.03;
  int others = 0;
  CHECK(gang.steps_until_named(3, Cause::kCompute, others, 40) <= 20);
  CHECK(others == 0);
}

TEST_CASE("once named, a trainer stays so until it is clearly even again") {
  SlowWatch watch;
  CHECK_FALSE(watch.take({microseconds(5'000), 19, Cause::kCompute}));
  CHECK(watch.take({microseconds(5'000), 20, Cause::kCompute}));
  CHECK_FALSE(watch.take({microseconds(9'000), 60, Cause::kData}));
  CHECK(watch.newest().cause == Cause::kData);
  CHECK_FALSE(watch.take({microseconds(3'000), 10, Cause::kData}));
  CHECK(watch.is_slow());
  CHECK_FALSE(watch.take({microseconds(3'000), 9, Cause::kData}));
  CHECK_FALSE(watch.is_slow());
  CHECK_FALSE(watch.take({microseconds(300), 90, Cause::kData}));  // of a step of microseconds
  CHECK(watch.take({microseconds(3'000), 30, Cause::kData}));
}

TEST_CASE("paces of different memberships, or not of all, say nothing") {
  Gang gang(std::vector<Cost>(3));
  for (int i = 0; i < 16; ++i) gang.step();
  CHECK(gang.judge().empty());  // too few steps after the first
  gang.step();
  CHECK(gang.judge().size() == 3);
  gang.set_epoch(6);
  for (int i = 0; i < 16; ++i) gang.step();
  CHECK(gang.judge().empty());  // those before were in another one
  gang.step();
  CHECK(gang.judge().size() == 3);

  Pace pace;
  pace.epoch = 1;
  pace.whole = microseconds(1000);
  pace.waits_for_all = true;
  std::vector<Pace> paces(3, pace);
  for (int i = 0; i < 3; ++i) paces[static_cast<std::size_t>(i)].rank = i;
  CHECK(judge_paces(paces, {0, 1, 2}).size() == 3);
  CHECK(judge_paces(paces, {0, 1, 2, 3}).empty());
  CHECK(judge_paces({pace}, {0}).empty());
  paces[1].epoch = 2;
  CHECK(judge_paces(paces, {0, 1, 2}).empty());
  paces[1].epoch = 1;
  paces[1].rank = 2;
  CHECK(judge_paces(paces, {0, 1, 2}).empty());
}

TEST_CASE("figures that nobody can have measured give a verdict within bounds") {
  Rng rng(test::seed());
  for (int round = 0; round < 2000; ++round) {
    const int size = 2 + static_cast<int>(rng.below(4));
    std::vector<Pace> paces;
    const auto any = [&] {
      const auto scale = static_cast<int>(rng.below(63));
      return microseconds(static_cast<std::int64_t>(rng.below(std::uint64_t{1} << scale)));
    };
    for (int rank = 0; rank < size; ++rank) {
      Pace pace{1,     1,
                rank,  static_cast<int>(rng.below(kMostRank)),
                any(), any(),
                any(), any(),
                any(), rng.below(4) > 0,
                any(), {}};
      for (std::size_t i = rng.below(kMostWaits + 1); i > 0; --i) {
        pace.waits.push_back({static_cast<int>(rng.below(8)), any()});
      }
      paces.push_back(std::move(pace));
    }
    std::vector<int> host_of;
    for (int rank = 0; rank < size; ++rank) host_of.push_back(static_cast<int>(rng.below(3)));
    for (const Slowness& one : judge_paces(paces, host_of)) {
      CHECK(one.delay >= microseconds(0));
      CHECK(one.percent >= 0);
      CHECK(one.percent <= 10'000);
    }
  }
}

TEST_CASE("paces travel with beats; of another membership's nothing is taken") {
  View first;
  first.epoch = 1;
  for (int slot = 0; slot < 2; ++slot) first.seats.push_back({{slot, 0}, "h", 1, 1, {}});
  MonoTime now{seconds(1)};
  Membership teller({}, first.seats[0], first, now), hearer({}, first.seats[1], first, now);
  Pace pace;
  pace.epoch = 1;
  pace.step = 7;
  hearer.set_paces({Pace{1, 7, 1, 4, {}, {}, {}, {}, {}, false, {}, {}}});
  const auto tell = [&](std::int64_t epoch) {
    pace.epoch = epoch;
    teller.set_paces({pace});
    now += seconds(1);
    teller.tick(now);
    for (const Output& output : teller.take_outputs()) {
      if (const auto* send = std::get_if<Send>(&output)) hearer.receive(now, send->message);
    }
    return hearer.paces().size();
  };
  CHECK(tell(1) == 2);
  CHECK(hearer.paces()[1] == pace);
  CHECK(tell(2) == 1);
}
