#include "worker/data/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/test_main.h"
#include "worker/data/permutation.h"

using namespace muster;
using namespace muster::data;

TEST_CASE("a permutation reaches every sample exactly once") {
  for (const std::uint64_t n : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 64u, 65u, 1437u, 4096u, 4097u}) {
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
      CAPTURE(n);
      const Permutation order(test::seed(), epoch, n);
      std::vector<int> seen(n);
      for (std::uint64_t i = 0; i < n; ++i) ++seen.at(order(i));
      CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST_CASE("every pass and every seed has an order of its own, and no order is the plain one") {
  const auto order_of = [](std::uint64_t seed, std::uint32_t epoch) {
    const Permutation order(seed, epoch, 1437);
    std::vector<std::uint64_t> values(1437);
    for (std::uint64_t i = 0; i < 1437; ++i) values[i] = order(i);
    return values;
  };
  const auto first = order_of(7, 0);
  CHECK(first == order_of(7, 0));
  // Two random orders of n agree in one place on average; more than 12 has probability 1e-10.
  for (const auto& other : {order_of(7, 1), order_of(8, 0)}) {
    int equal = 0;
    for (std::size_t i = 0; i < first.size(); ++i) equal += first[i] == other[i];
    CHECK(equal <= 12);
  }
  int fixed = 0;
  for (std::size_t i = 0; i < first.size(); ++i) fixed += first[i] == i;
  CHECK(fixed <= 12);
}

TEST_CASE("places are uniform: position 0 falls into each quarter about equally often") {
  std::array<int, 4> quarters{};
  for (std::uint32_t epoch = 0; epoch < 4000; ++epoch) {
    ++quarters[Permutation(test::seed(), epoch, 100)(0) / 25];
  }
  // 1,000 expected each, standard deviation 27; 5 of them.
  for (const int count : quarters) CHECK(std::abs(count - 1000) < 137);
}

TEST_CASE("within one pass no sample is read twice, and all but the last partial batch are read") {
  const Loader loader({.seed = 7, .samples = 1437, .logical_ranks = 16, .batch_size = 64});
  CHECK(loader.steps_per_epoch() == 22);
  std::vector<int> seen(1437);
  std::vector<std::uint64_t> batch(64);
  for (std::int64_t step = 22; step < 44; ++step) {
    loader.samples(step, {0, 16}, batch);
    for (const std::uint64_t index : batch) ++seen.at(index);
  }
  CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times <= 1; }));
  CHECK(std::accumulate(seen.begin(), seen.end(), 0) == 22 * 64);
}

TEST_CASE("what a logical rank reads does not depend on who holds it") {
  const Loader loader({.seed = 3, .samples = 1000, .logical_ranks = 8, .batch_size = 40});
  for (const std::int64_t step : {0, 24, 25, 1000}) {
    std::vector<std::uint64_t> all(40);
    loader.samples(step, {0, 8}, all);
    for (int first = 0; first < 8; ++first) {
      for (int last = first + 1; last <= 8; ++last) {
        std::vector<std::uint64_t> part(static_cast<std::size_t>(last - first) * 5);
        loader.samples(step, {first, last}, part);
        CHECK(std::equal(part.begin(), part.end(), all.begin() + first * 5));
        for (std::size_t skipped = 0; skipped <= part.size(); skipped += 3) {
          const std::vector<std::uint64_t> rest(part.begin() + static_cast<int>(skipped),
                                                part.end());
          CHECK(loader.samples(step, {first, last}, {skipped}) == rest);
          const std::vector<std::uint64_t> few(rest.begin(), rest.begin() + (rest.empty() ? 0 : 1));
          CHECK(loader.samples(step, {first, last}, {skipped, 1}) == few);
        }
      }
    }
    // The permutation of its pass, from the batch's place there on.
    const Permutation order(3, static_cast<std::uint32_t>(step / 25), 1000);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK(all[i] == order(static_cast<std::uint64_t>(step % 25) * 40 + i));
    }
  }
}
