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

}  // namespace

bool is_jpeg(std::span<const std::uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

Result<Picture> decode_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                            std::size_t max_pixels) {
  const Turbo turbo(tjInitDecompress());
  MUSTER_CHECK(turbo != nullptr);
  const auto wrong = [&] { return unreadable_picture(name, "JPEG", tjGetErrorStr2(turbo.get())); };
  int width = 0, height = 0, subsampling = 0, colors = 0;
  if (tjDecompressHeader3(turbo.get(), file.data(), file.size(), &width, &height, &subsampling,
                          &colors) != 0) {
    return wrong();
  }
  if (colors == TJCS_CMYK || colors == TJCS_YCCK) {
    return bad_data(name, ErrorCode::kInvalid,
                    "has the colors of a printer (CMYK); must be gray, or red, green and blue");
  }
  Picture picture{static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
  MUSTER_RETURN_IF_ERROR(check_picture_size(picture, max_pixels, name));
  picture.colors.resize(picture.height * picture.width * kColors);
  // It fails where it warns, too.
  if (tjDecompress2(turbo.get(), file.data(), file.size(), picture.colors.data(), width, 0, height,
                    TJPF_RGB, kFlags) != 0) {
    return wrong();
  }
  return picture;
}

}  // namespace muster::data
