// Sums of rows by the reduction rule of kernels/ops.h. Its 16 lanes are the threads of half a warp:
// a half warp has a row, or, where rows are wide, a block of kBlockElements in a row that a block
// of threads has. A thread's elements are those of its lane.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "kernels/cpu/table.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {

inline constexpr unsigned kHalfWarp = cpu::kLanes;
inline constexpr unsigned kHalfWarps = kThreads / kHalfWarp;

__device__ inline unsigned half_warp_lane() { return threadIdx.x % kHalfWarp; }

/// The lane tree 8-4-2-1 of each half warp, for all its threads. All of a warp call it.
__device__ inline float half_warp_sum(float lane) {
  for (unsigned half = kHalfWarp / 2; half > 0; half /= 2) {
    lane = lane + __shfl_xor_sync(kWholeWarp, lane, static_cast<int>(half));
  }
  return lane;
}

/// The sums of terms(i), an array, over first <= i < end: a block of the rule, or fewer elements or
/// none. All of a warp call it.
template <std::size_t kSums, typename Terms>
__device__ std::array<float, kSums> block_sums(std::size_t first, std::size_t end, Terms terms) {
  std::array<float, kSums> sums = {};
  for (std::size_t i = first + half_warp_lane(); i < end; i += kHalfWarp) {
    const std::array<float, kSums> more = terms(i);
    for (std::size_t k = 0; k < kSums; ++k) sums[k] = sums[k] + more[k];
  }
  for (std::size_t k = 0; k < kSums; ++k) sums[k] = half_warp_sum(sums[k]);
  return sums;
}

/// The row of a half warp. The last one's other half may have none: it goes along, because a warp
/// meets at its sums, with a row of `size` 0.
struct Row {
  std::size_t number, width, size;
  __device__ bool exists() const { return size > 0; }
};

/// Calls function(row) for each of `rows` rows of `width` > 0 elements. Grid: blocks_for(rows,
/// kHalfWarps) blocks of kThreads threads.
template <typename Function>
__device__ void for_each_row(std::size_t rows, std::size_t width, Function function) {
  const std::size_t step = threads_of_grid() / kHalfWarp;
  for (std::size_t m = thread_number() / kHalfWarp; m / 2 * 2 < rows; m += step) {
    function(Row{m, width, m < rows ? width : 0});
  }
}

/// Calls function(i) for the elements of this thread.
template <typename Function>
__device__ void for_each_own(const Row& row, Function function) {
  for (std::size_t i = half_warp_lane(); i < row.size; i += kHalfWarp) function(i);
}

/// The sums of terms(i), an array, over the row, for all of its half warp.
template <std::size_t kSums, typename Terms>
__device__ std::array<float, kSums> row_sums(const Row& row, Terms terms) {
  cpu::TreeSum trees[kSums];
  for (std::size_t first = 0; first < row.width; first += kBlockElements) {
    const auto sums = block_sums<kSums>(first, std::min(row.size, first + kBlockElements), terms);
    for (std::size_t k = 0; k < kSums; ++k) trees[k].push(sums[k]);
  }
  std::array<float, kSums> sums;
  for (std::size_t k = 0; k < kSums; ++k) sums[k] = trees[k].finish();
  return sums;
}

template <typename Term>
__device__ float row_sum(const Row& row, Term term) {
  return row_sums<1>(row, [&](std::size_t i) { return std::array<float, 1>{term(i)}; })[0];
}

/// The sum of term(i) over the `size` > 0 elements of the row that a block of kThreads threads has,
/// for all of them. They all call it, and what one did before is seen by all after it.
template <typename Term>
__device__ float wide_row_sum(std::size_t size, Term term) {
  __shared__ float sums[kHalfWarps];
  __shared__ float total;
  const std::size_t half_warp = threadIdx.x / kHalfWarp;
  cpu::TreeSum tree;
  for (std::size_t begin = 0; begin < size; begin += kHalfWarps * kBlockElements) {
    const std::size_t first = begin + half_warp * kBlockElements;
    const auto sum = block_sums<1>(first, std::min(size, first + kBlockElements),
                                   [&](std::size_t i) { return std::array<float, 1>{term(i)}; });
    if (half_warp_lane() == 0) sums[half_warp] = sum[0];
    __syncthreads();
    if (threadIdx.x == 0) {
      const std::size_t blocks = (size - begin + kBlockElements - 1) / kBlockElements;
      for (std::size_t k = 0; k < kHalfWarps && k < blocks; ++k) tree.push(sums[k]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) total = tree.finish();
  __syncthreads();
  return total;
}

}  // namespace muster::kernels::cuda
