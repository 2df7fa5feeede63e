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

TEST_CASE("text is cut between two characters") {
  const std::string_view text = "a\xc3\xbc\xe2\x82\xac";
  CHECK(utf8_head(text, 6) == text);
  CHECK(utf8_head(text, 5) == "a\xc3\xbc");
  CHECK(utf8_head(text, 3) == "a\xc3\xbc");
  CHECK(utf8_head(text, 2) == "a");
  CHECK(utf8_head(text, 0) == "");
  CHECK(utf8_head("\x80\x80", 1) == "");
}

TEST_CASE("bytes that belong to no character become question marks") {
  CHECK(to_utf8("Gr\xc3\xb6\xc3\x9f"
                "e") ==
        "Gr\xc3\xb6\xc3\x9f"
        "e");
  CHECK(to_utf8("a\xff\xe2\x82z\xc3") == "a???z?");
  CHECK(to_utf8("") == "");
}

TEST_CASE("text is UTF-8 where all of its characters are") {
  for (const char* text : {"", "a",
                           "Gr\xc3\xb6\xc3\x9f"
                           "e"}) {
    CAPTURE(text);
    CHECK(is_utf8(text));
  }
  for (const char* text : {"\xe9", "caf\xe9", "\xe9t", "Gr\xc3\xb6\xc3", "a\xc3z"}) {
    CAPTURE(text);
    CHECK_FALSE(is_utf8(text));
  }
}
