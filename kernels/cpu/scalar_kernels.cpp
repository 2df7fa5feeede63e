// The plain path: what every other target must equal bit by bit. std::fma is exact on any machine,
// with or without an instruction for it.
#include <cmath>
#include <cstring>

#include "kernels/cpu/exp_f32.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

constexpr std::size_t kRows = 4;
constexpr std::size_t kColumns = 8;

struct Accumulators {
  float value[kRows][kColumns];
};

template <bool kByRows>
void chain(const Tile& tile, const float* a, const float* b, Accumulators& sums) {
  for (std::size_t k = 0; k < tile.steps; ++k) {
    for (std::size_t i = 0; i < tile.rows; ++i) {
      const float x = kByRows ? a[i * tile.a_stride + k] : a[k * tile.a_stride + i];
      for (std::size_t j = 0; j < tile.columns; ++j) {
        sums.value[i][j] = std::fma(x, b[k * tile.b_stride + j], sums.value[i][j]);
      }
    }
  }
}

void load(const Tile& tile, Accumulators& sums) {
  for (std::size_t i = 0; i < tile.rows; ++i) {
    for (std::size_t j = 0; j < tile.columns; ++j) {
      sums.value[i][j] = tile.c[i * tile.c_stride + j];
    }
  }
}

void store(const Tile& tile, const Accumulators& sums) {
  for (std::size_t i = 0; i < tile.rows; ++i) {
    for (std::size_t j = 0; j < tile.columns; ++j) {
      float value = sums.value[i][j];
      if (tile.bias != nullptr) value = value + tile.bias[j];
      if (tile.relu) value = value > 0.0F ? value : 0.0F;
      if (tile.mask != nullptr) value = tile.mask[i * tile.c_stride + j] > 0.0F ? value : 0.0F;
      tile.c[i * tile.c_stride + j] = value;
    }
  }
}

void pack(const float* b, std::size_t stride, std::size_t steps, std::size_t columns,
          std::size_t width, float* out) {
  for (std::size_t k = 0; k < steps; ++k) {
    for (std::size_t j = 0; j < width; ++j) {
      out[k * width + j] = j < columns ? b[k * stride + j] : 0.0F;
    }
  }
}

/// Packs what a tile of `chains` chains was asked to pack.
void copy_b(const Tile& tile, std::size_t chains) {
  if (tile.b_copy == nullptr) return;
  pack(tile.b, tile.b_stride, chains * tile.steps, tile.columns, kColumns, tile.b_copy);
}

void by_rows(const Tile& tile) {
  copy_b(tile, 1);
  Accumulators sums{};
  if (tile.reload) load(tile, sums);
  chain<true>(tile, tile.a, tile.b, sums);
  store(tile, sums);
}

void load_cells(const float* from, Accumulators& sums) { std::memcpy(&sums, from, sizeof(sums)); }

/// sums = left + sums.
void merge(const Accumulators& left, Accumulators& sums) {
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kColumns; ++j) {
      sums.value[i][j] = left.value[i][j] + sums.value[i][j];
    }
  }
}

void by_columns(const Tile& tile) {
  copy_b(tile, tile.ranks);
  Accumulators stack[kTreeDepthMax];
  std::size_t depth = 0;
  for (std::size_t rank = 0; rank < tile.ranks; ++rank) {
    Accumulators sums{};
    if (tile.from != nullptr) {
      load_cells(tile.from, sums);
    } else if (tile.reload) {
      load(tile, sums);
    }
    const std::size_t first = rank * tile.steps;
    chain<false>(tile, tile.a + first * tile.a_stride, tile.b + first * tile.b_stride, sums);
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) merge(stack[--depth], sums);
    stack[depth++] = sums;
  }
  for (std::size_t i = 0; i < tile.lefts; ++i) {
    Accumulators left;
    load_cells(tile.left - i * tile.left_stride, left);
    merge(left, stack[0]);
  }
  if (tile.to != nullptr) {
    std::memcpy(tile.to, &stack[0], sizeof(stack[0]));
  } else {
    store(tile, stack[0]);
  }
}

void pack_transposed(const float* b, std::size_t stride, std::size_t steps, std::size_t columns,
                     std::size_t width, float* out) {
  for (std::size_t k = 0; k < steps; ++k) {
    for (std::size_t j = 0; j < width; ++j) {
      out[k * width + j] = j < columns ? b[j * stride + k] : 0.0F;
    }
  }
}

float row_max(const float* values, std::size_t n) {
  float max = -HUGE_VALF;
  for (std::size_t i = 0; i < n; ++i) max = values[i] > max ? values[i] : max;
  return max;
}

float exp_sum(const float* values, std::size_t n, float max, float* out) {
  TreeSum blocks;
  for (std::size_t first = 0; first < n; first += kBlockElements) {
    float lanes[kLanes] = {};
    const std::size_t size = n - first < kBlockElements ? n - first : kBlockElements;
    for (std::size_t i = 0; i < size; ++i) {
      const float value = exp_one(values[first + i] - max);
      lanes[i % kLanes] = lanes[i % kLanes] + value;
      if (out != nullptr) out[first + i] = value;
    }
    blocks.push(lane_tree(lanes));
  }
  return blocks.finish();
}

void divide_and_scale(float* values, std::size_t n, float sum, float scale) {
  for (std::size_t i = 0; i < n; ++i) values[i] = (values[i] / sum) * scale;
}

void exp_all(const float* x, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = exp_one(x[i]);
}

void block_lanes(const float* values, std::size_t n, float* lanes) {
  for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = 0.0F;
  for (std::size_t i = 0; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] + values[i];
}

void add(const float* a, const float* b, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

void square_lanes(const float* values, std::size_t n, float* lanes) {
  for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = 0.0F;
  for (std::size_t i = 0; i < n; ++i) {
    lanes[i % kLanes] = std::fma(values[i], values[i], lanes[i % kLanes]);
  }
}

void sgd_momentum(std::size_t n, const SgdStep& step, const float* g, float* v, float* w) {
  for (std::size_t i = 0; i < n; ++i) {
    v[i] = std::fma(step.momentum, v[i], step.gradient_scale * g[i]);
    w[i] = std::fma(-step.learning_rate, v[i], w[i]);
  }
}

void adamw(std::size_t n, const AdamwStep& step, const float* g, float* m, float* v, float* w) {
  for (std::size_t i = 0; i < n; ++i) {
    const float x = step.gradient_scale * g[i];
    m[i] = std::fma(step.beta1, m[i], step.one_minus_beta1 * x);
    v[i] = std::fma(step.beta2, v[i], (step.one_minus_beta2 * x) * x);
    const float size = std::fma(std::sqrt(v[i]), step.root_scale, step.epsilon);
    w[i] = std::fma(-step.step_size, m[i] / size, std::fma(-step.decay, w[i], w[i]));
  }
}

void bias_gradient(std::size_t ranks, std::size_t rows, std::size_t stride, std::size_t columns,
                   const float* dy, float* db) {
  for (std::size_t j = 0; j < columns; ++j) {
    TreeSum tree;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      float sum = 0.0F;
      for (std::size_t row = 0; row < rows; ++row) sum = sum + dy[(rank * rows + row) * stride + j];
      tree.push(sum);
    }
    db[j] = tree.finish();
  }
}

}  // namespace

const TileTable kScalarTiles = {
    kRows, kColumns,       1, {by_rows, nullptr, nullptr}, {by_columns, nullptr, nullptr},
    pack,  pack_transposed};
const VectorTable kScalarVectors = {row_max,      exp_sum, divide_and_scale, exp_all,
                                    block_lanes,  add,     sgd_momentum,     bias_gradient,
                                    square_lanes, adamw};

}  // namespace muster::kernels::cpu
