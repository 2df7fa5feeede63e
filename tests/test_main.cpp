#include "tests/test_main.h"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace muster::test {
namespace {
std::uint64_t g_seed = 1;
}
std::uint64_t seed() { return g_seed; }
}  // namespace muster::test

int main(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--seed") == 0) {
      muster::test::g_seed = std::strtoull(argv[i + 1], nullptr, 10);
    }
  }
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (failed != 0) {
    std::fprintf(stderr, "again with: %s --seed %llu\n", argv[0],
                 static_cast<unsigned long long>(muster::test::seed()));
  }
  return failed;
}
