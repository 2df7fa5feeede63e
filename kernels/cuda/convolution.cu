#include <algorithm>

#include "kernels/cuda/four.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

/// M images, and a kernel of side x side that moves over them. Channels are counted in Values: all
/// is done to fours where they hold the channels. A line is one row of pixels; its patches have
/// less than 2^32 Values, so that places in it are found by the fast division.
struct Lines {
  std::size_t count;   // of all images
  std::size_t height;  // of an image
  unsigned width, channels, side;
};

__device__ float sum_of(float a, float b) { return __fadd_rn(a, b); }
__device__ Four sum_of(Four a, const Four& b) {
  for (unsigned i = 0; i < 4; ++i) a.at[i] = __fadd_rn(a.at[i], b.at[i]);
  return a;
}
__device__ float where_positive(float mask, float value) { return mask > 0.0F ? value : 0.0F; }
__device__ Four where_positive(const Four& mask, Four value) {
  for (unsigned i = 0; i < 4; ++i) {
    value.at[i] = where_positive(mask.at[i], value.at[i]);
  }
  return value;
}

/// A block takes line after line.
template <typename Value>
__global__ void gather_kernel(Lines lines, const Value* __restrict__ x,
                              Value* __restrict__ patches) {
  const unsigned half = lines.side / 2, run = lines.side * lines.channels;
  const unsigned line_size = lines.width * lines.channels,
                 size = line_size * lines.side * lines.side;
  for (std::size_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const std::size_t y = line % lines.height;
    for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
      const unsigned row = i / run;  // of the kernel, at each pixel in turn
      const unsigned ky = row % lines.side, column = row / lines.side;
      // Differences that would be negative wrap round, and are too large as well.
      const std::size_t above = y + ky - half;
      const unsigned at = column * lines.channels + i % run - half * lines.channels;
      const bool is_inside = above < lines.height && at < line_size;
      patches[line * size + i] = is_inside ? x[(line + ky - half) * line_size + at] : Value{};
    }
  }
}

/// A thread sums all that met its value.
template <typename Value>
__global__ void scatter_kernel(Lines lines, const Value* __restrict__ dpatches,
                               const Value* __restrict__ relu_output, Value* __restrict__ dx) {
  const unsigned half = lines.side / 2, taps = lines.side * lines.side;
  const unsigned size = lines.width * lines.channels;
  for (std::size_t line = blockIdx.x; line < lines.count; line += gridDim.x) {
    const std::size_t y = line % lines.height;
    for (unsigned i = threadIdx.x; i < size; i += blockDim.x) {
      const unsigned column = i / lines.channels;
      Value sum{};
      for (unsigned ky = 0; ky < lines.side; ++ky) {
        // As above.
        if (y + half - ky >= lines.height) continue;
        for (unsigned kx = 0; kx < lines.side; ++kx) {
          if (column + half - kx >= lines.width) continue;
          const std::size_t patch = (line + half - ky) * lines.width + (column + half - kx);
          const std::size_t tap = patch * taps + ky * lines.side + kx;
          sum = sum_of(sum, dpatches[tap * lines.channels + i % lines.channels]);
        }
      }
      const std::size_t at = line * size + i;
      dx[at] = relu_output != nullptr ? where_positive(relu_output[at], sum) : sum;
    }
  }
}

Lines lines_of(std::size_t M, const Extent& image, std::size_t side, std::size_t channels) {
  return {M * image.height, image.height, static_cast<unsigned>(image.width),
          static_cast<unsigned>(channels), static_cast<unsigned>(side)};
}

const Four* fours(const float* values) { return reinterpret_cast<const Four*>(values); }
Four* fours(float* values) { return reinterpret_cast<Four*>(values); }

}  // namespace

void gather_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                    const float* x, float* patches) {
  if (M * image.size() == 0) return;
  if (holds_fours(x, image.channels) && holds_fours(patches, image.channels)) {
    const Lines lines = lines_of(M, image, side, image.channels / 4);
    launch(context, blocks_for(lines.count, 1), kThreads, gather_kernel<Four>, lines, fours(x),
           fours(patches));
  } else {
    const Lines lines = lines_of(M, image, side, image.channels);
    launch(context, blocks_for(lines.count, 1), kThreads, gather_kernel<float>, lines, x, patches);
  }
}

void scatter_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                     const float* dpatches, const float* relu_output, float* dx) {
  if (M * image.size() == 0) return;
  const std::size_t channels = image.channels;
  if (holds_fours(dpatches, channels) && holds_fours(relu_output, channels) &&
      holds_fours(dx, channels)) {
    const Lines lines = lines_of(M, image, side, channels / 4);
    launch(context, blocks_for(lines.count, 1), kThreads, scatter_kernel<Four>, lines,
           fours(dpatches), fours(relu_output), fours(dx));
  } else {
    const Lines lines = lines_of(M, image, side, channels);
    launch(context, blocks_for(lines.count, 1), kThreads, scatter_kernel<float>, lines, dpatches,
           relu_output, dx);
  }
}

}  // namespace muster::kernels::cuda
