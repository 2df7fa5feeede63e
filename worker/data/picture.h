// One picture: decoded to red, green and blue, and scaled, with the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"

namespace muster::data {

/// Most bytes of a file.
inline constexpr std::size_t kMaxPictureBytes = std::size_t{64} << 20;
/// Most pixels of a picture, and most in a row or column of it.
inline constexpr std::size_t kMaxPicturePixels = std::size_t{1} << 26;
inline constexpr std::size_t kMaxPictureSide = std::size_t{1} << 15;
/// Red, green and blue.
inline constexpr std::size_t kColors = 3;

struct Picture {
  std::size_t height = 0, width = 0;
  std::vector<std::uint8_t> colors = {};  ///< (height, width, kColors)
  bool operator==(const Picture&) const = default;
};

/// Decodes a PNG or a JPEG file. Samples are taken as they stand: gamma, profiles, orientation and
/// what is transparent count for nothing; of 16 bits the upper 8 are taken. `name` stands in front
/// of every error.  Errors: kInvalid, kCorrupt, kTooLarge; one sentence, exit code kData.
Result<Picture> decode_picture(std::span<const std::uint8_t> file, const std::string& name,
                               std::size_t max_pixels = kMaxPicturePixels);

/// The same without its pixels, of its header alone: `colors` stays empty.  Errors: those of
/// decode_picture() that the header shows.
Result<Picture> size_of_picture(std::span<const std::uint8_t> file, const std::string& name,
                                std::size_t max_pixels = kMaxPicturePixels);

/// Every pixel is the mean of the area that it covers in `picture`, each color rounded to the
/// nearest, halves up.  Requires that height and width are from 1 to kMaxPictureSide.
Picture scaled(const Picture& picture, std::size_t height, std::size_t width);

/// Luma of each pixel: 0.299 red + 0.587 green + 0.114 blue in units of 2^-16, halves up; a gray
/// pixel keeps its value. Shape: (height, width). Source: ITU-R BT.601.
std::vector<std::uint8_t> gray_of(const Picture& picture);

/// What decode_picture() says of a file of that `kind` ("PNG") that its decoder refuses as `why`
/// tells: with what would be right; kCorrupt.
Error unreadable_picture(const std::string& name, const std::string& kind, const std::string& why);

/// Errors: kTooLarge, exit code kData.
Status check_picture_size(const Picture& picture, std::size_t max_pixels, const std::string& name);

}  // namespace muster::data
