#include "common/result.h"

#include <doctest/doctest.h>

#include "common/sha256.h"

using namespace muster;

namespace {
Result<int> half(int value) {
  if (value % 2 != 0) return Error(ErrorCode::kInvalid, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  MUSTER_ASSIGN_OR_RETURN(const int once, half(value));
  return half(once);
}
}  // namespace

TEST_CASE("a result is a value or an error that says what was being done") {
  CHECK(*quarter(8) == 2);
  REQUIRE_FALSE(quarter(6));
  CHECK(quarter(6).error().with("halve").message() == "halve: odd");
  CHECK(to_string(quarter(6).error().code()) == "Invalid");
  CHECK(quarter(6).error().with_exit_code(21).with("x").exit_code() == 21);
}

TEST_CASE("SHA-256 gives the published digests") {
  CHECK(to_hex(sha256(std::string_view("abc"))) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
