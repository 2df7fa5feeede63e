#include "kernels/dropout.h"

#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

/// Of a block of threads: a warp has neighbouring columns of one row.
constexpr unsigned kRows = kThreads / kWarp;

/// A thread has the four columns of a whole row whose numbers come from one call of philox.
__global__ void drop_kernel(std::size_t rows, cpu::Drop by, float* values) {
  const std::size_t end = by.first_column + by.columns;
  const std::size_t x = static_cast<std::size_t>(blockIdx.x) * kWarp + threadIdx.x;
  const std::size_t y = static_cast<std::size_t>(blockIdx.y) * kRows + threadIdx.y;
  for (std::size_t row = y; row < rows; row += std::size_t{gridDim.y} * kRows) {
    float* const of_row = values + row * by.columns;
    for (std::size_t four = by.first_column / 4 + x; 4 * four < end; four += gridDim.x * kWarp) {
      const auto words = drop_words(by, row, four);
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t column = 4 * four + i;
        if (column < by.first_column || column >= end) continue;
        float& value = of_row[column - by.first_column];
        value = dropped(by, words[i], value);
      }
    }
  }
}

}  // namespace

void drop(Context& context, std::size_t rows, const cpu::Drop& by, float* values) {
  if (rows == 0 || by.columns == 0) return;
  const std::size_t fours = by.columns / 4 + 2;  // the first and the last may be in part
  launch(context, dim3(blocks_for(fours, kWarp), blocks_for(rows, kRows)), dim3(kWarp, kRows),
         drop_kernel, rows, by, values);
}

}  // namespace muster::kernels::cuda
