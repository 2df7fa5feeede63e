#include "worker/data/picture.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "worker/data/file.h"
#include "worker/data/jpeg.h"
#include "worker/data/png.h"

namespace muster::data {
namespace {

/// The values that one of `to` covers of `from`, each of which is `to` long, and itself `from`.
class Cover {
 public:
  Cover(std::size_t from, std::size_t to, std::size_t index)
      : begin_(index * from), end_(begin_ + from), length_(to) {}
  std::size_t first() const { return begin_ / length_; }
  std::size_t last() const { return (end_ + length_ - 1) / length_; }
  /// How much of value `at` it covers.
  std::uint64_t share(std::size_t at) const {
    return std::min(end_, (at + 1) * length_) - std::max(begin_, at * length_);
  }

 private:
  std::size_t begin_, end_, length_;
};

}  // namespace

Status check_picture_size(const Picture& picture, std::size_t max_pixels, const std::string& name) {
  const auto [height, width] = std::pair(picture.height, picture.width);
  if (height <= kMaxPictureSide && width <= kMaxPictureSide && height * width <= max_pixels) {
    return {};
  }
  return bad_data(name, ErrorCode::kTooLarge,
                  "is " + std::to_string(height) + " x " + std::to_string(width) +
                      "; must have at most " + std::to_string(kMaxPictureSide) +
                      " pixels a side and " + std::to_string(max_pixels) + " in all");
}

Result<Picture> decode_picture(std::span<const std::uint8_t> file, const std::string& name,
                               std::size_t max_pixels) {
  if (is_png(file)) return decode_png(file, name, max_pixels);
  if (is_jpeg(file)) return decode_jpeg(file, name, max_pixels);
  return bad_data(
      name, ErrorCode::kInvalid,
      file.empty() ? "is empty; must be a PNG or a JPEG file" : "is neither a PNG nor a JPEG file");
}

Picture scaled(const Picture& picture, std::size_t height, std::size_t width) {
  MUSTER_CHECK(height >= 1 && width >= 1 && height <= kMaxPictureSide && width <= kMaxPictureSide);
  if (height == picture.height && width == picture.width) return picture;
  Picture out{height, width, std::vector<std::uint8_t>(height * width * kColors)};
  const std::uint64_t area = std::uint64_t{picture.height} * picture.width;
  std::uint8_t* next = out.colors.data();
  for (std::size_t y = 0; y < height; ++y) {
    const Cover rows(picture.height, height, y);
    for (std::size_t x = 0; x < width; ++x) {
      const Cover columns(picture.width, width, x);
      std::array<std::uint64_t, kColors> sum = {};
      for (std::size_t row = rows.first(); row < rows.last(); ++row) {
        for (std::size_t column = columns.first(); column < columns.last(); ++column) {
          const std::uint64_t share = rows.share(row) * columns.share(column);
          const std::uint8_t* pixel =
              picture.colors.data() + (row * picture.width + column) * kColors;
          for (std::size_t c = 0; c < kColors; ++c) sum[c] += share * pixel[c];
        }
      }
      for (const std::uint64_t value : sum) {
        *next++ = static_cast<std::uint8_t>((value + area / 2) / area);
      }
    }
  }
  return out;
}

std::vector<std::uint8_t> gray_of(const Picture& picture) {
  std::vector<std::uint8_t> out(picture.height * picture.width);
  const std::uint8_t* pixel = picture.colors.data();
  for (std::uint8_t& value : out) {
    value = static_cast<std::uint8_t>(
        (19595U * pixel[0] + 38470U * pixel[1] + 7471U * pixel[2] + 32768U) >> 16);
    pixel += kColors;
  }
  return out;
}

}  // namespace muster::data
