// Pictures from anywhere: decode_picture must answer or refuse, within its bounds.
#include <cstddef>
#include <cstdint>

#include "common/check.h"
#include "worker/data/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  // A few bytes may stand for many pixels, and those take their time.
  constexpr std::size_t kMaxPixels = std::size_t{1} << 18;
  const auto picture = decode_picture({bytes, size}, "x", kMaxPixels);
  if (!picture) return 0;
  MUSTER_CHECK(picture->height >= 1 && picture->width >= 1);
  MUSTER_CHECK(picture->height * picture->width <= kMaxPixels);
  MUSTER_CHECK(picture->colors.size() == picture->height * picture->width * kColors);
  return 0;
}
