#include "worker/descriptor_limit.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

using namespace muster::worker;

TEST_CASE("a process of a worker may open as many descriptors as the hard limit lets it") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{before.rlim_max / 2, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  CHECK(raise_descriptor_limit() == before.rlim_max);
  rlimit after{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &after) == 0);
  CHECK(after.rlim_cur == before.rlim_max);
  CHECK(after.rlim_max == before.rlim_max);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("a gang whose changes want more descriptors than a trainer may open is told so") {
  CHECK(describe_few_descriptors(1024, 341).empty());
  CHECK(describe_few_descriptors(1024, 342).find("may want 1026 descriptors") != std::string::npos);
}
