#include "cli/sample.h"

#include <doctest/doctest.h>

#include "cli/files.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

TEST_CASE("of what a model wrote the front is shown, and nothing but text reaches the terminal") {
  CHECK(shown_sample("To be\x1b[2J") == "To be [2J");
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
