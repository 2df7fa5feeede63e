#include "operator/core/text.h"

#include <doctest/doctest.h>

#include <limits>

#include "common/json.h"
#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::core;

TEST_CASE("words that differ in amounts alone say no more; a place in a line does") {
  CHECK(differs_in_numbers_alone("room for 9 on n1", "room for 12 on n1"));
  CHECK(differs_in_numbers_alone("cpu 500m", "cpu 1500m"));
  CHECK_FALSE(differs_in_numbers_alone("room for 9", "room for 9"));
  CHECK_FALSE(differs_in_numbers_alone("room for 9", "room for 9 more"));
  CHECK_FALSE(differs_in_numbers_alone("the 6th place, room for 9", "the 5th place, room for 9"));
  CHECK(differs_in_numbers_alone("the 6th place, room for 9", "the 6th place, room for 10"));
}

TEST_CASE("what a worker writes becomes text that JSON keeps unchanged") {
  CHECK(clean_text("ok \xC3\xA4 \n\t") == "ok \xC3\xA4 \n\t");
  CHECK(clean_text(std::string("a\0b\x1B[0m\x7F", 8)) == "a?b?[0m?");
  CHECK(clean_text("\xFF\xC0\x80\xED\xA0\x80") == "??????");
  Rng rng(test::seed());
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes(rng.below(40), ' ');
    for (char& byte : bytes) byte = static_cast<char>(rng.below(256));
    const std::string clean = tail_of(bytes, 20);
    CHECK(clean.size() <= 20);
    const auto back = parse_json(dump_json(Json(clean)));
    REQUIRE(back.has_value());
    CHECK(back->get<std::string>() == clean);
  }
}

TEST_CASE("text is cut at the bound from the side that matters less") {
  CHECK(head_of("abcdef", 3) == "abc");
  CHECK(tail_of("abcdef", 3) == "def");
  CHECK(first_line("\n one\ntwo", 100) == "one");
  CHECK(head_of("a\xC3\xA4", 2) == "a?");
}

TEST_CASE("only numbers count as numbers") {
  for (const char* good : {"0.1234", "-1.5e-3", "7", "nan", "inf"}) CHECK(is_decimal(good));
  for (const char* bad : {"", "abc", "1 ", " 1", "0x1p3z", "1e999", "1;drop"}) {
    CHECK_FALSE(is_decimal(bad));
  }
  CHECK(decimal(1234.56, 1) == "1234.6");
  CHECK(decimal(std::numeric_limits<double>::quiet_NaN(), 1) == "0");
  CHECK(decimal(1e300, 1) == "0");
}

TEST_CASE("reasons are CamelCase words and hashes are hashes") {
  CHECK(is_reason("Evicted"));
  CHECK_FALSE(is_reason("node lost"));
  CHECK_FALSE(is_reason("1st"));
  CHECK_FALSE(is_reason(std::string(129, 'a')));
  CHECK(is_sha256(std::string(64, 'a')));
  CHECK_FALSE(is_sha256(std::string(64, 'A')));
  CHECK_FALSE(is_sha256(std::string(63, 'a')));
}
