// Rows of a table for tokens, and a row for each position.
#include <bit>

#include "kernels/cpu/table.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

/// Columns of a warp that adds rows.
constexpr std::size_t kSlice = 128;
/// Of tokens, at most. More would divide the additions further, but each looks through all tokens.
constexpr std::size_t kOwnersMax = 1024;

__global__ void embed_kernel(std::size_t M, std::size_t T, std::size_t C,
                             const std::int32_t* tokens, const float* table, const float* positions,
                             float* y) {
  for (std::size_t m = blockIdx.x; m < M; m += gridDim.x) {
    const float* const row = table + static_cast<std::size_t>(tokens[m]) * C;
    const float* const position = positions + m % T * C;
    for (std::size_t c = threadIdx.x; c < C; c += blockDim.x) {
      y[m * C + c] = __fadd_rn(row[c], position[c]);
    }
  }
}

struct TokenRows {
  std::size_t M, C;
  cpu::Slice own;
  const std::int32_t* tokens;
  const float* dy;
  float* dtable;
  std::size_t slices;
  unsigned owners;
};

/// Bits of those lanes of the warp whose token belongs to `owner`. All of a warp call it.
__device__ unsigned lanes_of(const TokenRows& of, std::size_t i, std::size_t owner) {
  const unsigned lane = threadIdx.x % kWarp;
  unsigned lanes = 0;
  if (i < of.M) {
    const std::size_t row = static_cast<std::size_t>(of.tokens[i]) - of.own.first;
    if (row < of.own.count && static_cast<unsigned>(row) % of.owners == owner) lanes = 1U << lane;
  }
  for (unsigned by = kWarp / 2; by > 0; by /= 2) {
    lanes |= __shfl_xor_sync(kWholeWarp, lanes, static_cast<int>(by));
  }
  return lanes;
}

/// A warp has some columns of every owners-th row of the table, and takes all tokens in ascending
/// order: so no two add to one row.
__global__ void add_token_rows_kernel(TokenRows of) {
  const std::size_t step = threads_of_grid() / kWarp;
  for (std::size_t part = thread_number() / kWarp; part < of.owners * of.slices; part += step) {
    const std::size_t owner = part / of.slices;
    const std::size_t first = part % of.slices * kSlice;
    const std::size_t end = first + kSlice < of.C ? first + kSlice : of.C;
    for (std::size_t begin = 0; begin < of.M; begin += kWarp) {
      unsigned lanes = lanes_of(of, begin + threadIdx.x % kWarp, owner);
      for (; lanes != 0; lanes &= lanes - 1) {
        const std::size_t i = begin + static_cast<std::size_t>(std::countr_zero(lanes));
        const float* const gradient = of.dy + i * of.C;
        float* const row =
            of.dtable + (static_cast<std::size_t>(of.tokens[i]) - of.own.first) * of.C;
        for (std::size_t c = first + threadIdx.x % kWarp; c < end; c += kWarp) {
          row[c] = __fadd_rn(row[c], gradient[c]);
        }
      }
    }
  }
}

/// n: of one sequence.
__global__ void position_gradient_kernel(std::size_t ranks, std::size_t rows, std::size_t n,
                                         const float* dy, float* dpositions) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    cpu::TreeSum tree;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      float sum = 0.0F;
      for (std::size_t row = rank * rows; row < (rank + 1) * rows; ++row) {
        sum = __fadd_rn(sum, dy[row * n + i]);
      }
      tree.push(sum);
    }
    dpositions[i] = tree.finish();
  }
}

}  // namespace

void embed(Context& context, std::size_t M, std::size_t T, std::size_t C,
           const std::int32_t* tokens, const float* table, const float* positions, float* y) {
  if (M == 0 || C == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(M, kBlocksMax));
  launch(context, blocks, kThreads, embed_kernel, M, T, C, tokens, table, positions, y);
}

void add_token_rows(Context& context, std::size_t M, std::size_t C, const cpu::Slice& own,
                    const std::int32_t* tokens, const float* dy, float* dtable) {
  if (M == 0 || C == 0 || own.count == 0) return;
  const std::size_t owners = std::min(own.count, kOwnersMax);
  const std::size_t slices = (C + kSlice - 1) / kSlice;
  const TokenRows of{M, C, own, tokens, dy, dtable, slices, static_cast<unsigned>(owners)};
  launch(context, blocks_for(owners * slices * kWarp), kThreads, add_token_rows_kernel, of);
}

void position_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t T,
                       std::size_t C, const float* dy, float* dpositions) {
  const std::size_t n = T * C;
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, position_gradient_kernel, ranks, rows, n, dy,
         dpositions);
}

}  // namespace muster::kernels::cuda
