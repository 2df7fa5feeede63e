// Loops over vectors for each instruction set (VectorTable in table.h). The scalar forms in
// scalar_kernels.cpp say what each computes; the order of operations here is theirs.
#include <limits>

#include "kernels/cpu/table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_kernels.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/loops-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace muster::kernels::cpu::HWY_NAMESPACE {
namespace {

float row_max(const float* values, std::size_t n) {
  const V lowest = all(-std::numeric_limits<float>::infinity());
  V max = lowest;
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) {
    const V value = load(values + i);
    max = hn::IfThenElse(hn::Gt(value, max), value, max);
  }
  if (i < n) {
    const M mask = first(n - i);
    const V value = hn::IfThenElse(mask, load_first(mask, values + i), lowest);
    max = hn::IfThenElse(hn::Gt(value, max), value, max);
  }
  float lanes[kVector];
  store(max, lanes);
  float greatest = lanes[0];
  for (const float lane : lanes) greatest = lane > greatest ? lane : greatest;
  return greatest;
}

/// Lanes outside the range add +0, which changes no sum that began at +0.
float exp_block(const float* values, std::size_t n, float max, float* out) {
  V sums[kParts];
  for (V& part : sums) part = zero();
  const V shift = all(max);
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t at = i + part * kVector;
      const V value = exp_of(hn::Sub(load(values + at), shift));
      sums[part] = add(sums[part], value);
      if (out != nullptr) store(value, out + at);
    }
  }
  for (std::size_t part = 0; part < kParts && i < n; ++part, i += kVector) {
    const M mask = first(least(n - i, kVector));
    V value = exp_of(hn::Sub(load_first(mask, values + i), shift));
    value = hn::IfThenElseZero(mask, value);
    sums[part] = add(sums[part], value);
    if (out != nullptr) store_first(mask, value, out + i);
  }
  float lanes[kLanes];
  for (std::size_t part = 0; part < kParts; ++part) store(sums[part], lanes + part * kVector);
  return lane_tree(lanes);
}

float exp_sum(const float* values, std::size_t n, float max, float* out) {
  TreeSum blocks;
  for (std::size_t i = 0; i < n; i += kBlockElements) {
    blocks.push(exp_block(values + i, least(n - i, kBlockElements), max,
                          out == nullptr ? nullptr : out + i));
  }
  return blocks.finish();
}

void divide_and_scale(float* values, std::size_t n, float sum, float scale) {
  for (std::size_t i = 0; i < n; i += kVector) {
    const M mask = first(least(n - i, kVector));
    const V value = hn::Mul(hn::Div(load_first(mask, values + i), all(sum)), all(scale));
    store_first(mask, value, values + i);
  }
}

void exp_all(const float* x, std::size_t n, float* out) {
  for (std::size_t i = 0; i < n; i += kVector) {
    const M mask = first(least(n - i, kVector));
    store_first(mask, exp_of(load_first(mask, x + i)), out + i);
  }
}

void block_lanes(const float* values, std::size_t n, float* lanes) {
  V sums[kParts];
  for (V& part : sums) part = zero();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t part = 0; part < kParts; ++part) {
      sums[part] = add(sums[part], load(values + i + part * kVector));
    }
  }
  for (std::size_t part = 0; part < kParts && i < n; ++part, i += kVector) {
    sums[part] = add(sums[part], load_first(first(least(n - i, kVector)), values + i));
  }
  for (std::size_t part = 0; part < kParts; ++part) store(sums[part], lanes + part * kVector);
}

void add_all(const float* a, const float* b, std::size_t n, float* out) {
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) store(add(load(a + i), load(b + i)), out + i);
  if (i < n) {
    const M mask = first(n - i);
    store_first(mask, add(load_first(mask, a + i), load_first(mask, b + i)), out + i);
  }
}

void square_lanes(const float* values, std::size_t n, float* lanes) {
  V sums[kParts];
  for (V& part : sums) part = zero();
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t part = 0; part < kParts; ++part) {
      const V value = load(values + i + part * kVector);
      sums[part] = fma(value, value, sums[part]);
    }
  }
  for (std::size_t part = 0; part < kParts && i < n; ++part, i += kVector) {
    const V value = load_first(first(least(n - i, kVector)), values + i);
    sums[part] = fma(value, value, sums[part]);
  }
  for (std::size_t part = 0; part < kParts; ++part) store(sums[part], lanes + part * kVector);
}

void sgd_momentum(std::size_t n, const SgdStep& step, const float* g, float* v, float* w) {
  const V minus_rate = all(-step.learning_rate);
  const V factor = all(step.momentum);
  const V scale = all(step.gradient_scale);
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) {
    const V velocity = fma(factor, load(v + i), hn::Mul(scale, load(g + i)));
    store(velocity, v + i);
    store(fma(minus_rate, velocity, load(w + i)), w + i);
  }
  if (i < n) {
    const M mask = first(n - i);
    const V velocity =
        fma(factor, load_first(mask, v + i), hn::Mul(scale, load_first(mask, g + i)));
    store_first(mask, velocity, v + i);
    store_first(mask, fma(minus_rate, velocity, load_first(mask, w + i)), w + i);
  }
}

/// The constants of an AdamW step, in every lane.
struct Adamw {
  V beta1, beta2, one_minus_beta1, one_minus_beta2, minus_step_size, root_scale, epsilon,
      minus_decay, scale;
};

HWY_INLINE void adamw_of(const Adamw& step, V g, V& m, V& v, V& w) {
  const V x = hn::Mul(step.scale, g);
  m = fma(step.beta1, m, hn::Mul(step.one_minus_beta1, x));
  v = fma(step.beta2, v, hn::Mul(hn::Mul(step.one_minus_beta2, x), x));
  const V size = fma(hn::Sqrt(v), step.root_scale, step.epsilon);
  w = fma(step.minus_step_size, hn::Div(m, size), fma(step.minus_decay, w, w));
}

void adamw(std::size_t n, const AdamwStep& step, const float* g, float* m, float* v, float* w) {
  const Adamw constants{all(step.beta1),           all(step.beta2),      all(step.one_minus_beta1),
                        all(step.one_minus_beta2), all(-step.step_size), all(step.root_scale),
                        all(step.epsilon),         all(-step.decay),     all(step.gradient_scale)};
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) {
    V first_moment = load(m + i);
    V second_moment = load(v + i);
    V weight = load(w + i);
    adamw_of(constants, load(g + i), first_moment, second_moment, weight);
    store(first_moment, m + i);
    store(second_moment, v + i);
    store(weight, w + i);
  }
  if (i < n) {
    const M mask = first(n - i);
    V first_moment = load_first(mask, m + i);
    V second_moment = load_first(mask, v + i);
    V weight = load_first(mask, w + i);
    adamw_of(constants, load_first(mask, g + i), first_moment, second_moment, weight);
    store_first(mask, first_moment, m + i);
    store_first(mask, second_moment, v + i);
    store_first(mask, weight, w + i);
  }
}

/// One vector of columns: the chains of additions, and the tree as in gemm_tiles.cpp.
V bias_columns(std::size_t ranks, std::size_t rows, std::size_t stride, M mask, const float* dy) {
  V stack[kTreeDepthMax];
  std::size_t depth = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    V sum = zero();
    for (std::size_t row = 0; row < rows; ++row) {
      sum = add(sum, load_first(mask, dy));
      dy += stride;
    }
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) sum = add(stack[--depth], sum);
    stack[depth++] = sum;
  }
  return stack[0];
}

void bias_gradient(std::size_t ranks, std::size_t rows, std::size_t stride, std::size_t columns,
                   const float* dy, float* db) {
  for (std::size_t j = 0; j < columns; j += kVector) {
    const M mask = first(least(columns - j, kVector));
    store_first(mask, bias_columns(ranks, rows, stride, mask, dy + j), db + j);
  }
}

}  // namespace

extern const VectorTable kVectors;
const VectorTable kVectors = {row_max, exp_sum,      divide_and_scale, exp_all,      block_lanes,
                              add_all, sgd_momentum, bias_gradient,    square_lanes, adamw};

}  // namespace muster::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace muster::kernels::cpu {

const VectorTable* vectors_of(Target target) {
  switch (target) {
    case Target::kScalar:
      return &kScalarVectors;
#if HWY_TARGETS & HWY_AVX2
    case Target::kAvx2:
      return &N_AVX2::kVectors;
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::kAvx512:
      return &N_AVX3::kVectors;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::kNeon:
      return &N_NEON::kVectors;
#endif
    default:
      return nullptr;
  }
}

}  // namespace muster::kernels::cpu
#endif
