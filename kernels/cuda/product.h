// What the products of matrices share. A block of threads makes a square tile of outputs; each
// output is one chain, so that only outputs are divided among threads, and never steps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/bfloat16_step.h"
#include "kernels/cuda/four.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {

/// One of the two matrices. Value i of step k lies at i * stride + k where it is read along the
/// steps, and else at k * stride + i. Rows are as long as the stride, so that no four lies across
/// an edge.
struct Factor {
  Factor(const float* values, std::size_t distance, std::size_t of_step)
      : data(values), stride(distance), count(of_step), fours(holds_fours(values, distance)) {}

  const float* data;
  std::size_t stride;
  std::size_t count;  ///< values of a step
  bool fours;
};

/// Threads of a block in each direction; each has kSide x kSide outputs.
inline constexpr unsigned kTileThreads = 16;
static_assert(kTileThreads * kTileThreads == kThreads);

inline std::size_t tiles_of(std::size_t rows, std::size_t columns, unsigned side) {
  const std::size_t tile = std::size_t{kTileThreads} * side;
  return (rows + tile - 1) / tile * ((columns + tile - 1) / tile);
}

/// The kSide, 8, 4 or 2, by which `copies` products of this size are likely done first: larger
/// tiles load less for each output, smaller ones waste less at edges and occupy more processors.
inline unsigned choose_side(std::size_t rows, std::size_t columns, std::size_t copies) {
  constexpr std::size_t kProcessors = 132;  // of an H100; elsewhere a guess
  struct Choice {
    unsigned side;
    std::size_t time;  // of one tile, with what it loads
  };
  unsigned best = 0;
  std::size_t shortest = SIZE_MAX;
  for (const Choice choice : {Choice{8, 64}, Choice{4, 20}, Choice{2, 8}}) {
    const std::size_t tiles = tiles_of(rows, columns, choice.side) * copies;
    const std::size_t time = (tiles + kProcessors - 1) / kProcessors * choice.time;
    if (time >= shortest) continue;
    shortest = time;
    best = choice.side;
  }
  return best;
}

/// Calls function(side, products) with both as constants.
template <typename Function>
void with_constants(unsigned side, Products products, Function function) {
  const auto with_side = [&](auto of) {
    if (side == 8) return function(std::integral_constant<unsigned, 8>{}, of);
    if (side == 4) return function(std::integral_constant<unsigned, 4>{}, of);
    function(std::integral_constant<unsigned, 2>{}, of);
  };
  if (products == Products::kBfloat16) {
    with_side(std::integral_constant<Products, Products::kBfloat16>{});
  } else {
    with_side(std::integral_constant<Products, Products::kFloat32>{});
  }
}

/// Blocks of a processor that registers must suffice for.
template <unsigned kSide>
inline constexpr unsigned kBlocksAtOnce = kSide == 8 ? 2 : 4;

/// Some steps of a tile's part of a factor, for all threads of the block. Each thread brings one
/// four of it: its values begin at value() and step().
template <unsigned kTile, bool kAlongSteps>
struct Strip {
  static constexpr unsigned kSteps = 4 * kThreads / kTile;

  __device__ static unsigned value() {
    return kAlongSteps ? threadIdx.x * 4 / kSteps : threadIdx.x * 4 % kTile;
  }
  __device__ static unsigned step() {
    return kAlongSteps ? threadIdx.x * 4 % kSteps : threadIdx.x * 4 / kTile;
  }
  __device__ void put(const Four& four) {
    if constexpr (kAlongSteps) {
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) values[step() + j][value()] = four.at[j];
    } else {
      *reinterpret_cast<Four*>(&values[step()][value()]) = four;
    }
  }

  // Further apart than a tile: what is put along the steps would meet in few banks.
  alignas(Four) float values[kSteps][kTile + 4];
};

/// What products take of four values.
template <Products kProducts>
__device__ Four operands(Four four) {
  if constexpr (kProducts == Products::kBfloat16) {
#pragma unroll
    for (unsigned j = 0; j < 4; ++j) {
      four.at[j] = std::bit_cast<float>(cpu::round_bfloat16(four.at[j]) << 16);
    }
  }
  return four;
}

/// Reads a thread's fours, strip after strip.
template <unsigned kTile, bool kAlongSteps>
class Reader {
 public:
  /// Of the strips that begin at value `first`.
  __device__ Reader(const Factor& factor, std::size_t first) : fours_(factor.fours) {
    const std::size_t i = first + OneStrip::value(), k = OneStrip::step();
    from_ = factor.data + (kAlongSteps ? i * factor.stride + k : k * factor.stride + i);
    further_ = OneStrip::kSteps * (kAlongSteps ? 1 : factor.stride);
    if (i < factor.count) {
      values_ = static_cast<unsigned>(std::min<std::size_t>(factor.count - i, 4));
    }
  }

  /// Of the next strip, from whose first step on `left` steps are left; `beyond` where the factor
  /// has no more.
  __device__ Four next(std::size_t left, float beyond) {
    Four four{{beyond, beyond, beyond, beyond}};
    if (values_ > 0 && OneStrip::step() < left) {
      if (fours_) {
        four = *reinterpret_cast<const Four*>(from_);
      } else {
#pragma unroll
        for (unsigned j = 0; j < 4; ++j) {
          const bool has = kAlongSteps ? OneStrip::step() + j < left : j < values_;
          if (has) four.at[j] = from_[j];
        }
      }
    }
    from_ += further_;
    return four;
  }

 private:
  using OneStrip = Strip<kTile, kAlongSteps>;

  const float* from_;
  std::size_t further_;  // to the same place of the next strip
  unsigned values_ = 0;  // from this thread's first on, at most 4
  bool fours_;
};

/// The outputs of one thread, in a tile of a matrix of rows x columns.
template <unsigned kSide>
class Tile {
 public:
  /// The one of this block, by its number in x.
  __device__ Tile(std::size_t rows, std::size_t columns) : rows_(rows), columns_(columns) {
    const auto across = static_cast<unsigned>((columns + kTile - 1) / kTile);
    tile_row_ = blockIdx.x / across;
    tile_column_ = blockIdx.x % across;
  }

  /// For each output of this thread, by its place in `sums`.
  template <typename Visit>
  __device__ static void each(Visit visit) {
#pragma unroll
    for (unsigned i = 0; i < kSide; ++i) {
#pragma unroll
      for (unsigned j = 0; j < kSide; ++j) visit(i, j);
    }
  }
  __device__ std::size_t row(unsigned i) const { return first_row() + place(thread_row(), i); }
  __device__ std::size_t column(unsigned j) const {
    return first_column() + place(thread_column(), j);
  }
  __device__ bool has(unsigned i, unsigned j) const {
    return row(i) < rows_ && column(j) < columns_;
  }

  /// Chains go on from `sums`: fma(a, b, sum) for `steps` steps, of kProducts. All threads of the
  /// block.
  template <Products kProducts, bool kAAlongSteps, bool kBAlongSteps>
  __device__ void go_on(const Factor& a, const Factor& b, std::size_t steps);
  /// out[row, column] = finish(sum, row, column). `fours`: whether out holds them.
  template <typename Finish>
  __device__ void store(float* out, bool fours, Finish finish) const;

  float sums[kSide][kSide];

 private:
  static constexpr unsigned kTile = kTileThreads * kSide;
  /// Outputs of a thread that lie side by side.
  static constexpr unsigned kRun = kSide < 4 ? kSide : 4;

  // A warp is 4 x 8 threads, so that its threads read few and neighbouring words of a strip.
  __device__ static unsigned thread_row() { return threadIdx.x / 64 * 4 + threadIdx.x % 32 / 8; }
  __device__ static unsigned thread_column() { return threadIdx.x / 32 % 2 * 8 + threadIdx.x % 8; }
  __device__ static unsigned place(unsigned thread, unsigned i) {
    return i / kRun * kTileThreads * kRun + thread * kRun + i % kRun;
  }
  __device__ std::size_t first_row() const { return std::size_t{tile_row_} * kTile; }
  __device__ std::size_t first_column() const { return std::size_t{tile_column_} * kTile; }
  template <Products kProducts, typename StripA, typename StripB>
  __device__ void multiply(const StripA& a, const StripB& b);

  std::size_t rows_, columns_;
  unsigned tile_row_, tile_column_;
};

template <unsigned kSide>
template <Products kProducts, typename StripA, typename StripB>
__device__ void Tile<kSide>::multiply(const StripA& a, const StripB& b) {
#pragma unroll
  for (unsigned k = 0; k < StripA::kSteps; ++k) {
    float of_a[kSide], of_b[kSide];
#pragma unroll
    for (unsigned i = 0; i < kSide; ++i) {
      of_a[i] = a.values[k][place(thread_row(), i)];
      of_b[i] = b.values[k][place(thread_column(), i)];
    }
    each([&](unsigned i, unsigned j) {
      if constexpr (kProducts == Products::kBfloat16) {
        sums[i][j] = cpu::bfloat16_step(of_a[i], of_b[j], sums[i][j]);
      } else {
        sums[i][j] = __fmaf_rn(of_a[i], of_b[j], sums[i][j]);
      }
    });
  }
}

// There are two strips of each factor, so that the next one is written while others still read the
// last. Past the last step a is +0 and b is -0: adding their product, -0, changes no sum's bits.
template <unsigned kSide>
template <Products kProducts, bool kAAlongSteps, bool kBAlongSteps>
__device__ void Tile<kSide>::go_on(const Factor& a, const Factor& b, std::size_t steps) {
  __shared__ Strip<kTile, kAAlongSteps> strips_a[2];
  __shared__ Strip<kTile, kBAlongSteps> strips_b[2];
  Reader<kTile, kAAlongSteps> reader_a(a, first_row());
  Reader<kTile, kBAlongSteps> reader_b(b, first_column());
  constexpr std::size_t kSteps = Strip<kTile, kAAlongSteps>::kSteps;
  Four next_a = reader_a.next(steps, 0.0F), next_b = reader_b.next(steps, -0.0F);
  unsigned at = 0;
  __syncthreads();  // others may still read what the last call has left
  while (steps > 0) {
    strips_a[at].put(operands<kProducts>(next_a));
    strips_b[at].put(operands<kProducts>(next_b));
    __syncthreads();
    steps = steps > kSteps ? steps - kSteps : 0;
    // On their way while the last ones are multiplied.
    next_a = reader_a.next(steps, 0.0F);
    next_b = reader_b.next(steps, -0.0F);
    multiply<kProducts>(strips_a[at], strips_b[at]);
    at ^= 1U;
  }
}

template <unsigned kSide>
template <typename Finish>
__device__ void Tile<kSide>::store(float* out, bool fours, Finish finish) const {
#pragma unroll
  for (unsigned i = 0; i < kSide; ++i) {
#pragma unroll
    for (unsigned j = 0; j < kSide; j += kRun) {
      if (!has(i, j)) continue;
      float* const to = out + row(i) * columns_ + column(j);
      const bool whole = kRun == 4 && fours;
      Four four;
#pragma unroll
      for (unsigned u = 0; u < kRun; ++u) {
        if (!whole && !has(i, j + u)) continue;
        four.at[u] = finish(sums[i][j + u], row(i), column(j + u));
        if (!whole) to[u] = four.at[u];
      }
      if (whole) *reinterpret_cast<Four*>(to) = four;
    }
  }
}

}  // namespace muster::kernels::cuda
