#include "worker/data/idx.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/sentence.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

const Bytes kTwelve{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};

/// The sentence of the error, after checking what every error must have.
std::string refused(const Bytes& file, IdxKind kind = IdxKind::kImages) {
  const std::string sentence = sentence_of(parse_idx(file, kind, "x.idx"));
  CHECK(sentence.starts_with("x.idx: "));
  return sentence;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("images and labels are read alike from plain and gzip files") {
  for (const bool packed : {false, true}) {
    const Bytes images = idx_bytes({3, 2, 2}, kTwelve);
    const auto read = parse_idx(packed ? gzip_bytes(images) : images, IdxKind::kImages, "x");
    REQUIRE(read.has_value());
    CHECK(read->shape == std::vector<std::uint32_t>{3, 2, 2});
    CHECK(read->values == kTwelve);
    const Bytes flat = idx_bytes({4, 3}, kTwelve);
    CHECK(parse_idx(packed ? gzip_bytes(flat) : flat, IdxKind::kImages, "x")->values == kTwelve);
    const Bytes labels = idx_bytes({12}, kTwelve);
    CHECK(parse_idx(packed ? gzip_bytes(labels) : labels, IdxKind::kLabels, "x")->values ==
          kTwelve);
  }
}

TEST_CASE("what is no IDX file is refused with what would be right") {
  CHECK(has(refused({}), "is empty"));
  CHECK(has(refused({'P', 'N', 'G', '!'}), "starts with 504e4721; an IDX file of images starts"));
  CHECK(has(refused(idx_bytes({12}, kTwelve)), "starts with 00000801"));
  CHECK(has(refused(idx_bytes({3, 2, 2}, kTwelve), IdxKind::kLabels), "starts with 00000803"));
  Bytes floats = idx_bytes({3, 2, 2}, kTwelve);
  floats[2] = 0x0d;
  CHECK(has(refused(floats), "starts with 00000d03"));
  CHECK(has(refused(idx_bytes({0, 2, 2}, {})), "dimension 1 of its header is 0"));
}

TEST_CASE("a file cut anywhere is refused") {
  const Bytes plain = idx_bytes({3, 2, 2}, kTwelve);
  const Bytes packed = gzip_bytes(plain);
  for (const Bytes& whole : {plain, packed}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      CAPTURE(length);
      refused(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    }
  }
}

TEST_CASE("bytes beyond what the header says are refused") {
  Bytes plain = idx_bytes({3, 2, 2}, kTwelve);
  Bytes packed = gzip_bytes(plain);
  plain.push_back(0);
  CHECK(has(refused(plain), "its header says 3 x 2 x 2 = 12 bytes, but 13 follow"));
  CHECK(has(refused(gzip_bytes(plain)), "more bytes than its header says"));
  packed.push_back(0);
  CHECK(has(refused(packed), "1 bytes follow the gzip stream"));
}

TEST_CASE("a header that promises more than the file holds allocates nothing") {
  CHECK(has(refused(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, kTwelve)),
            "describes more than 4294967296 bytes"));
  CHECK(has(refused(idx_bytes({1, 0x4000, 0x4000}, kTwelve)), "images of more than"));
  CHECK(has(refused(idx_bytes({0x1000, 0x100, 0x100}, kTwelve)), "but 12 follow"));
  CHECK(has(refused(gzip_bytes(idx_bytes({0x1000, 0x100, 0x100}, kTwelve))),
            "more than a gzip file of"));
}

TEST_CASE("a gzip bomb is not inflated beyond its header") {
  // 8 MiB of zeros behind a header that says 12 values.
  CHECK(has(refused(gzip_bytes(idx_bytes({3, 2, 2}, Bytes(std::size_t{8} << 20)))),
            "more bytes than its header says"));
}

TEST_CASE("a gzip file with any flipped bit beyond its header is refused or decodes the same") {
  Rng rng(test::seed());
  Bytes values(400);
  for (auto& value : values) value = static_cast<std::uint8_t>(rng.below(4));
  const Bytes packed = gzip_bytes(idx_bytes({4, 10, 10}, values));
  for (std::size_t bit = 0; bit < packed.size() * 8; ++bit) {
    Bytes damaged = packed;
    damaged[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    const auto read = parse_idx(damaged, IdxKind::kImages, "x");
    if (read) CHECK(read->values == values);
  }
}

TEST_CASE("a file that takes more memory than there is for it is refused before it is read") {
  const TempDirectory directory;
  const std::string path = directory / "images";
  const Bytes plain = idx_bytes({3, 2, 2}, kTwelve), packed = gzip_bytes(plain);
  for (const bool is_packed : {false, true}) {
    CAPTURE(is_packed);
    write_bytes(path, is_packed ? packed : plain);
    // Of a packed one both are there at once.
    const std::uint64_t takes = is_packed ? packed.size() + kTwelve.size() : plain.size();
    REQUIRE(read_idx(path, IdxKind::kImages, takes));
    const auto refused = read_idx(path, IdxKind::kImages, takes - 1);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().exit_code() == contract::exit_code::kInvalidSpec);
    CHECK(refused.error().message() ==
          path + ": takes at least " + std::to_string(takes) +
              " bytes of memory, of which this process has " + std::to_string(takes - 1) +
              " left; spec.worker.resources.memory must be more for each process");
  }
  // Without blocks on the disk: nobody takes memory for what is not looked at.
  std::filesystem::resize_file(path, std::uint64_t{3} << 30);
  CHECK(has(read_idx(path, IdxKind::kImages, 1 << 20).error().message(),
            "takes at least 3221225472 bytes"));
}

TEST_CASE("files that are not there or no files are named") {
  const TempDirectory directory;
  const auto missing = read_idx(directory / "none.idx", IdxKind::kImages);
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code() == ErrorCode::kNotFound);
  CHECK(missing.error().exit_code() == contract::exit_code::kData);
  CHECK(missing.error().message() ==
        directory / "none.idx" + ": cannot open: No such file or directory");
  const auto folder = read_idx(directory.path(), IdxKind::kImages);
  REQUIRE_FALSE(folder.has_value());
  CHECK(has(folder.error().message(), "is not a regular file"));
}
