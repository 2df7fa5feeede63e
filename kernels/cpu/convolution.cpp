// A convolution with stride 1 that keeps the size of its images is a product of matrices: these
// lay out what its kernel meets, and take its gradient back.
#include <cstring>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values of patches: enough to be worth waking a thread.
constexpr std::size_t kTaskElements = 16'384;

void check_side(std::size_t side) {
  if (side % 2 == 0) fail("the side of a convolution's kernel must be odd");
}

/// Rows of pixels, all images one below the other, that one task takes.
std::size_t lines_of_task(const Extent& image, std::size_t side) {
  return kTaskElements / (image.width * side * side * image.channels) + 1;
}

/// One image's patches of row `y`.
void gather_line(const Extent& image, std::size_t side, const float* x, std::size_t y, float* out) {
  const std::size_t half = side / 2;
  const std::size_t run = side * image.channels;
  for (std::size_t column = 0; column < image.width; ++column) {
    // Taps [first, last) of a row of the kernel lie in the image.
    const std::size_t first = column < half ? half - column : 0;
    const std::size_t last = least(side, image.width + half - column);
    for (std::size_t ky = 0; ky < side; ++ky, out += run) {
      if (y + ky < half || y + ky >= image.height + half) {
        std::memset(out, 0, run * sizeof(float));
        continue;
      }
      const std::size_t pixel = (y + ky - half) * image.width + (column + first - half);
      const std::size_t values = (last - first) * image.channels;
      float* inside = out + first * image.channels;
      std::memset(out, 0, first * image.channels * sizeof(float));
      std::memcpy(inside, x + pixel * image.channels, values * sizeof(float));
      std::memset(inside + values, 0, (side - last) * image.channels * sizeof(float));
    }
  }
}

/// dx of one pixel's channels.
void scatter_pixel(const Extent& image, std::size_t side, const float* dpatches, std::size_t y,
                   std::size_t column, float* dx) {
  const std::size_t half = side / 2;
  const std::size_t channels = image.channels;
  for (std::size_t c = 0; c < channels; ++c) dx[c] = 0.0F;
  for (std::size_t ky = 0; ky < side; ++ky) {
    if (y + half < ky || y + half - ky >= image.height) continue;
    for (std::size_t kx = 0; kx < side; ++kx) {
      if (column + half < kx || column + half - kx >= image.width) continue;
      const std::size_t patch = (y + half - ky) * image.width + (column + half - kx);
      const float* from = dpatches + ((patch * side + ky) * side + kx) * channels;
      for (std::size_t c = 0; c < channels; ++c) dx[c] = dx[c] + from[c];
    }
  }
}

}  // namespace

void gather_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                    const float* x, float* patches) {
  check_side(side);
  const std::size_t lines = M * image.height;
  const std::size_t at_once = lines_of_task(image, side);
  const std::size_t line_size = image.width * side * side * image.channels;
  parallel_for(context, (lines + at_once - 1) / at_once, [&](std::size_t index, std::size_t) {
    const std::size_t end = least(lines, (index + 1) * at_once);
    for (std::size_t line = index * at_once; line < end; ++line) {
      gather_line(image, side, x + line / image.height * image.size(), line % image.height,
                  patches + line * line_size);
    }
  });
}

void scatter_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                     const float* dpatches, const float* relu_output, float* dx) {
  check_side(side);
  const std::size_t lines = M * image.height;
  const std::size_t at_once = lines_of_task(image, side);
  const std::size_t patches_size = image.size() * side * side;
  parallel_for(context, (lines + at_once - 1) / at_once, [&](std::size_t index, std::size_t) {
    const std::size_t end = least(lines, (index + 1) * at_once);
    for (std::size_t line = index * at_once; line < end; ++line) {
      const float* from = dpatches + line / image.height * patches_size;
      for (std::size_t column = 0; column < image.width; ++column) {
        const std::size_t at = (line * image.width + column) * image.channels;
        scatter_pixel(image, side, from, line % image.height, column, dx + at);
        if (relu_output == nullptr) continue;
        for (std::size_t c = at; c < at + image.channels; ++c) {
          dx[c] = relu_output[c] > 0.0F ? dx[c] : 0.0F;
        }
      }
    }
  });
}

}  // namespace muster::kernels::cpu
