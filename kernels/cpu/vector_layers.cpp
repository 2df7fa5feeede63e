// The loops of LayerTable (layer_table.h) for each instruction set. The scalar forms in
// scalar_layers.cpp say what each computes; the order of operations here is theirs.
#include <cstdint>
#include <limits>

#include "kernels/cpu/gelu.h"
#include "kernels/cpu/layer_table.h"
#include "kernels/dropout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/vector_layers.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/loops-inl.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace muster::kernels::cpu::HWY_NAMESPACE {
namespace {

/// Stands for a mask with all lanes set, so that loops over whole vectors have none.
struct Whole {};

HWY_INLINE V load_of(Whole, const float* from) { return load(from); }
HWY_INLINE V load_of(M mask, const float* from) { return load_first(mask, from); }
HWY_INLINE void store_of(Whole, V value, float* to) { store(value, to); }
HWY_INLINE void store_of(M mask, V value, float* to) { store_first(mask, value, to); }

/// loop(i, mask) for the vector at each i; the last may be short.
template <typename Loop>
HWY_INLINE void each_vector(std::size_t n, Loop loop) {
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) loop(i, Whole{});
  if (i < n) loop(i, first(n - i));
}

/// kSums sums at once: terms(i, mask, out) gives the terms at i. Lanes outside a mask add +0, which
/// changes no sum that began at +0.
template <std::size_t kSums, typename Terms>
HWY_INLINE void lanes_of(std::size_t n, float* lanes, Terms terms) {
  V sums[kSums][kParts];
  for (auto& parts : sums) {
    for (V& part : parts) part = zero();
  }
  V out[kSums];
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t part = 0; part < kParts; ++part) {
      terms(i + part * kVector, Whole{}, out);
      for (std::size_t s = 0; s < kSums; ++s) sums[s][part] = add(sums[s][part], out[s]);
    }
  }
  for (std::size_t part = 0; part < kParts && i < n; ++part, i += kVector) {
    const M mask = first(least(n - i, kVector));
    terms(i, mask, out);
    for (std::size_t s = 0; s < kSums; ++s) {
      sums[s][part] = add(sums[s][part], hn::IfThenElseZero(mask, out[s]));
    }
  }
  for (std::size_t s = 0; s < kSums; ++s) {
    for (std::size_t part = 0; part < kParts; ++part) {
      store(sums[s][part], lanes + s * kLanes + part * kVector);
    }
  }
}

/// A row's statistics in every lane.
struct Row {
  explicit HWY_INLINE Row(const NormRow& row) : mean(all(row.mean)), inverse(all(row.inverse)) {}
  HWY_INLINE V normal(V x) const { return hn::Mul(hn::Sub(x, mean), inverse); }
  V mean, inverse;
};

void deviation_lanes(const float* x, std::size_t n, float mean, float* lanes) {
  const V shift = all(mean);
  lanes_of<1>(n, lanes, [&](std::size_t i, auto mask, V* out) HWY_ATTR {
    const V off = hn::Sub(load_of(mask, x + i), shift);
    out[0] = hn::Mul(off, off);
  });
}

void normalise(std::size_t n, const NormRow& of, const float* x, const float* gamma,
               const float* beta, float* y) {
  const Row row(of);
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V scaled = hn::Mul(row.normal(load_of(mask, x + i)), load_of(mask, gamma + i));
    store_of(mask, add(scaled, load_of(mask, beta + i)), y + i);
  });
}

void norm_gradient_lanes(std::size_t n, const NormRow& of, const float* x, const float* gamma,
                         const float* dy, float* lanes) {
  const Row row(of);
  lanes_of<2>(n, lanes, [&](std::size_t i, auto mask, V* out) HWY_ATTR {
    out[0] = hn::Mul(load_of(mask, dy + i), load_of(mask, gamma + i));
    out[1] = hn::Mul(out[0], row.normal(load_of(mask, x + i)));
  });
}

void norm_gradient(std::size_t n, const NormGradient& by, const float* x, const float* gamma,
                   const float* dy, const float* skip, float* dx) {
  const Row row(by.row);
  const V a = all(by.a);
  const V b = all(by.b);
  const auto gradient = [&](std::size_t i, auto mask) HWY_ATTR {
    const V g = hn::Mul(load_of(mask, dy + i), load_of(mask, gamma + i));
    const V off = hn::Sub(hn::Sub(g, a), hn::Mul(row.normal(load_of(mask, x + i)), b));
    return hn::Mul(off, row.inverse);
  };
  if (skip == nullptr) {
    each_vector(
        n, [&](std::size_t i, auto mask) HWY_ATTR { store_of(mask, gradient(i, mask), dx + i); });
  } else {
    each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
      store_of(mask, add(gradient(i, mask), load_of(mask, skip + i)), dx + i);
    });
  }
}

/// Vectors of columns whose chains hide each other's latency.
constexpr std::size_t kWide = 4;

/// The chains of one logical rank over kWidth vectors of columns from j: dgamma's to out, dbeta's
/// behind them. The accumulators are named variables, as in gemm_tiles.cpp.
template <std::size_t kWidth, typename Mask>
HWY_INLINE void rank_chains(const NormColumns& of, std::size_t rank, std::size_t j, Mask mask,
                            float* out) {
  V gamma0 = zero(), gamma1 = zero(), gamma2 = zero(), gamma3 = zero();
  V beta0 = zero(), beta1 = zero(), beta2 = zero(), beta3 = zero();
  for (std::size_t m = rank * of.rows; m < (rank + 1) * of.rows; ++m) {
    const Row row({of.mean[m], of.inverse[m]});
    const float* x = of.x + m * of.stride + j;
    const float* dy = of.dy + m * of.stride + j;
    const auto step = [&](std::size_t at, V& gamma, V& beta) HWY_ATTR {
      const V gradient = load_of(mask, dy + at * kVector);
      gamma = fma(gradient, row.normal(load_of(mask, x + at * kVector)), gamma);
      beta = add(beta, gradient);
    };
    step(0, gamma0, beta0);
    if constexpr (kWidth == kWide) {
      step(1, gamma1, beta1);
      step(2, gamma2, beta2);
      step(3, gamma3, beta3);
    }
  }
  const auto keep = [&](std::size_t at, V gamma, V beta) HWY_ATTR {
    store(gamma, out + at * kVector);
    store(beta, out + (kWidth + at) * kVector);
  };
  keep(0, gamma0, beta0);
  if constexpr (kWidth == kWide) {
    keep(1, gamma1, beta1);
    keep(2, gamma2, beta2);
    keep(3, gamma3, beta3);
  }
}

template <std::size_t kWidth, typename Mask>
void weight_columns(const NormColumns& of, std::size_t j, Mask mask, float* dgamma, float* dbeta) {
  constexpr std::size_t kCells = 2 * kWidth * kVector;
  HWY_ALIGN float stack[kTreeDepthMax * kCells];
  float* top = stack;
  for (std::size_t rank = 0; rank < of.ranks; ++rank) {
    rank_chains<kWidth>(of, rank, j, mask, top);
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {
      top -= kCells;
      for (std::size_t i = 0; i < kCells; i += kVector) {
        store(add(load(top + i), load(top + kCells + i)), top + i);
      }
    }
    top += kCells;
  }
  for (std::size_t i = 0; i < kWidth; ++i) {
    store_of(mask, load(stack + i * kVector), dgamma + j + i * kVector);
    store_of(mask, load(stack + (kWidth + i) * kVector), dbeta + j + i * kVector);
  }
}

void norm_weights(const NormColumns& of, float* dgamma, float* dbeta) {
  std::size_t j = 0;
  for (; j + kWide * kVector <= of.columns; j += kWide * kVector) {
    weight_columns<kWide>(of, j, Whole{}, dgamma, dbeta);
  }
  for (; j < of.columns; j += kVector) {
    weight_columns<1>(of, j, first(least(of.columns - j, kVector)), dgamma, dbeta);
  }
}

/// gelu_tanh() of every lane.
HWY_INLINE V tanh_of(V x, V s) {
  const V u = hn::Mul(all(kGeluKappa), fma(hn::Mul(all(kGeluCubic), s), x, x));
  const V e = exp_of(hn::Mul(all(2.0F), u));
  return hn::Sub(all(1.0F), hn::Div(all(2.0F), add(e, all(1.0F))));
}

void gelu_all(std::size_t n, const float* from, float* y) {
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V x = load_of(mask, from + i);
    const V t = tanh_of(x, hn::Mul(x, x));
    const V h = hn::Mul(all(0.5F), x);
    store_of(mask, fma(h, t, h), y + i);
  });
}

void gelu_backward_all(std::size_t n, const float* from, const float* dy, float* dx) {
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V x = load_of(mask, from + i);
    const V s = hn::Mul(x, x);
    const V t = tanh_of(x, s);
    const V h = hn::Mul(all(0.5F), x);
    const V w = fma(hn::Neg(t), t, all(1.0F));
    const V du = hn::Mul(all(kGeluKappa), fma(all(kGeluSlope), s, all(1.0F)));
    const V slope = fma(hn::Mul(h, w), du, fma(all(0.5F), t, all(0.5F)));
    store_of(mask, hn::Mul(load_of(mask, dy + i), slope), dx + i);
  });
}

float scale_and_max(float* values, std::size_t n, float scale) {
  const V lowest = all(-std::numeric_limits<float>::infinity());
  const V factor = all(scale);
  V max = lowest;
  std::size_t i = 0;
  for (; i + kVector <= n; i += kVector) {
    const V value = hn::Mul(load(values + i), factor);
    store(value, values + i);
    max = hn::IfThenElse(hn::Gt(value, max), value, max);
  }
  if (i < n) {
    const M mask = first(n - i);
    const V value = hn::Mul(load_first(mask, values + i), factor);
    store_first(mask, value, values + i);
    const V own = hn::IfThenElse(mask, value, lowest);
    max = hn::IfThenElse(hn::Gt(own, max), own, max);
  }
  float lanes[kVector];
  store(max, lanes);
  float greatest = lanes[0];
  for (const float lane : lanes) greatest = lane > greatest ? lane : greatest;
  return greatest + 0.0F;
}

void probabilities(float* values, std::size_t n, const SoftmaxRow& row) {
  const V scale = all(row.scale);
  const V greatest = all(row.greatest);
  const V total = all(row.total);
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V score = hn::Mul(load_of(mask, values + i), scale);
    store_of(mask, hn::Div(exp_of(hn::Sub(score, greatest)), total), values + i);
  });
}

void product_lanes(const float* a, const float* b, std::size_t n, float* lanes) {
  lanes_of<1>(n, lanes, [&](std::size_t i, auto mask, V* out) HWY_ATTR {
    out[0] = hn::Mul(load_of(mask, a + i), load_of(mask, b + i));
  });
}

void score_gradient(const float* p, std::size_t n, float mean, float scale, float* dp) {
  const V shift = all(mean);
  const V factor = all(scale);
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V off = hn::Sub(load_of(mask, dp + i), shift);
    store_of(mask, hn::Mul(hn::Mul(load_of(mask, p + i), off), factor), dp + i);
  });
}

void triangle(const Triangle& of) {
  each_vector(of.columns, [&](std::size_t j, auto mask) HWY_ATTR {
    for (std::size_t r = 0; r < of.rows; ++r) {
      const float* a = of.a + r * of.row_stride;
      float* c = of.c + r * of.c_stride + j;
      V sum = load_of(mask, c);
      const std::size_t end = of.below ? r : of.rows;
      for (std::size_t k = of.below ? 0 : r; k < end; ++k) {
        sum = fma(all(a[k * of.step_stride]), load_of(mask, of.b + k * of.b_stride + j), sum);
      }
      store_of(mask, sum, c);
    }
  });
}

/// Numbers are drawn with a call of philox in each 64 bits: it multiplies 32 bits by 32.
using Words = hn::RebindToUnsigned<Floats>;
using Calls = hn::Repartition<std::uint64_t, Floats>;
using Call = hn::Vec<Calls>;
constexpr std::size_t kWordsDrawn = 4 * hn::MaxLanes(Calls());

HWY_INLINE Call product(Call value, std::uint32_t factor) {
  return hn::MulEven(hn::BitCast(Words(), value), hn::Set(Words(), factor));
}
HWY_INLINE Call mixed(Call high_of, Call with, std::uint32_t key) {
  const Call high = hn::ShiftRight<32>(high_of);
  return hn::Xor3(high, with, hn::Set(Calls(), std::uint64_t{key}));
}

/// The words of the blocks from `block` on. Of each counter what is above 32 bits is arbitrary: no
/// product reads it.
HWY_INLINE void draw(std::uint64_t key, std::uint32_t row, std::uint64_t block,
                     std::uint32_t* words) {
  Call c0 = hn::Add(hn::Set(Calls(), block), hn::Iota(Calls(), 0));
  Call c1 = hn::ShiftRight<32>(c0);
  Call c2 = hn::Set(Calls(), std::uint64_t{row});
  Call c3 = hn::Set(Calls(), std::uint64_t{kDropoutStream});
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Call product0 = product(c0, kPhiloxFactor0);
    const Call product1 = product(c2, kPhiloxFactor1);
    c0 = mixed(product1, c1, key0);
    c1 = product1;
    c2 = mixed(product0, c3, key1);
    c3 = product0;
    key0 += kPhiloxStep0;
    key1 += kPhiloxStep1;
  }
  const hn::Rebind<std::uint32_t, Calls> low;
  hn::StoreInterleaved4(hn::TruncateTo(low, c0), hn::TruncateTo(low, c1), hn::TruncateTo(low, c2),
                        hn::TruncateTo(low, c3), low, words);
}

void drop_row(const Drop& by, std::size_t row, float* values) {
  HWY_ALIGN std::uint32_t words[kWordsDrawn + kVector] = {};  // loads end behind what is drawn
  const V share = all(by.share), scale = all(by.scale);
  std::uint64_t block = by.first_column / 4;
  std::size_t skipped = by.first_column % 4;
  for (std::size_t done = 0; done < by.columns; skipped = 0) {
    draw(by.key, by.first_row + static_cast<std::uint32_t>(row), block, words);
    const std::size_t some = least(kWordsDrawn - skipped, by.columns - done);
    each_vector(some, [&](std::size_t i, auto mask) HWY_ATTR {
      const auto drawn = hn::ShiftRight<8>(hn::LoadU(Words(), words + skipped + i));
      const hn::RebindToSigned<Floats> integers;
      const V unit = hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(integers, drawn)), all(0x1p-24F));
      const V kept = hn::Mul(load_of(mask, values + done + i), scale);
      store_of(mask, hn::IfThenZeroElse(hn::Lt(unit, share), kept), values + done + i);
    });
    done += some;
    block += kWordsDrawn / 4;
  }
}

using Halves = hn::Repartition<std::uint16_t, Floats>;
using Quarter = hn::Half<Halves>;
static_assert(kKeptAtOnce % (2 * kWordsDrawn) == 0 && 2 * kVector <= 2 * kWordsDrawn);

/// Of numbers with 16 bits, as many as a vector has lanes.
HWY_INLINE V factors_of(hn::Vec<Quarter> drawn, V least_unit, V scale) {
  const hn::RebindToSigned<Floats> integers;
  const V unit = hn::ConvertTo(Floats(), hn::PromoteTo(integers, drawn));
  return hn::IfThenZeroElse(hn::Lt(unit, least_unit), scale);
}

void kept(const WeightDrop& by, std::size_t row, std::uint64_t block, std::size_t n,
          float* factors) {
  HWY_ALIGN std::uint32_t words[kWordsDrawn];
  // Times a power of two: the comparison of dropout.h.
  const V least_unit = all(by.share * 0x1p16F), scale = all(by.scale);
  const std::size_t end = (n + kKeptAtOnce - 1) / kKeptAtOnce * kKeptAtOnce;
  for (std::size_t done = 0; done < end; done += 2 * kWordsDrawn) {
    draw(by.key, by.first_row + static_cast<std::uint32_t>(row), block, words);
    block += kWordsDrawn / 4;
    for (std::size_t i = 0; i < kWordsDrawn; i += kVector) {
      const auto halves = hn::BitCast(Halves(), hn::Load(Words(), words + i));
      float* const at = factors + done + 2 * i;
      store(factors_of(hn::LowerHalf(Quarter(), halves), least_unit, scale), at);
      store(factors_of(hn::UpperHalf(Quarter(), halves), least_unit, scale), at + kVector);
    }
  }
}

void keep(const float* factors, std::size_t n, float* values) {
  each_vector(n, [&](std::size_t i, auto mask) HWY_ATTR {
    const V factor = load_of(mask, factors + i);
    store_of(mask, where_positive(factor, hn::Mul(load_of(mask, values + i), factor)), values + i);
  });
}

}  // namespace

extern const LayerTable kLayers;
const LayerTable kLayers = {deviation_lanes,   normalise,      norm_gradient_lanes,
                            norm_gradient,     norm_weights,   gelu_all,
                            gelu_backward_all, scale_and_max,  probabilities,
                            product_lanes,     score_gradient, triangle,
                            drop_row,          kept,           keep};

}  // namespace muster::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace muster::kernels::cpu {

const LayerTable* layers_of(Target target) {
  switch (target) {
    case Target::kScalar:
      return &kScalarLayers;
#if HWY_TARGETS & HWY_AVX2
    case Target::kAvx2:
      return &N_AVX2::kLayers;
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::kAvx512:
      return &N_AVX3::kLayers;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::kNeon:
      return &N_NEON::kLayers;
#endif
    default:
      return nullptr;
  }
}

}  // namespace muster::kernels::cpu
#endif
