#include "worker/data/text.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <span>

#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/sentence.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

/// The text of `count` bytes from `from` on.
std::string text_at(const std::uint8_t* from, std::size_t count) { return {from, from + count}; }

std::string refused(const std::string& path, std::size_t context) {
  return sentence_of(load_text(path, context));
}

}  // namespace

TEST_CASE("each byte of a text is the label of the bytes before it, whatever follows the last") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  // One byte more than three samples need, then up to one short of a fourth.
  for (const std::string text : {"abcdefghijklm", "abcdefghijklmn", "abcdefghijklmnop"}) {
    write_bytes(path, bytes_of(text));
    const auto read = load_text(path, 4);
    REQUIRE(read.has_value());
    CHECK(read->is_text());
    REQUIRE(read->count == 3);
    CHECK(read->features == 4);
    CHECK(read->targets == 4);
    CHECK(read->classes == 256);
    CHECK(read->height == 1);
    CHECK(read->width == 4);
    CHECK(text_at(read->image(0), 4) == "abcd");
    CHECK(text_at(read->labels_of(0), 4) == "bcde");
    CHECK(text_at(read->image(2), 4) == "ijkl");
    CHECK(text_at(read->labels_of(2), 4) == "jklm");
  }
  write_bytes(path, bytes_of("abcdefghijklmnopq"));
  CHECK(load_text(path, 4)->count == 4);
}

TEST_CASE("a text may be of any bytes, and of a context of one") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  write_bytes(path, {0x00, 0xff, 0x1f, 0x8b});
  const auto read = load_text(path, 1);
  REQUIRE(read.has_value());
  CHECK(read->is_text());
  CHECK(read->count == 3);
  CHECK(*read->image(1) == 0xff);
  CHECK(*read->labels_of(2) == 0x8b);
}

TEST_CASE("a text too short for one sample is refused with the bytes it must have") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  write_bytes(path, {});
  CHECK(refused(path, 64) ==
        path + ": is empty; a text for a context of 64 must have at least 65 bytes");
  write_bytes(path, Bytes(64, 'a'));
  CHECK(refused(path, 64) ==
        path + ": has 64 bytes; a text for a context of 64 must have at least 65 bytes");
  write_bytes(path, Bytes(65, 'a'));
  CHECK(load_text(path, 64)->count == 1);
}

TEST_CASE("a text that cannot be read is refused by its path") {
  const TempDirectory directory;
  const std::string missing = directory / "missing";
  CHECK(refused(missing, 4).starts_with(missing + ": "));
  const std::string folder = directory / "folder";
  std::filesystem::create_directory(folder);
  CHECK(refused(folder, 4) == folder + ": is not a regular file");
  // Without blocks on the disk: its size alone is looked at.
  const std::string large = directory / "large";
  write_bytes(large, {});
  std::filesystem::resize_file(large, kMaxTextBytes + 1);
  CHECK(refused(large, 4) == large + ": has 4294967297 bytes; at most 4294967296 are read");
}

TEST_CASE("the hash of a text is that of its file, also of the bytes that no sample reads") {
  const TempDirectory directory;
  const std::string path = directory / "text";
  write_bytes(path, bytes_of("to be, or not"));
  CHECK(to_hex(hash_of(*load_text(path, 5))) == to_hex(sha256("to be, or not")));
}

TEST_CASE("the texts of the example are one text, its last tenth for testing") {
  const Dataset train = *load_text("examples/data/shakespeare-train.txt", 64);
  const Dataset test = *load_text("examples/data/shakespeare-test.txt", 64);
  CHECK(train.images.size() == 1'003'854);
  CHECK(test.images.size() == 111'540);
  CHECK(train.count == 15'685);
  CHECK(test.count == 1'742);
  CHECK(text_at(train.image(0), 14) == "First Citizen:");
  Sha256 whole;  // that of tiny Shakespeare, which scripts/make_shakespeare.py divides
  whole.update(std::as_bytes(std::span(train.images)));
  whole.update(std::as_bytes(std::span(test.images)));
  CHECK(to_hex(whole.finish()) ==
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed");
}

TEST_CASE("images have one label each, beside them") {
  Dataset digits;
  digits.count = 2;
  digits.features = 3;
  digits.images = Bytes(6, 9);
  digits.labels = {7, 8};
  CHECK_FALSE(digits.is_text());
  CHECK(digits.targets == 1);
  CHECK(*digits.labels_of(1) == 8);
}
