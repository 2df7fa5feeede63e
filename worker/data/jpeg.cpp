#include "worker/data/jpeg.h"

#include <turbojpeg.h>

#include <memory>
#include <type_traits>

#include "common/check.h"
#include "worker/data/file.h"

namespace muster::data {
namespace {

struct Destroy {
  void operator()(tjhandle turbo) const { tjDestroy(turbo); }
};
using Turbo = std::unique_ptr<std::remove_pointer_t<tjhandle>, Destroy>;

/// The slow transform is the exact one; and a file that costs more time than its size tells, by
/// hundreds of scans, is refused.
constexpr int kFlags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;

/// Bytes of the least header of a scan. No header of a frame is shorter.
constexpr std::size_t kLeastHeader = 10;

/// Of markers those that a segment with its length follows: not restarts, begin and end.
bool has_segment(std::uint8_t code) {
  return code >= 0xc0 && code < 0xff && (code < 0xd0 || code > 0xd9);
}

/// Whether a segment is the header of a frame, as all of that range are but for tables.
bool is_frame(std::uint8_t code) {
  return code <= 0xcf && code != 0xc4 && code != 0xc8 && code != 0xcc;
}

Error unreadable_jpeg(const Turbo& turbo, const std::string& name) {
  return unreadable_picture(name, "JPEG", tjGetErrorStr2(turbo.get()));
}

/// What a file's header says of its pixels, which follow.
Result<Picture> read_jpeg_header(const Turbo& turbo, std::span<const std::uint8_t> file,
                                 const std::string& name, std::size_t max_pixels) {
  int width = 0, height = 0, subsampling = 0, colors = 0;
  if (tjDecompressHeader3(turbo.get(), file.data(), file.size(), &width, &height, &subsampling,
                          &colors) != 0) {
    return unreadable_jpeg(turbo, name);
  }
  if (colors == TJCS_CMYK || colors == TJCS_YCCK) {
    return bad_data(name, ErrorCode::kInvalid,
                    "has the colors of a printer (CMYK); must be gray, or red, green and blue");
  }
  Picture picture{static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
  MUSTER_RETURN_IF_ERROR(check_picture_size(picture, max_pixels, name));
  return picture;
}

}  // namespace

bool is_jpeg(std::span<const std::uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

bool keeps_coefficients(std::span<const std::uint8_t> file) {
  constexpr std::uint8_t kScan = 0xda;
  std::size_t colors = 0;
  for (std::size_t at = 0; at + kLeastHeader <= file.size();) {
    const std::uint8_t code = file[at + 1];
    if (file[at] != 0xff || !has_segment(code)) {
      ++at;
      continue;
    }
    if (is_frame(code)) {
      const bool is_progressive = (code & 3) == 2;
      if (is_progressive) return true;
      colors = file[at + 9];
    }
    if (code == kScan) return file[at + 4] < colors;
    at += 2 + (std::size_t{file[at + 2]} << 8 | std::size_t{file[at + 3]});
  }
  return true;
}

Result<Picture> decode_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                            std::size_t max_pixels) {
  const Turbo turbo(tjInitDecompress());
  MUSTER_CHECK(turbo != nullptr);
  MUSTER_ASSIGN_OR_RETURN(Picture picture, read_jpeg_header(turbo, file, name, max_pixels));
  picture.colors.resize(picture.height * picture.width * kColors);
  // It fails where it warns, too.
  if (tjDecompress2(turbo.get(), file.data(), file.size(), picture.colors.data(),
                    static_cast<int>(picture.width), 0, static_cast<int>(picture.height), TJPF_RGB,
                    kFlags) != 0) {
    return unreadable_jpeg(turbo, name);
  }
  return picture;
}

Result<Picture> size_of_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                             std::size_t max_pixels) {
  const Turbo turbo(tjInitDecompress());
  MUSTER_CHECK(turbo != nullptr);
  return read_jpeg_header(turbo, file, name, max_pixels);
}

}  // namespace muster::data
