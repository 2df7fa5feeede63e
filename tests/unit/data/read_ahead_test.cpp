#include "worker/data/read_ahead.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/few_threads.h"

using namespace muster;
using namespace muster::data;

namespace {

using Indices = std::vector<std::uint64_t>;
using Bytes = std::vector<std::uint8_t>;

Indices from_to(std::uint64_t first, std::uint64_t last) {
  Indices out(last - first);
  std::iota(out.begin(), out.end(), first);
  return out;
}

Status fill(std::uint64_t index, std::span<std::uint8_t> out) {
  std::ranges::fill(out, static_cast<std::uint8_t>(index * 7));
  return {};
}

void check_take(ReadAhead& ahead, std::uint64_t index) {
  Bytes out(3);
  REQUIRE(ahead.take(index, out));
  CHECK(out == Bytes(3, static_cast<std::uint8_t>(index * 7)));
}

}  // namespace

TEST_CASE("whatever was wanted before, each sample is the one that is asked for") {
  Rng rng(20);
  ReadAhead ahead({3, 5, 3}, fill);
  for (int round = 0; round < 3000; ++round) {
    const std::uint64_t first = rng.below(40);
    if (rng.below(3) == 0) ahead.want(from_to(first, first + rng.below(9)));
    check_take(ahead, rng.below(50));
  }
}

TEST_CASE("no more samples are made ahead than there is room for, and all in the end") {
  std::atomic<int> made = 0, taken = 0, most = 0;
  ReadAhead ahead({4, 5, 3}, [&](std::uint64_t index, std::span<std::uint8_t> out) {
    const int held = ++made - taken;
    for (int seen = most; held > seen && !most.compare_exchange_weak(seen, held);) {
    }
    return fill(index, out);
  });
  const Indices all = from_to(0, 200);
  ahead.want(all);
  for (const std::uint64_t index : all) {
    check_take(ahead, index);
    ++taken;
  }
  CHECK(made == 200);
  // And the one that is being taken.
  CHECK(most <= 5 + 1);
}

TEST_CASE("of more samples than can be wanted at once the rest is wanted once others are taken") {
  constexpr std::uint64_t kAtOnce = ReadAhead::kMostWanted, kAll = kAtOnce + 100;
  std::atomic<std::uint64_t> made = 0, by_caller = 0;
  const auto caller = std::this_thread::get_id();
  ReadAhead ahead({1, 8, 3}, [&](std::uint64_t index, std::span<std::uint8_t> out) {
    by_caller += std::this_thread::get_id() == caller ? 1 : 0;
    ++made;
    made.notify_one();
    return fill(index, out);
  });
  Bytes out(3);
  TakenSamples taken;
  const auto want = [&] {
    ahead.want(from_to(taken.count, std::min<std::uint64_t>(taken.count + kAtOnce, kAll)));
  };
  const auto take = [&](std::uint64_t index) {
    for (auto seen = made.load(); seen <= index; seen = made.load()) made.wait(seen);
    const Status done = ahead.take(index, out);
    if (out[2] != static_cast<std::uint8_t>(index * 7)) FAIL(index);
    return done;
  };
  REQUIRE(take_samples(from_to(0, kAll), taken, want, take));
  CHECK(made == kAll);
  CHECK(by_caller == 0);
}

TEST_CASE(
    "those behind are wanted before the first sample, and whenever half of the most are gone") {
  TakenSamples taken{0, 8};
  Indices order, wanted;
  const auto want = [&] {
    CHECK(order.size() == taken.count);
    wanted.push_back(taken.count);
  };
  const auto take = [&](std::uint64_t index) -> Status {
    if (index == 10) return Error(ErrorCode::kCorrupt, "ten");
    order.push_back(index);
    return {};
  };
  for (const Indices& piece : {from_to(0, 2), from_to(2, 6), from_to(6, 9)}) {
    CHECK(take_samples(piece, taken, want, take));
  }
  CHECK(order == from_to(0, 9));
  CHECK(wanted == Indices{0, 4, 8});
  const Status wrong = take_samples(from_to(9, 12), taken, want, take);
  REQUIRE(!wrong);
  CHECK(wrong.error().message() == "ten");
  CHECK(order == from_to(0, 10));
}

TEST_CASE("what is made is not made again, and what was passed over makes room") {
  constexpr int kMost = 2;
  std::atomic<int> made = 0;
  std::latch both(kMost), other(1);
  ReadAhead ahead({1, kMost, 3}, [&](std::uint64_t index, std::span<std::uint8_t> out) {
    if (++made <= kMost) both.count_down();
    if (index == 9) other.count_down();
    return fill(index, out);
  });
  ahead.want(Indices{1, 2, 3, 4});
  both.wait();
  check_take(ahead, 1);
  ahead.want(Indices{4, 9});  // one of them for the second time
  check_take(ahead, 4);       // 2 and 3 are of no use any more
  other.wait();
  check_take(ahead, 9);
  // 3, which had room once 1 was taken, need not have been begun when it was passed over.
  const int before = made;
  CHECK(before >= 4);
  CHECK(before <= 5);
  check_take(ahead, 2);
  CHECK(made == before + 1);
}

TEST_CASE("what is under way is waited for, and errors come to who takes the sample") {
  std::latch begun(1), may_end(1);
  ReadAhead ahead({1, 4, 3}, [&](std::uint64_t index, std::span<std::uint8_t> out) -> Status {
    if (index == 1) {
      begun.count_down();
      may_end.wait();
    }
    if (index == 2) return Error(ErrorCode::kCorrupt, "two");
    return fill(index, out);
  });
  ahead.want(Indices{1, 2, 3});
  begun.wait();
  std::thread later([&] { may_end.count_down(); });
  check_take(ahead, 1);
  later.join();
  Bytes out(3);
  for (int time = 0; time < 2; ++time) {
    const Status wrong = ahead.take(2, out);
    REQUIRE(!wrong);
    CHECK(wrong.error().message() == "two");
  }
  check_take(ahead, 3);
}

TEST_CASE("samples are made with as many threads as the system gives, or by who takes them") {
  for (const rlim_t given : {0, 1}) {
    CAPTURE(given);
    CHECK(test::with_few_threads(given, [] {
      ReadAhead ahead({4, 5, 3}, fill);
      Bytes out(3);
      for (const std::uint64_t index : from_to(0, 30)) {
        ahead.want(from_to(index, index + 3));
        if (!ahead.take(index, out) || out != Bytes(3, static_cast<std::uint8_t>(index * 7))) {
          return false;
        }
      }
      return true;
    }));
  }
}

TEST_CASE("what is thrown while a sample is made comes to who takes it as an error") {
  std::latch ahead_of_time(1);
  ReadAhead ahead({1, 4, 3}, [&](std::uint64_t, std::span<std::uint8_t>) -> Status {
    ahead_of_time.count_down();
    throw std::bad_alloc();
  });
  ahead.want(Indices{1});
  ahead_of_time.wait();
  Bytes out(3);
  const Status wrong = ahead.take(1, out);
  REQUIRE(!wrong);
  CHECK(wrong.error().exit_code() == contract::exit_code::kOutOfMemory);
}

TEST_CASE("the end waits for what is under way, and for nothing else") {
  std::atomic<int> made = 0;
  std::latch begun(1);
  {
    ReadAhead ahead({1, 100, 3}, [&](std::uint64_t index, std::span<std::uint8_t> out) {
      if (++made == 1) begun.count_down();
      return fill(index, out);
    });
    ahead.want(from_to(0, 100));
    begun.wait();
  }
  CHECK(made >= 1);
  CHECK(made <= 100);
}
