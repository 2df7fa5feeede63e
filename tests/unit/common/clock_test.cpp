#include "common/clock.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("times are written and read back to the microsecond") {
  const auto time = parse_time("2026-11-21T12:34:56.000789Z");
  REQUIRE(time);
  CHECK(format_micro_time(*time) == "2026-11-21T12:34:56.000789Z");
  CHECK(format_time(*time) == "2026-11-21T12:34:56Z");
  CHECK(*parse_time("1970-01-01T00:00:00Z") == WallTime{});
}

TEST_CASE("what is not a UTC time is refused") {
  for (const char* text :
       {"", "now", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-21T24:00:00Z",
        "2026-11-21T12:00:00", "2026-11-21T12:00:00+02:00", "2026-11-21T12:00:00Zx"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_time(text));
  }
}
