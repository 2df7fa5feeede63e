#include "cli/sample.h"

#include <doctest/doctest.h>

#include "cli/files.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

TEST_CASE("nothing that a model wrote reaches the terminal as anything but text") {
  CHECK(shown_sample("ROMEO:\n\tO, she doth teach") == "ROMEO:\n\tO, she doth teach");
  CHECK(shown_sample("f\xc3\xbcr \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "f\xc3\xbcr \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(shown_sample("a\x1b[2J\r\x07 b\x7f") == "a [2J   b ");
  CHECK(shown_sample(std::string("a\0b", 3)) == "a b");
  // Raw bytes of an 8-bit terminal's controls, and the same controls in UTF-8.
  CHECK(shown_sample("a\x9b\x32\x4a") == "a 2J");
  CHECK(shown_sample("a\xc2\x9b\x32\x4a") == "a  2J");
  CHECK(shown_sample("\xff\xc0\x80\xed\xa0\x80") == "      ");
  // Right to left, and no wider than nothing.
  CHECK(shown_sample("a\xe2\x80\xae"
                     "b\xe2\x81\xa6"
                     "c\xe2\x80\x8b"
                     "d") == "a   b   c   d");
  CHECK(shown_sample("\xe2\x80\x99") == "\xe2\x80\x99");
}

TEST_CASE("what any bytes become has no control characters and no more bytes than are shown") {
  std::string every;
  for (int high = 0; high < 256; ++high) {
    for (int low = 0; low < 256; low += 5) {
      every = {static_cast<char>(high), static_cast<char>(low), static_cast<char>(high ^ low)};
      const std::string shown = shown_sample(every);
      CHECK(shown.size() == every.size());
      for (const char c : shown) {
        const auto byte = static_cast<unsigned char>(c);
        const bool is_safe = byte >= 0x20 ? byte != 0x7f : c == '\n' || c == '\t';
        CHECK(is_safe);
      }
    }
  }
  CHECK(shown_sample(std::string(5000, 'a')) == std::string(1024, 'a'));
  // Cut within a character, its part is no character.
  CHECK(shown_sample(std::string(1023, 'a') + "\xc3\xbc") == std::string(1023, 'a') + " ");
}

TEST_CASE("a sample is shown under the name of its file, and only when there is one") {
  const test::TemporaryDirectory base;
  const std::string path = base.path + "/sample.txt";
  CHECK(sample_lines(path) == "");
  REQUIRE(write_file_atomically(path, ""));
  CHECK(sample_lines(path) == "");
  REQUIRE(write_file_atomically(path, "To be\x1b"));
  CHECK(sample_lines(path) == "sample " + path + "\nTo be \n");
  REQUIRE(write_file_atomically(path, "To be\n"));
  CHECK(sample_lines(path) == "sample " + path + "\nTo be\n");
  REQUIRE(write_file_atomically(path, std::string(1024, 'a')));
  CHECK(sample_lines(path) == "sample " + path + "\n" + std::string(1024, 'a') + "\n");
  REQUIRE(write_file_atomically(path, std::string(100'000, 'a')));
  CHECK(sample_lines(path) ==
        "sample " + path + " (its first 1024 bytes)\n" + std::string(1024, 'a') + "\n");
  CHECK(sample_lines(base.path) == "");
}

}  // namespace
}  // namespace muster::cli
