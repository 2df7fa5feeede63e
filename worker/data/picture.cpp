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

/// The values that number `index` of `to` covers of `from`. In units of which each of `from` is
/// `to` long, it is `from` long.
class Cover {
 public:
  Cover(std::size_t from, std::size_t to, std::size_t index)
      : begin_(index * from), end_(begin_ + from), length_(to) {}
  std::size_t first() const { return begin_ / length_; }
  std::size_t last() const { return (end_ + length_ - 1) / length_; }
  /// How much of value `at` it covers; of all but the first and the last one all.
  std::size_t share(std::size_t at) const {
    return std::min(end_, (at + 1) * length_) - std::max(begin_, at * length_);
  }

 private:
  std::size_t begin_, end_, length_;
};

/// For each of `width` pixels the sum over what it covers of a row, by its share.
void sum_across(const Picture& picture, std::size_t row, std::size_t width,
                std::vector<std::uint32_t>& sums) {
  const std::uint8_t* const pixels = picture.colors.data() + row * picture.width * kColors;
  std::uint32_t* next = sums.data();
  for (std::size_t x = 0; x < width; ++x) {
    const Cover cover(picture.width, width, x);
    const std::size_t first = cover.first(), end = cover.last();
    std::array<std::uint32_t, kColors> sum = {};
    for (std::size_t at = first + 1; at + 1 < end; ++at) {
      for (std::size_t c = 0; c < kColors; ++c) sum[c] += pixels[at * kColors + c];
    }
    const auto whole = static_cast<std::uint32_t>(width);
    const auto at_first = static_cast<std::uint32_t>(cover.share(first));
    const auto at_last = end - first > 1 ? static_cast<std::uint32_t>(cover.share(end - 1)) : 0;
    for (std::size_t c = 0; c < kColors; ++c) {
      *next++ = sum[c] * whole + at_first * pixels[first * kColors + c] +
                at_last * pixels[(end - 1) * kColors + c];
    }
  }
}

Error no_picture(std::span<const std::uint8_t> file, const std::string& name) {
  return bad_data(name, ErrorCode::kInvalid,
                  file.empty() ? "is empty; must be a PNG or a JPEG file"
                               : "is neither a PNG nor a JPEG file; convert or remove it, for all "
                                 "workers alike");
}

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

Error unreadable_picture(const std::string& name, const std::string& kind, const std::string& why) {
  return bad_data(name, ErrorCode::kCorrupt,
                  "cannot be read as a " + kind + " file: " + why +
                      "; copy or convert it anew, or remove it, for all workers alike");
}

Result<Picture> decode_picture(std::span<const std::uint8_t> file, const std::string& name,
                               std::size_t max_pixels) {
  if (is_png(file)) return decode_png(file, name, max_pixels);
  if (is_jpeg(file)) return decode_jpeg(file, name, max_pixels);
  return no_picture(file, name);
}

Result<Picture> size_of_picture(std::span<const std::uint8_t> file, const std::string& name,
                                std::size_t max_pixels) {
  if (is_png(file)) return size_of_png(file, name, max_pixels);
  if (is_jpeg(file)) return size_of_jpeg(file, name, max_pixels);
  return no_picture(file, name);
}

Picture scaled(const Picture& picture, std::size_t height, std::size_t width) {
  MUSTER_CHECK(height >= 1 && width >= 1 && height <= kMaxPictureSide && width <= kMaxPictureSide);
  if (height == picture.height && width == picture.width) return picture;
  Picture out{height, width, std::vector<std::uint8_t>(height * width * kColors)};
  const std::uint64_t area = std::uint64_t{picture.height} * picture.width;
  // At most kMaxPictureSide x 255.
  std::vector<std::uint32_t> across(width * kColors);
  std::vector<std::uint64_t> sums(width * kColors);
  std::size_t summed = picture.height;  // the row of which `across` is; none yet
  for (std::size_t y = 0; y < height; ++y) {
    const Cover cover(picture.height, height, y);
    std::ranges::fill(sums, 0);
    for (std::size_t row = cover.first(); row < cover.last(); ++row) {
      if (std::exchange(summed, row) != row) sum_across(picture, row, width, across);
      const std::uint64_t share = cover.share(row);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += share * across[i];
    }
    std::ranges::transform(
        sums, out.colors.begin() + static_cast<std::ptrdiff_t>(y * width * kColors),
        [&](std::uint64_t sum) { return static_cast<std::uint8_t>((sum + area / 2) / area); });
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
