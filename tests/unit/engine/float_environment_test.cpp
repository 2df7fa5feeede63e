#include "worker/engine/float_environment.h"

#include <doctest/doctest.h>

#include <cfenv>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "common/contract.h"

using namespace muster;

TEST_CASE("arithmetic as the contract needs it is accepted") {
  CHECK(engine::check_float_environment());
}

TEST_CASE("a thread that rounds otherwise or flushes denormals is refused") {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const Status rounded = engine::check_float_environment();
    std::fesetround(FE_TONEAREST);
    CAPTURE(mode);
    REQUIRE_FALSE(rounded);
    CHECK(rounded.error().exit_code() == contract::exit_code::kCpuOrContract);
  }
#if defined(__x86_64__)
  for (const unsigned bit : {0x8000u, 0x0040u}) {  // flush to zero, denormals are zero
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | bit);
    const Status flushed = engine::check_float_environment();
    _mm_setcsr(before);
    CAPTURE(bit);
    REQUIRE_FALSE(flushed);
    CHECK(flushed.error().message().find("denormal") != std::string::npos);
  }
#endif
}
