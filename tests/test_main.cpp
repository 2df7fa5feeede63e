#include "tests/test_main.h"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/log.h"

namespace muster::test {
namespace {
std::uint64_t g_seed = 1;
std::int64_t g_cases = 0;
}  // namespace
std::uint64_t seed() { return g_seed; }
std::int64_t cases(std::int64_t usual) { return g_cases > 0 ? g_cases : usual; }
}  // namespace muster::test

int main(int argc, char** argv) {
  // What a failing check says would be lost among what the product logs of the faults it is given.
  muster::LogLevel least = muster::LogLevel::kError;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
      muster::test::g_seed = std::strtoull(argv[i + 1], nullptr, 10);
    }
    if (std::strcmp(argv[i], "--cases") == 0 && i + 1 < argc) {
      muster::test::g_cases = std::strtoll(argv[i + 1], nullptr, 10);
    }
    if (std::strcmp(argv[i], "--log") == 0) least = muster::LogLevel::kDebug;
  }
  muster::configure_log(least, {});
  // Into a file, too, a line stands where it was said, before what stderr has of an end.
  (void)std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  doctest::Context context(argc, argv);
  const int failed = context.run();
  if (failed != 0) {
    std::fprintf(stderr, "again with: %s --seed %llu (--log: with what the product logs)\n",
                 argv[0], static_cast<unsigned long long>(muster::test::seed()));
  }
  return failed;
}
