// What tells how fast messages come over a network, and what tells nothing of it.
#include "worker/comm/arrivals.h"

#include <doctest/doctest.h>

#include "tests/test_main.h"

using namespace muster;
using namespace muster::comm;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::uint64_t kWatch = 7;

MonoTime at(int ms) { return MonoTime(milliseconds(ms)); }

/// Reads of one message of a MiB: of the first bytes at 10 ms, of all at `end_ms`.
void take_message(ArrivalMeter& meter, std::uint64_t watch, std::size_t first_bytes, int end_ms) {
  if (meter.may_begin(watch)) meter.begin(watch, first_bytes, at(10));
  CHECK_FALSE(meter.may_begin(watch));
  meter.end(watch, kMiB, at(end_ms));
}

}  // namespace

TEST_CASE("a message that is read as it comes is timed from its first bytes to its last") {
  ArrivalMeter meter;
  meter.ran_dry(kWatch);
  take_message(meter, kWatch, kMiB / 4, 13);
  // Three quarters in 3 ms; the first bytes had all the time before.
  CHECK(meter.take().bytes_per_second == doctest::Approx(kMiB * 250.0));
  CHECK(meter.take() == Arrivals{});
}

TEST_CASE("of several messages the fastest counts, and the bytes of all") {
  ArrivalMeter meter;
  for (const int end_ms : {20, 11, 110}) {
    meter.ran_dry(kWatch);
    take_message(meter, kWatch, 0, end_ms);
  }
  const Arrivals all = meter.take();
  CHECK(all.bytes == 3 * kMiB);
  CHECK(all.bytes_per_second == doctest::Approx(kMiB * 1000.0));
}

TEST_CASE("a message that has stood there before somebody read it tells no speed") {
  ArrivalMeter meter;
  take_message(meter, kWatch, 0, 11);
  // What ran dry was read before the one that comes then.
  meter.ran_dry(kWatch);
  CHECK(meter.may_begin(kWatch));
  take_message(meter, kWatch, 0, 11);
  CHECK(meter.take() == Arrivals{2 * kMiB, 0});
}

TEST_CASE("a message for which nobody looked for a while tells no speed") {
  ArrivalMeter meter;
  SUBCASE("before it began") {
    meter.ran_dry(kWatch);
    take_message(meter, kWatch + 1, 0, 11);
  }
  SUBCASE("when it ran dry") {
    meter.ran_dry(0);
    take_message(meter, kWatch, 0, 11);
  }
  SUBCASE("at all") {
    meter.ran_dry(0);
    take_message(meter, 0, 0, 11);
  }
  SUBCASE("in its middle") {
    meter.ran_dry(kWatch);
    REQUIRE(meter.may_begin(kWatch));
    meter.begin(kWatch, 0, at(10));
    meter.end(kWatch + 1, kMiB, at(20));
  }
  SUBCASE("at its end") {
    meter.ran_dry(kWatch);
    REQUIRE(meter.may_begin(kWatch));
    meter.begin(kWatch, 0, at(10));
    meter.end(0, kMiB, at(20));
  }
  CHECK(meter.take() == Arrivals{kMiB, 0});
}

TEST_CASE("after a pause a message is timed from when it was read as it came again") {
  ArrivalMeter meter;
  meter.ran_dry(kWatch);
  REQUIRE(meter.may_begin(kWatch));
  meter.begin(kWatch, 0, at(10));
  meter.ran_dry(kWatch + 1);
  REQUIRE(meter.may_begin(kWatch + 1));
  meter.begin(kWatch + 1, kMiB / 2, at(50));
  meter.end(kWatch + 1, kMiB, at(51));
  CHECK(meter.take().bytes_per_second == doctest::Approx(kMiB * 500.0));
}

TEST_CASE("the rest of a message is timed where it is enough, and took any time") {
  ArrivalMeter meter;
  meter.ran_dry(kWatch);
  take_message(meter, kWatch, kMiB - kLargeMessage / 2 + 1, 11);
  meter.ran_dry(kWatch);
  take_message(meter, kWatch, 0, 10);
  CHECK(meter.take() == Arrivals{2 * kMiB, 0});
}
