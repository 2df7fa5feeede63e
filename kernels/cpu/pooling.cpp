#include <cstring>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values that go in.
constexpr std::size_t kTaskElements = 16'384;

/// The four pixels of one output pixel, each with its channels.
struct Window {
  const float* at[4];
};

Window window_of(const Extent& image, const float* line, std::size_t column) {
  const float* above = line + 2 * column * image.channels;
  const float* below = above + image.width * image.channels;
  return {{above, above + image.channels, below, below + image.channels}};
}

/// Calls function(first row of pixels, row of outputs) for all of them; both count over all images.
template <typename Function>
void for_each_line(Context& context, std::size_t M, const Extent& image, Function function) {
  const std::size_t out_height = image.height / 2;
  const std::size_t lines = M * out_height;
  const std::size_t at_once = kTaskElements / (2 * image.width * image.channels) + 1;
  parallel_for(context, (lines + at_once - 1) / at_once, [&](std::size_t index, std::size_t) {
    const std::size_t end = least(lines, (index + 1) * at_once);
    for (std::size_t line = index * at_once; line < end; ++line) {
      function(line / out_height * image.height + line % out_height * 2, line);
    }
  });
}

}  // namespace

void max_pool(Context& context, std::size_t M, const Extent& image, const float* x, float* y) {
  const std::size_t out_width = image.width / 2;
  for_each_line(context, M, image, [&](std::size_t from, std::size_t to) {
    for (std::size_t column = 0; column < out_width; ++column) {
      const Window window = window_of(image, x + from * image.width * image.channels, column);
      float* out = y + (to * out_width + column) * image.channels;
      for (std::size_t c = 0; c < image.channels; ++c) {
        float greatest = window.at[0][c];
        greatest = window.at[1][c] > greatest ? window.at[1][c] : greatest;
        greatest = window.at[2][c] > greatest ? window.at[2][c] : greatest;
        greatest = window.at[3][c] > greatest ? window.at[3][c] : greatest;
        out[c] = greatest;
      }
    }
  });
}

void max_pool_backward(Context& context, std::size_t M, const Extent& image, const float* x,
                       const float* dy, float* dx) {
  const std::size_t out_width = image.width / 2;
  const std::size_t C = image.channels;
  // What no window has.
  if (image.height % 2 != 0 || image.width % 2 != 0) {
    std::memset(dx, 0, M * image.size() * sizeof(float));
  }
  for_each_line(context, M, image, [&](std::size_t from, std::size_t to) {
    const std::size_t line = from * image.width * C;
    for (std::size_t column = 0; column < out_width; ++column) {
      const Window window = window_of(image, x + line, column);
      const float* gradient = dy + (to * out_width + column) * C;
      float* above = dx + line + 2 * column * C;
      float* below = above + image.width * C;
      for (std::size_t c = 0; c < C; ++c) {
        float greatest = window.at[0][c];
        int taken = 0;
        for (int i = 1; i < 4; ++i) {
          const bool is_greater = window.at[i][c] > greatest;
          greatest = is_greater ? window.at[i][c] : greatest;
          taken = is_greater ? i : taken;
        }
        above[c] = taken == 0 ? gradient[c] : 0.0F;
        above[C + c] = taken == 1 ? gradient[c] : 0.0F;
        below[c] = taken == 2 ? gradient[c] : 0.0F;
        below[C + c] = taken == 3 ? gradient[c] : 0.0F;
      }
    }
  });
}

}  // namespace muster::kernels::cpu
