#include "worker/data/picture.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "common/rng.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/data/sentence.h"
#include "worker/data/jpeg.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

Picture decoded(const Bytes& file) {
  auto picture = decode_picture(file, "x");
  REQUIRE_MESSAGE(picture, picture.error().message());
  return std::move(*picture);
}

std::string picture_refusal(const Bytes& file) {
  return sentence_behind("x: ", decode_picture(file, "x"));
}

Bytes noise(std::size_t count) {
  Rng rng(count);
  Bytes out(count);
  for (std::uint8_t& value : out) value = static_cast<std::uint8_t>(rng.below(256));
  return out;
}

}  // namespace

TEST_CASE("a PNG of every kind gives the samples that stand in it") {
  const Bytes colors = noise(5 * 7 * 3);
  CHECK(decoded(png_bytes(5, 7, colors)) == Picture{5, 7, colors});
  CHECK(decoded(png_bytes(5, 7, colors, {PNG_COLOR_TYPE_RGB, 8, true})) == Picture{5, 7, colors});
  CHECK(decoded(png_bytes(1, 2, {9, 200}, {PNG_COLOR_TYPE_GRAY})).colors ==
        Bytes{9, 9, 9, 200, 200, 200});
  CHECK(decoded(png_bytes(1, 3, {0b10100000}, {PNG_COLOR_TYPE_GRAY, 1})).colors ==
        Bytes{255, 255, 255, 0, 0, 0, 255, 255, 255});
  CHECK(decoded(png_bytes(1, 2, {0x12, 0xff, 0xfe, 0x01}, {PNG_COLOR_TYPE_GRAY, 16})).colors ==
        Bytes{0x12, 0x12, 0x12, 0xfe, 0xfe, 0xfe});
  // What is transparent has its color all the same.
  CHECK(decoded(png_bytes(1, 2, {1, 2, 3, 0, 4, 5, 6, 9}, {PNG_COLOR_TYPE_RGBA})).colors ==
        Bytes{1, 2, 3, 4, 5, 6});
  CHECK(decoded(png_bytes(1, 2, {1, 60}, {PNG_COLOR_TYPE_PALETTE})).colors ==
        Bytes{1, 2, 3, 60, 120, 180});
}

TEST_CASE("a JPEG gives what was put in, but for its own roundings") {
  const Bytes flat(16 * 24 * 3, 77);
  CHECK(decoded(jpeg_bytes(16, 24, flat)) == Picture{16, 24, flat});
  Bytes ramp;
  for (int i = 0; i < 9 * 11; ++i) ramp.push_back(static_cast<std::uint8_t>(2 * i));
  const Picture gray = decoded(jpeg_bytes(9, 11, ramp, true));
  REQUIRE(gray.colors.size() == ramp.size() * 3);
  for (std::size_t i = 0; i < ramp.size(); ++i) {
    CHECK(std::abs(int{gray.colors[3 * i]} - int{ramp[i]}) <= 2);
    CHECK(gray.colors[3 * i + 1] == gray.colors[3 * i]);
    CHECK(gray.colors[3 * i + 2] == gray.colors[3 * i]);
  }
}

TEST_CASE("of a JPEG whose pixels come in several scans all coefficients are kept") {
  const Bytes colors = noise(5 * 7 * 3), gray = noise(5 * 7);
  for (const int kind : {0, TJFLAG_PROGRESSIVE}) {
    CAPTURE(kind);
    const bool is_progressive = kind != 0;
    CHECK(keeps_coefficients(jpeg_bytes(5, 7, colors, false, kind)) == is_progressive);
    CHECK(keeps_coefficients(jpeg_bytes(5, 7, gray, true, kind)) == is_progressive);
  }
  CHECK(decoded(jpeg_bytes(5, 7, colors, false, TJFLAG_PROGRESSIVE)) ==
        decoded(jpeg_bytes(5, 7, colors)));
  // A comment that looks like a progressive frame, bytes that fill, and a frame of three colors, of
  // which the first scan has one or all.
  const auto file = [](std::uint8_t frame, std::uint8_t in_scan) {
    return Bytes{0xff, 0xd8, 0xff, 0xfe, 0, 8, 0xff,    0xc2, 0, 4,  0,  0, 0xff, 0xff, frame,
                 0,    17,   8,    0,    1, 0, 1,       3,    1, 17, 0,  2, 17,   1,    3,
                 17,   1,    0xff, 0xda, 0, 8, in_scan, 1,    0, 0,  63, 0, 0};
  };
  CHECK_FALSE(keeps_coefficients(file(0xc0, 3)));
  CHECK(keeps_coefficients(file(0xc0, 1)));
  CHECK(keeps_coefficients(file(0xc2, 3)));
  CHECK_FALSE(keeps_coefficients(file(0xc9, 3)));  // with arithmetic coding
  CHECK(keeps_coefficients(file(0xca, 3)));
  CHECK(keeps_coefficients(Bytes{0xff, 0xd8, 0xff}));
}

TEST_CASE("a picture that is cut anywhere, or is none, is refused with a sentence") {
  for (const Bytes& file : {png_bytes(5, 7, noise(105)), jpeg_bytes(5, 7, noise(105))}) {
    for (std::size_t size = 8; size < file.size() - 2; ++size) {
      CAPTURE(size);
      const std::string refusal =
          picture_refusal(Bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size)));
      CHECK(refusal.starts_with("cannot be read as a "));
      CHECK(refusal.ends_with("; copy or convert it anew, or remove it, for all workers alike"));
    }
  }
  Bytes changed = png_bytes(5, 7, noise(105));
  changed[60] ^= 1;
  CHECK(picture_refusal(changed).starts_with("cannot be read as a PNG file: "));
  CHECK(picture_refusal({}) == "is empty; must be a PNG or a JPEG file");
  CHECK(picture_refusal({'G', 'I', 'F', '8', '9', 'a', 0, 0}) ==
        "is neither a PNG nor a JPEG file; convert or remove it, for all workers alike");
}

TEST_CASE("a picture of more pixels than are read is refused before there is room for them") {
  Bytes file = png_bytes(1, 1, {1, 2, 3});
  const auto set = [&](std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) {
      file[at + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
    }
  };
  set(16, 1 << 15);  // width, height, and the check sum of the header
  set(20, 1 << 15);
  set(29, static_cast<std::uint32_t>(crc32(0, file.data() + 12, 17)));
  CHECK(picture_refusal(file) ==
        "is 32768 x 32768; must have at most 32768 pixels a side and 67108864 in all");
}

TEST_CASE("a scaled picture has the means of the areas that its pixels cover") {
  const auto gray = [](std::size_t height, std::size_t width, const Bytes& values) {
    Picture picture{height, width};
    for (const std::uint8_t value : values) {
      picture.colors.insert(picture.colors.end(), {value, value, value});
    }
    return picture;
  };
  CHECK(scaled(gray(2, 2, {1, 2, 3, 5}), 1, 1) == gray(1, 1, {3}));  // 2.75
  CHECK(scaled(gray(1, 2, {1, 2}), 1, 1) == gray(1, 1, {2}));        // 1.5
  CHECK(scaled(gray(1, 3, {0, 30, 90}), 1, 2) == gray(1, 2, {10, 70}));
  CHECK(scaled(gray(1, 2, {10, 20}), 1, 3) == gray(1, 3, {10, 15, 20}));
  CHECK(scaled(gray(2, 1, {10, 20}), 4, 2) == gray(4, 2, {10, 10, 10, 10, 20, 20, 20, 20}));
  const Picture any{3, 4, noise(36)};
  CHECK(scaled(any, 3, 4) == any);
  CHECK(scaled(scaled(any, 9, 20), 3, 4) == any);
  for (std::size_t side = 1; side < 9; ++side) {
    CHECK(scaled(gray(5, 7, Bytes(35, 201)), side, 9 - side) ==
          gray(side, 9 - side, Bytes(side * (9 - side), 201)));
  }
}

TEST_CASE("gray is the luma of a color, and of what is gray the value itself") {
  Picture picture{1, 256};
  Bytes values;
  for (int i = 0; i < 256; ++i) {
    const auto value = static_cast<std::uint8_t>(i);
    values.push_back(value);
    picture.colors.insert(picture.colors.end(), {value, value, value});
  }
  CHECK(gray_of(picture) == values);
  CHECK(gray_of({1, 3, {255, 0, 0, 0, 255, 0, 0, 0, 255}}) == Bytes{76, 150, 29});
}
