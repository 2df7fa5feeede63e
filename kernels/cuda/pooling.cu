#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

/// A value of images: channel c of pixel (y, x) of image m.
struct Place {
  __device__ Place(const Extent& image, std::size_t i)
      : c(i % image.channels),
        x(i / image.channels % image.width),
        y(i / image.channels / image.width % image.height),
        m(i / image.channels / image.width / image.height) {}
  __device__ Place(std::size_t channel, std::size_t column, std::size_t row, std::size_t number)
      : c(channel), x(column), y(row), m(number) {}
  __device__ std::size_t in(const Extent& image) const {
    return ((m * image.height + y) * image.width + x) * image.channels + c;
  }
  std::size_t c, x, y, m;
};

/// The first of the greatest of the four values that meet at `out`.
struct Greatest {
  __device__ Greatest(const Extent& image, const Place& out, const float* values) {
    for (unsigned i = 0; i < 4; ++i) {
      const Place from(out.c, 2 * out.x + i % 2, 2 * out.y + i / 2, out.m);
      const float other = values[from.in(image)];
      if (i > 0 && !(other > value)) continue;
      value = other;
      taken = i;
    }
  }
  float value = 0.0F;
  unsigned taken = 0;
};

/// n: values of y.
__global__ void max_pool_kernel(std::size_t n, Extent image, Extent out, const float* x, float* y) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    y[i] = Greatest(image, Place(out, i), x).value;
  }
}

/// n: values of dx.
__global__ void max_pool_backward_kernel(std::size_t n, Extent image, Extent out, const float* x,
                                         const float* dy, float* dx) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    const Place at(image, i);
    const Place pooled(at.c, at.x / 2, at.y / 2, at.m);
    float gradient = 0.0F;
    if (pooled.x < out.width && pooled.y < out.height &&
        Greatest(image, pooled, x).taken == at.y % 2 * 2 + at.x % 2) {
      gradient = dy[pooled.in(out)];
    }
    dx[i] = gradient;
  }
}

Extent pooled_extent(const Extent& image) {
  return {image.height / 2, image.width / 2, image.channels};
}

}  // namespace

void max_pool(Context& context, std::size_t M, const Extent& image, const float* x, float* y) {
  const Extent out = pooled_extent(image);
  const std::size_t n = M * out.size();
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, max_pool_kernel, n, image, out, x, y);
}

void max_pool_backward(Context& context, std::size_t M, const Extent& image, const float* x,
                       const float* dy, float* dx) {
  const std::size_t n = M * image.size();
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, max_pool_backward_kernel, n, image, pooled_extent(image),
         x, dy, dx);
}

}  // namespace muster::kernels::cuda
