#include "worker/gpu_list.h"

#include <doctest/doctest.h>

using namespace muster::worker;

TEST_CASE("each process of a worker has a MIG instance of its own") {
  const char* const listed = "MIG-a,MIG-GPU-b/1/0,MIG-c";
  CHECK(own_instance(listed, 0)->name == "MIG-a");
  CHECK(own_instance(listed, 1)->name == "MIG-GPU-b/1/0");
  CHECK(own_instance(listed, 5)->name == "MIG-c");
  CHECK(own_instance(listed, 5)->listed == 3);
}

TEST_CASE("what is no list of several instances is left to CUDA") {
  for (const char* const listed : {"", "MIG-a", "0,1", "all", "void", "GPU-a,GPU-b", "MIG-a,0"}) {
    CAPTURE(listed);
    CHECK_FALSE(own_instance(listed, 1));
  }
}
