#include "worker/engine/evaluation.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/ranks.h"

using namespace muster;
using namespace muster::engine;

namespace {

const ModelShape kSmallModel = ModelShape::mlp(std::vector<std::size_t>{6, 9, 4});

data::Dataset made_up(std::size_t count) {
  Rng rng(test::seed());
  data::Dataset set;
  set.count = count;
  set.features = 6;
  set.classes = 4;
  for (std::size_t i = 0; i < count * 6; ++i) {
    set.images.push_back(static_cast<std::uint8_t>(rng.below(256)));
  }
  for (std::size_t i = 0; i < count; ++i) {
    set.labels.push_back(static_cast<std::uint8_t>(rng.below(4)));
  }
  return set;
}

/// What kSmallModel begins with.
std::vector<float> small_parameters() {
  std::vector<float> parameters(kSmallModel.parameters());
  initialise(kSmallModel, 1, parameters);
  return parameters;
}

/// What every rank of `processes` finds, which must be the same on all.
Evaluation evaluated(const data::Dataset& set, int processes, std::size_t rows_max,
                     std::size_t most = 0) {
  const std::vector<float> parameters = small_parameters();
  std::vector<Evaluation> found(static_cast<std::size_t>(processes));
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    kernels::cpu::Context context;
    Model model(kSmallModel, rows_max, context);
    const SystemClock clock;
    EvaluatedParts made(8);
    const auto result =
        evaluate(model, parameters, {set, most}, made, communicator, 1, {clock, seconds(60), {}});
    MUSTER_CHECK(result.has_value());
    found[static_cast<std::size_t>(communicator.rank())] = *result;
  });
  for (const Evaluation& one : found) {
    CHECK(one.accuracy == found[0].accuracy);
    CHECK(one.loss == found[0].loss);
  }
  return found[0];
}

}  // namespace

TEST_CASE("the parts of the logical ranks are the whole test set, none twice") {
  for (const std::size_t samples : {1u, 7u, 8u, 100u}) {
    std::size_t next = 0;
    for (int rank = 0; rank < 8; ++rank) {
      const SampleRange part = evaluated_samples(rank, 8, samples);
      CHECK(part.first == next);
      next = part.last;
    }
    CHECK(next == samples);
  }
}

TEST_CASE("of a test set all is taken, or so many samples that stand evenly over it") {
  data::Dataset set;
  const auto indices = [&](std::size_t count, std::size_t most) {
    set.count = count;
    const TestSet test(set, most);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < test.taken(); ++i) found.push_back(test.index(i));
    return found;
  };
  CHECK(indices(4, 0) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(indices(4, 4) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(indices(4, 9) == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(indices(10, 1) == std::vector<std::size_t>{0});
  CHECK(indices(10, 4) == std::vector<std::size_t>{0, 2, 5, 7});
  CHECK(indices(10, 9) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  set.count = 10'000'000'000'000'001;
  CHECK(TestSet(set, 1'000'000'000).index(999'999'999) == 9'999'999'990'000'000);
}

TEST_CASE("a test of a part of the set is one of those samples alone, whoever makes it") {
  const data::Dataset set = made_up(103);
  data::Dataset part = set;
  part.count = 40;
  for (std::size_t i = 0; i < part.count; ++i) {
    const std::size_t from = TestSet(set, 40).index(i);
    std::copy_n(set.image(from), 6, part.images.data() + i * 6);
    part.labels[i] = set.labels[from];
  }
  const Evaluation expected = evaluated(part, 1, 4);
  for (const int processes : {1, 3}) {
    const Evaluation found = evaluated(set, processes, 4, 40);
    CHECK(found.accuracy == expected.accuracy);
    CHECK(found.loss == expected.loss);
  }
  CHECK(evaluated(set, 1, 4).loss != expected.loss);
}

TEST_CASE("who evaluates a large set says before every pass that it is alive") {
  const data::Dataset set = made_up(100);
  const std::vector<float> parameters = small_parameters();
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    kernels::cpu::Context context;
    Model model(kSmallModel, 3, context);
    int beats = 0;
    EvaluatedParts made(8);
    const auto result =
        evaluate(model, parameters, {set, 0}, made, communicator, 1, {clock, seconds(60), [&] {
                                                                        ++beats;
                                                                        return Status();
                                                                      }});
    MUSTER_CHECK(result.has_value());
    // Parts of 12 or 13 rows, three at once.
    CHECK(beats == 4 * 4 + 4 * 5);
  });
}

TEST_CASE("accuracy is that of one row at a time, whoever evaluates how many rows at once") {
  for (const std::size_t samples : {1u, 5u, 100u}) {
    const data::Dataset set = made_up(samples);
    const std::vector<float> parameters = small_parameters();
    kernels::cpu::Context context;
    Model model(kSmallModel, 1, context);
    model.use(parameters);
    std::size_t correct = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      kernels::cpu::bytes_to_unit(set.image(i), 6, model.input().data());
      model.labels()[0] = set.labels[i];
      model.forward(1);
      model.losses(1);
      correct += model.correct()[0] > 0 ? 1 : 0;
    }
    const Evaluation one = evaluated(set, 1, 1);
    CHECK(one.accuracy == static_cast<double>(correct) / static_cast<double>(samples));
    for (const int processes : {1, 2, 3, 8}) {
      for (const std::size_t rows_max : {2u, 3u, 64u}) {
        const Evaluation other = evaluated(set, processes, rows_max);
        CHECK(other.accuracy == one.accuracy);
        CHECK(other.loss == one.loss);
      }
    }
  }
}

TEST_CASE("the losses of a part are summed as one row, in however many passes they come") {
  // Eight parts, each of a whole block of the sum and some.
  constexpr std::size_t kPart = 5000, kRows = 1000;
  const data::Dataset set = made_up(8 * kPart);
  const std::vector<float> parameters = small_parameters();
  kernels::cpu::Context context;
  Model model(kSmallModel, kRows, context);
  model.use(parameters);
  std::vector<float> losses;
  for (std::size_t first = 0; first < set.count; first += kRows) {
    for (std::size_t i = 0; i < kRows; ++i) REQUIRE(model.set_row(i, set, first + i));
    model.forward(kRows);
    model.losses(kRows);
    losses.insert(losses.end(), model.loss().begin(), model.loss().end());
  }
  std::vector<float> sums;
  for (std::size_t at = 0; at < losses.size(); at += kPart) {
    sums.push_back(kernels::cpu::sum(losses.data() + at, kPart));
  }
  for (const int processes : {1, 3}) {
    for (const std::size_t rows_max : {7u, 333u, 4096u}) {
      CHECK(evaluated(set, processes, rows_max).loss ==
            tree_sum(sums) / static_cast<float>(set.count));
    }
  }
}

TEST_CASE("an evaluation whose others are lost goes on with the parts that it has made") {
  const data::Dataset set = made_up(100);
  const Evaluation expected = evaluated(set, 1, 4);
  const std::vector<float> parameters = small_parameters();
  kernels::cpu::Context context;
  Model model(kSmallModel, 4, context);
  const SystemClock clock;
  int passes = 0;
  const EvaluationLimits limits{clock, seconds(60), [&]() -> Status {
                                  ++passes;
                                  return {};
                                }};
  EvaluatedParts made(8);
  auto two = comm::make_local_communicators(2, clock);
  two[1]->abort();
  CHECK_FALSE(evaluate(model, parameters, {set, 0}, made, *two[0], 1, limits));
  CHECK(passes == 2 * 3 + 2 * 4);  // 12 or 13 samples a part
  auto one = comm::make_local_communicators(1, clock);
  const auto result = evaluate(model, parameters, {set, 0}, made, *one[0], 1, limits);
  REQUIRE(result.has_value());
  CHECK(passes == 4 * 3 + 4 * 4);
  CHECK(result->accuracy == expected.accuracy);
  CHECK(result->loss == expected.loss);
}

TEST_CASE(
    "an evaluation that is called off ends before its next pass, and keeps what it has made") {
  const data::Dataset set = made_up(100);
  const std::vector<float> parameters = small_parameters();
  kernels::cpu::Context context;
  Model model(kSmallModel, 4, context);
  const SystemClock clock;
  int passes = 0;
  const EvaluationLimits limits{clock, seconds(60), [&]() -> Status {
                                  if (++passes != 9) return {};
                                  return Error(ErrorCode::kAborted, "called off");
                                }};
  EvaluatedParts made(8);
  auto one = comm::make_local_communicators(1, clock);
  const auto called_off = evaluate(model, parameters, {set, 0}, made, *one[0], 1, limits);
  REQUIRE_FALSE(called_off.has_value());
  CHECK(called_off.error().message() == "called off");
  CHECK(passes == 9);  // in the third part, of 12 samples; the first two have 12 and 13
  const auto result = evaluate(model, parameters, {set, 0}, made, *one[0], 1, limits);
  REQUIRE(result.has_value());
  CHECK(passes == 9 + 3 * 3 + 3 * 4);
  CHECK(result->loss == evaluated(set, 1, 4).loss);
}

TEST_CASE("more labels are counted right than 32 bits count, also where several processes do") {
  data::Dataset set;
  set.count = 10'000'000'000;
  for (const int processes : {1, 2}) {
    test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
      const SystemClock clock;
      std::vector<PartSum> parts(2);
      const PartRange own = evaluated_parts(communicator.rank(), processes, 2);
      for (int part = own.first; part < own.last; ++part) {
        parts[static_cast<std::size_t>(part)].correct = part == 0 ? 4'999'999'999u : 1u;
      }
      const auto all = join_parts(parts, {set, 0}, communicator, 1, {clock, seconds(60), {}});
      MUSTER_CHECK(all.has_value());
      CHECK(all->accuracy == 0.5);
    });
  }
}

TEST_CASE("a tree sum adds halves to halves") {
  // 2^24 + 1 rounds back to 2^24: only the tree's grouping gives 2^24 + 4.
  const std::vector<float> values{0x1p24f, 1, 1, 1, 1, 1, 1, -2};
  CHECK(tree_sum(values) == ((0x1p24f + 1.0f) + (1.0f + 1.0f)) + ((1.0f + 1.0f) + (1.0f + -2.0f)));
  CHECK(tree_sum(std::vector<float>{3}) == 3);
}
