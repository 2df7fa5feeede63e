#include "cli/terminal_text.h"

#include <doctest/doctest.h>

namespace muster::cli {
namespace {

TEST_CASE("nothing of unknown origin reaches the terminal as anything but text") {
  CHECK(printable("ROMEO:\n\tO, she doth teach") == "ROMEO:\n\tO, she doth teach");
  CHECK(printable("f\xc3\xbcr \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "f\xc3\xbcr \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(printable("a\x1b[2J\r\x07 b\x7f") == "a [2J   b ");
  CHECK(printable(std::string("a\0b", 3)) == "a b");
  // Raw bytes of an 8-bit terminal's controls, and the same controls in UTF-8.
  CHECK(printable("a\x9b\x32\x4a") == "a 2J");
  CHECK(printable("a\xc2\x9b\x32\x4a") == "a  2J");
  CHECK(printable("\xff\xc0\x80\xed\xa0\x80") == "      ");
  // Right to left, and no wider than nothing.
  CHECK(printable("a\xe2\x80\xae"
                  "b\xe2\x81\xa6"
                  "c\xe2\x80\x8b"
                  "d") == "a   b   c   d");
  CHECK(printable("\xe2\x80\x99") == "\xe2\x80\x99");
  CHECK(printable("a\xd8\x9c\xef\xbb\xbf\xf3\xa0\x81\x81z") == "a         z");
}

TEST_CASE("what any bytes become has no control characters and as many bytes") {
  std::string every;
  for (int high = 0; high < 256; ++high) {
    for (int low = 0; low < 256; low += 5) {
      every = {static_cast<char>(high), static_cast<char>(low), static_cast<char>(high ^ low)};
      const std::string shown = printable(every);
      CHECK(shown.size() == every.size());
      for (const char c : shown) {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_safe = byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\t';
        CHECK(is_safe);
      }
    }
  }
}

TEST_CASE("a character is a column, of however many bytes") {
  CHECK(columns_of("") == 0);
  CHECK(columns_of("f\xc3\xbcr \xe2\x82\xac") == 5);
}

}  // namespace
}  // namespace muster::cli
