#include "worker/descriptor_limit.h"

#include <doctest/doctest.h>

using namespace muster::worker;

TEST_CASE("a gang whose changes want more descriptors than a trainer may open is told so") {
  CHECK(describe_few_descriptors(1024, 341).empty());
  CHECK(describe_few_descriptors(1024, 342).find("may want 1026 descriptors") != std::string::npos);
}
