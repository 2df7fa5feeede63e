#include "kernels/cuda/product.h"

namespace muster::kernels::cuda {
namespace {

struct Product {
  Factor a, b;
  std::size_t steps;
  const float* bias;  // or nullptr
  const float* mask;  // as out, or nullptr: outputs are +0 where it is not > 0
  bool relu;
  float* out;
  bool fours;  // out holds them
};

/// out = a b, of which a is read along the steps; b, too, where it is transposed.
template <unsigned kSide, bool kTransposed, Products kProducts>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kSide>) product_kernel(Product product) {
  Tile<kSide> tile(product.a.count, product.b.count);
  tile.each([&](unsigned i, unsigned j) { tile.sums[i][j] = 0.0F; });
  tile.template go_on<kProducts, true, kTransposed>(product.a, product.b, product.steps);
  const auto finish = [&](float value, std::size_t row, std::size_t column) {
    if (product.bias != nullptr) value = __fadd_rn(value, product.bias[column]);
    if (product.relu) value = value > 0.0F ? value : 0.0F;
    if (product.mask == nullptr) return value;
    return product.mask[row * product.b.count + column] > 0.0F ? value : 0.0F;
  };
  tile.store(product.out, product.fours, finish);
}

template <bool kTransposed>
void multiply(Context& context, const Product& product) {
  const std::size_t rows = product.a.count, columns = product.b.count;
  if (rows == 0 || columns == 0) return;
  const unsigned tile = choose_side(rows, columns, 1);
  const auto blocks = static_cast<unsigned>(tiles_of(rows, columns, tile));
  with_constants(tile, context.products(), [&](auto side, auto products) {
    launch(context, blocks, kThreads, product_kernel<side(), kTransposed, products()>, product);
  });
}

}  // namespace

void linear_forward(Context& context, std::size_t M, std::size_t N, std::size_t K, const float* x,
                    const float* w, const float* bias, Activation activation, float* y) {
  multiply<false>(context, {Factor(x, K, M), Factor(w, N, N), K, bias, nullptr,
                            activation == Activation::kRelu, y, holds_fours(y, N)});
}

void linear_backward_input(Context& context, std::size_t M, std::size_t N, std::size_t K,
                           const float* dy, const float* w, const float* relu_output, float* dx) {
  multiply<true>(context, {Factor(dy, N, M), Factor(w, N, K), N, nullptr, relu_output, false, dx,
                           holds_fours(dx, K)});
}

}  // namespace muster::kernels::cuda
