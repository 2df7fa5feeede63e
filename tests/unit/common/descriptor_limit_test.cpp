#include "common/descriptor_limit.h"

#include <doctest/doctest.h>

namespace muster {
namespace {

TEST_CASE("a process may open as many descriptors as the hard limit lets it") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{before.rlim_max / 2, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  rlimit found{};
  CHECK(raise_descriptor_limit(&found) == before.rlim_max);
  CHECK(found.rlim_cur == low.rlim_cur);
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == before.rlim_max);
  CHECK(after.rlim_max == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace muster
