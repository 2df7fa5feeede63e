// Pictures as JPEG (ISO/IEC 10918-1), by libjpeg-turbo.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "worker/data/picture.h"

namespace muster::data {

/// Whether a file begins as a JPEG file does.
bool is_jpeg(std::span<const std::uint8_t> file);

/// Whether the decoder of a JPEG file keeps all coefficients, two bytes for each color of a pixel,
/// until the last scan is read: those of a progressive picture, and of one whose colors come one
/// after another. Of a file without a scan true.
bool keeps_coefficients(std::span<const std::uint8_t> file);

/// With the exact integer transform, whose values are the same on every processor.
/// Errors: as of decode_picture(); also of a file that only warns, as one that is cut does.
Result<Picture> decode_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                            std::size_t max_pixels);

/// As size_of_picture().
Result<Picture> size_of_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                             std::size_t max_pixels);

}  // namespace muster::data
