#include "worker/data/png.h"

#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "common/check.h"
#include "worker/data/file.h"

namespace muster::data {
namespace {

/// libpng leaves through longjmp() where a file is wrong. So no object with a destructor may live
/// in a function of this class that calls setjmp(): it would never be destroyed.
class PngReader {
 public:
  explicit PngReader(std::span<const std::uint8_t> file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::fail, &PngReader::warn);
    MUSTER_CHECK(png_ != nullptr);
    info_ = png_create_info_struct(png_);
    MUSTER_CHECK(info_ != nullptr);
    png_set_read_fn(png_, this, &PngReader::read);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// False: why() says what is wrong.
  bool read_header() {
    if (setjmp(jump_) != 0) return false;
    png_set_user_limits(png_, kMaxPictureSide, kMaxPictureSide);
    png_read_info(png_, info_);
    return true;
  }
  std::size_t height() const { return png_get_image_height(png_, info_); }
  std::size_t width() const { return png_get_image_width(png_, info_); }

  /// After read_header().  Shape: colors (height, width, kColors).
  bool read_pixels(std::uint8_t* colors) {
    if (setjmp(jump_) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    MUSTER_CHECK(row_bytes == width() * kColors);
    for (int pass = 0; pass < passes; ++pass) {
      for (std::size_t y = 0; y < height(); ++y) {
        png_read_row(png_, colors + y * row_bytes, nullptr);
      }
    }
    png_read_end(png_, nullptr);
    return true;
  }
  const char* why() const { return why_.data(); }

 private:
  static void read(png_structp png, png_bytep out, std::size_t count) {
    auto& self = *static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self.rest_.size()) png_error(png, "it is cut");
    std::memcpy(out, self.rest_.data(), count);
    self.rest_ = self.rest_.subspan(count);
  }
  [[noreturn]] static void fail(png_structp png, png_const_charp message) {
    auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self.why_.data(), self.why_.size(), "%s", message);
    std::longjmp(self.jump_, 1);
  }
  static void warn(png_structp, png_const_charp) {}

  std::span<const std::uint8_t> rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_ = {};
  std::array<char, 128> why_ = {};
};

/// What a file's header says of its pixels, which follow.
Result<Picture> read_png_header(PngReader& reader, const std::string& name,
                                std::size_t max_pixels) {
  if (!reader.read_header()) return unreadable_picture(name, "PNG", reader.why());
  Picture picture{reader.height(), reader.width()};
  MUSTER_RETURN_IF_ERROR(check_picture_size(picture, max_pixels, name));
  return picture;
}

}  // namespace

bool is_png(std::span<const std::uint8_t> file) {
  constexpr std::size_t kSignatureBytes = 8;
  return file.size() >= kSignatureBytes && png_sig_cmp(file.data(), 0, kSignatureBytes) == 0;
}

Result<Picture> decode_png(std::span<const std::uint8_t> file, const std::string& name,
                           std::size_t max_pixels) {
  PngReader reader(file);
  MUSTER_ASSIGN_OR_RETURN(Picture picture, read_png_header(reader, name, max_pixels));
  picture.colors.resize(picture.height * picture.width * kColors);
  if (!reader.read_pixels(picture.colors.data())) {
    return unreadable_picture(name, "PNG", reader.why());
  }
  return picture;
}

Result<Picture> size_of_png(std::span<const std::uint8_t> file, const std::string& name,
                            std::size_t max_pixels) {
  PngReader reader(file);
  return read_png_header(reader, name, max_pixels);
}

}  // namespace muster::data
