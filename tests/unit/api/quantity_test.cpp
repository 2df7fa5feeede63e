#include <doctest/doctest.h>

#include "operator/api/training_job.h"

using namespace muster;
using namespace muster::api;

TEST_CASE("quantities are exact, and rounded up where they are finer than the unit") {
  CHECK(*parse_cpu_millis("2") == 2000);
  CHECK(*parse_cpu_millis("500m") == 500);
  CHECK(*parse_cpu_millis("0.1") == 100);
  CHECK(*parse_cpu_millis(".5") == 500);
  CHECK(*parse_cpu_millis("1.") == 1000);
  CHECK(*parse_cpu_millis("100u") == 1);
  CHECK(*parse_cpu_millis("1n") == 1);
  CHECK(*parse_cpu_millis("0") == 0);
  CHECK(*parse_cpu_millis("+3") == 3000);
  CHECK(*parse_bytes("512Mi") == 536'870'912);
  CHECK(*parse_bytes("1.5Gi") == 1'610'612'736);
  CHECK(*parse_bytes("1e3") == 1000);
  CHECK(*parse_bytes("12E2") == 1200);
  CHECK(*parse_bytes("1E") == 1'000'000'000'000'000'000);
  CHECK(*parse_bytes("1500m") == 2);
  CHECK(*parse_bytes("128974848000m") == 128'974'848);
  CHECK(*parse_bytes("7Ei") == std::int64_t{7} << 60);
  CHECK(*parse_bytes("0.123456789012345678Gi") == 132'560'718);
  CHECK(*parse_count("8") == 8);
  CHECK(*parse_count("4k") == 4000);
}

TEST_CASE("what is no quantity is refused") {
  // Thousands are "k"; nineteen digits are more than are kept exactly.
  for (const char* text : {"",
                           ".",
                           "m",
                           "Mi",
                           "1Kib",
                           "1 Gi",
                           "1ki",
                           "K",
                           "1K",
                           "0x10",
                           "1e",
                           "1e+",
                           "1e100",
                           "1,5",
                           "1.2.3",
                           "nan",
                           "-1",
                           "9Ei",
                           "8Ei",
                           "1ee3",
                           "1i",
                           "9223372036854775808",
                           "1234567890123456789"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text));
  }
  CHECK(parse_bytes("banana").error().message().find("512Mi") != std::string::npos);
  CHECK(parse_bytes("-1").error().message().find("negative") != std::string::npos);
}
