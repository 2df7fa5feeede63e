#include "common/utf8.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("a character of UTF-8 has its length, whatever follows") {
  CHECK(utf8_length("a\xc3") == 1);
  CHECK(utf8_length(std::string_view("\0a", 2)) == 1);
  CHECK(utf8_length("\xc3\xbc"
                    "a") == 2);
  CHECK(utf8_length("\xe2\x82\xac") == 3);
  CHECK(utf8_length("\xf4\x8f\xbf\xbf") == 4);
}

TEST_CASE("what is no character of UTF-8 has none") {
  for (const char* text : {"", "\x80", "\xc3",
                           "\xc3"
                           "a",
                           "\xe2\x82", "\xf0\x9f\x98", "\xff",
                           // Overlong forms, a surrogate, and beyond U+10FFFF.
                           "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf",
                           "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    CAPTURE(text);
    CHECK(utf8_length(text) == 0);
  }
}
