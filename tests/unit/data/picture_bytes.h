// Pictures as files, made by the libraries that write them.
#pragma once

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/check.h"

namespace muster::test {

struct PngKind {
  int color_type = PNG_COLOR_TYPE_RGB;
  int bits = 8;
  bool is_interlaced = false;
};

/// `rows` as PNG packs them. A palette, if the kind has one, is (i, 2 i, 3 i), entry 1 transparent.
inline std::vector<std::uint8_t> png_bytes(std::uint32_t height, std::uint32_t width,
                                           std::vector<std::uint8_t> rows, PngKind kind = {}) {
  std::vector<std::uint8_t> file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp self, png_bytep bytes, std::size_t count) {
        auto& out = *static_cast<std::vector<std::uint8_t>*>(png_get_io_ptr(self));
        out.insert(out.end(), bytes, bytes + count);
      },
      nullptr);
  png_set_IHDR(png, info, width, height, kind.bits, kind.color_type,
               kind.is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (kind.color_type == PNG_COLOR_TYPE_PALETTE) {
    std::vector<png_color> palette;
    for (int i = 0; i < 1 << std::min(kind.bits, 6); ++i) {
      palette.push_back(
          {static_cast<png_byte>(i), static_cast<png_byte>(2 * i), static_cast<png_byte>(3 * i)});
    }
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    const png_byte alpha[] = {255, 0};
    png_set_tRNS(png, info, alpha, 2, nullptr);
  }
  png_write_info(png, info);
  MUSTER_CHECK(rows.size() == height * png_get_rowbytes(png, info));
  std::vector<png_bytep> starts;
  for (std::uint32_t y = 0; y < height; ++y) {
    starts.push_back(rows.data() + y * rows.size() / height);
  }
  png_write_image(png, starts.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

/// Shape: pixels (height, width, 3), or gray (height, width). `more_flags`: TJFLAG_PROGRESSIVE.
inline std::vector<std::uint8_t> jpeg_bytes(int height, int width,
                                            const std::vector<std::uint8_t>& pixels,
                                            bool is_gray = false, int more_flags = 0) {
  tjhandle turbo = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: the library's type
  MUSTER_CHECK(tjCompress2(turbo, pixels.data(), width, 0, height, is_gray ? TJPF_GRAY : TJPF_RGB,
                           &bytes, &size, is_gray ? TJSAMP_GRAY : TJSAMP_444, 100,
                           TJFLAG_ACCURATEDCT | more_flags) == 0);
  std::vector<std::uint8_t> file(bytes, bytes + size);
  tjFree(bytes);
  tjDestroy(turbo);
  return file;
}

}  // namespace muster::test
