// The operations of the engine on a GPU: the same names, arguments and numerics contract as
// muster::kernels::cpu (kernels/ops.h), whose results are the truth in tests. A stream takes the
// place of threads; all pointers are memory of the context.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/ops.h"

namespace muster::kernels::cuda {

/// Of devices that kernels are compiled for, and later ones: Hopper's, major version.
inline constexpr int kCapability = 9;

/// Devices that there are; 0 without a driver.
int device_count();

/// One stream of one device, and the first error of what was put on it.
/// Threads: one. Blocks: operations do not; they run in the order of the calls.
class Context final : public kernels::Context {
 public:
  explicit Context(int device = 0, Products products = Products::kFloat32);
  ~Context() override;

  const Operations& operations() const override;
  bool is_host() const override { return false; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  const char* finish() override;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

void linear_forward(Context& context, std::size_t M, std::size_t N, std::size_t K, const float* x,
                    const float* w, const float* bias, Activation activation, float* y);
void linear_backward_input(Context& context, std::size_t M, std::size_t N, std::size_t K,
                           const float* dy, const float* w, const float* relu_output, float* dx);
void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db);
void linear_backward_weights_further(Context& context, std::size_t rows, std::size_t N,
                                     std::size_t K, const float* x, const float* dy, float* dw);
void gather_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                    const float* x, float* patches);
void scatter_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                     const float* dpatches, const float* relu_output, float* dx);
void max_pool(Context& context, std::size_t M, const Extent& image, const float* x, float* y);
void max_pool_backward(Context& context, std::size_t M, const Extent& image, const float* x,
                       const float* dy, float* dx);
void batch_statistics(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                      const float* x, float epsilon, const cpu::BatchStatistics& statistics);
void inverse_deviation(Context& context, std::size_t n, const float* variance, float epsilon,
                       float* out);
void batch_normalise(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                     const float* x, const cpu::Normalisation& by, Activation activation, float* y);
void batch_normalise_backward(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                              const float* x, const cpu::Normalisation& by, const float* dy,
                              float* dgamma, float* dbeta, float* dx);
void sum_ranks(Context& context, std::size_t ranks, std::size_t n, float* values, float* out);
void softmax_cross_entropy(Context& context, std::size_t M, std::size_t N,
                           const std::int32_t* labels, float scale, bool gradient, float* logits,
                           float* loss, float* correct);
void embed(Context& context, std::size_t M, std::size_t T, std::size_t C,
           const std::int32_t* tokens, const float* table, const float* positions, float* y);
void add_token_rows(Context& context, std::size_t M, std::size_t C, const cpu::Slice& own,
                    const std::int32_t* tokens, const float* dy, float* dtable);
void position_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t T,
                       std::size_t C, const float* dy, float* dpositions);
void layer_norm(Context& context, std::size_t M, std::size_t C, const float* x, const float* gamma,
                const float* beta, float epsilon, float* mean, float* inverse, float* y);
void layer_norm_backward_input(Context& context, std::size_t M, std::size_t C, const float* x,
                               const float* mean, const float* inverse, const float* gamma,
                               const float* dy, const float* skip, float* dx);
void layer_norm_backward_weights(Context& context, std::size_t ranks, std::size_t rows,
                                 std::size_t C, const float* x, const float* mean,
                                 const float* inverse, const float* dy, float* dgamma,
                                 float* dbeta);
void gelu(Context& context, std::size_t n, const float* x, float* y);
void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx);
void add(Context& context, std::size_t n, const float* a, const float* b, float* y);
void attention(Context& context, const cpu::AttentionShape& shape, const float* qkv, float scale,
               float* y, float* greatest, float* total);
void attention_backward(Context& context, const cpu::AttentionShape& shape, const float* qkv,
                        float scale, const float* greatest, const float* total, const float* dy,
                        float* dqkv);
void drop(Context& context, std::size_t rows, const cpu::Drop& by, float* values);
void scale(Context& context, std::size_t n, float factor, float* values);
void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w);

}  // namespace muster::kernels::cuda
