// Pictures as PNG (ISO/IEC 15948), by libpng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "worker/data/picture.h"

namespace muster::data {

/// Whether a file begins as a PNG file does.
bool is_png(std::span<const std::uint8_t> file);

/// Of an animation the first picture.  Errors: as of decode_picture().
Result<Picture> decode_png(std::span<const std::uint8_t> file, const std::string& name,
                           std::size_t max_pixels);

/// As size_of_picture().
Result<Picture> size_of_png(std::span<const std::uint8_t> file, const std::string& name,
                            std::size_t max_pixels);

}  // namespace muster::data
