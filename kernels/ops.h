// The operations of the engine, one per file below cpu/ (always built, and the truth in tests) and
// cuda/.
//
// Numerics contract `fp32-chain/1` (docs/numerics.md). All matrices are row-major fp32 and do not
// overlap. GEMM outputs are one fused-multiply-add chain from +0 in ascending k; the result never
// depends on the instruction set, the number of threads, how many rows are computed together, or
// where a buffer starts. Reductions inside a row: 16 virtual lanes (element i goes to lane i mod
// 16, each lane a chain in ascending i), blocks of 4,096 elements, lane tree 8-4-2-1, then the
// fixed binary tree over blocks (left subtree = largest power of two < n). NaNs are not
// canonicalised here, only before hashing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace muster::kernels {

/// Elements per block of every reduction, hash, checksum and shard.
inline constexpr std::size_t kBlockElements = 4096;
/// Version string recorded with a job; a joiner with another is refused.
inline constexpr const char* kNumericsContract = "fp32-chain/1";

/// What the linear_* functions multiply. All else is fp32, and so are all sums.
/// kBfloat16 rounds each operand to the nearest bfloat16 first, ties to even, denormals to zero of
/// their sign; every step of a chain flushes a result below 2^-126 to zero of its sign, as x86 does
/// where denormals are off (a result that rounds up to 2^-126 with 24 bits stays). That is what
/// AVX512-BF16 computes; other processors give the same bits, slower.
enum class Products { kFloat32, kBfloat16 };

/// What an activation function is fused into a GEMM's store.
enum class Activation { kNone, kRelu };

/// Sizes of an image, or of what layers have made of one: channel c of the pixel in row y and
/// column x lies at (y * width + x) * channels + c.
struct Extent {
  std::size_t height = 1, width = 1, channels = 1;
  std::size_t pixels() const { return height * width; }
  std::size_t size() const { return pixels() * channels; }
  bool operator==(const Extent&) const = default;
};

/// One update by stochastic gradient descent.
struct SgdStep {
  float learning_rate = 0.0F;
  float momentum = 0.0F;
  float gradient_scale = 1.0F;
};

/// One update by AdamW. What depends on the number of the step, t from 1, has been worked out once
/// for all elements.
struct AdamwStep {
  float beta1 = 0.0F, beta2 = 0.0F;
  float one_minus_beta1 = 1.0F, one_minus_beta2 = 1.0F;
  float step_size = 0.0F;   ///< learning rate / (1 - beta1^t)
  float root_scale = 1.0F;  ///< 1 / sqrt(1 - beta2^t)
  float epsilon = 1e-8F;    ///< above 0
  float decay = 0.0F;       ///< learning rate x weight decay
  float gradient_scale = 1.0F;
};

struct Operations;

/// What a device is called, and what its maker promises of it.
struct DeviceFacts {
  std::string name;       ///< empty: a processor
  double flops_most = 0;  ///< multiplications and additions of bfloat16 a second; 0: nobody knows
};

/// Where operations are computed, and the memory that they work on.
/// Threads: one caller at a time.
class Context {
 public:
  explicit Context(Products products) : products_(products) {}
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Products products() const { return products_; }
  /// What this kind of device computes with (kernels/operations.h).
  virtual const Operations& operations() const = 0;
  /// Whether operations take any memory of the process and are complete when they return.
  virtual bool is_host() const = 0;
  virtual DeviceFacts facts() const { return {}; }
  /// Memory that operations may work on, and the host, too, while none is under way: see finish().
  /// Where a device has none left it is the host's alone, all bits 0, and finish() tells.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  /// Bytes that allocate() gives at most, all together; 0: nobody knows.
  virtual std::size_t memory_most() const { return 0; }
  /// Makes all bits 0, of memory from allocate(). Blocks: until it is done.
  virtual void zero(void* memory, std::size_t bytes) = 0;
  /// An operation: both are from allocate(), and do not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// From any memory of the host, to memory from allocate() that nothing under way works on. What
  /// is under way goes on meanwhile. Blocks: until it is done.
  virtual void put(void* to, const void* from, std::size_t bytes) = 0;
  /// To be called between two parts of a long pass; returns the number of the one that ends here. A
  /// device lags behind by some parts at most, so that the caller knows of a device that hangs; the
  /// host is never behind. Blocks: yes.
  virtual std::uint64_t keep_pace() { return 0; }
  /// To any memory of the host, from memory of allocate(): what was computed up to the end of
  /// `part`, which keep_pace() gave, and later parts leave as it is. These go on meanwhile. False
  /// after an error: then `to` is of no worth. Blocks: until it is done.
  virtual bool fetch(std::uint64_t part, void* to, const void* from, std::size_t bytes) = 0;
  /// Who wants to know, each time that another part of what is computed is complete, that something
  /// is: called by who waits for a device, and on a processor by the caller of an operation.
  void set_on_alive(std::function<void()> on_alive) { on_alive_ = std::move(on_alive); }
  /// Until all that was begun is complete. Returns nullptr, or the first error's text: then all
  /// that was computed since the last call is of no worth, and nothing is computed any more.
  /// Blocks: yes.
  virtual const char* finish() = 0;

 protected:
  void tell_alive() const {
    if (on_alive_) on_alive_();
  }

 private:
  Products products_;
  std::function<void()> on_alive_;
};

namespace cpu {

/// Instruction sets with one implementation each. All give the same bits.
enum class Target { kScalar, kAvx2, kAvx512, kNeon };

/// The best target this machine has, or the one forced by force_target().
Target best_target();
/// Whether `target` is compiled in and this machine can run it.
bool has_target(Target target);
const char* name_of(Target target);
/// For tests and the record: every operation uses `target` from now on. Requires
/// has_target(target).
void force_target(Target target);

/// The threads that compute, and what they multiply. Bits never depend on the number of threads.
/// Threads: one caller at a time. Blocks: every operation returns when its result is complete. One
/// throws std::bad_alloc where the system refuses memory: its result is of no worth, and all others
/// work as before.
class Context final : public kernels::Context {
 public:
  /// `threads`, or fewer where the system gives no more.
  explicit Context(int threads = 1, Products products = Products::kFloat32);
  ~Context() override;
  int threads() const;

  const Operations& operations() const override;
  bool is_host() const override { return true; }
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  void zero(void* memory, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void put(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  bool fetch(std::uint64_t part, void* to, const void* from, std::size_t bytes) override;
  const char* finish() override { return nullptr; }
  /// By operations, between two of their parts.
  using kernels::Context::tell_alive;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Calls piece(i) once for every i below n, on the context's threads and in any order: what is no
/// operation of a model but independent work for all of them. Pieces write disjoint results, and
/// each takes a millisecond or less, so that the caller is seen to live. What one throws is thrown
/// here. Blocks: until all are done.
void for_each_piece(Context& context, std::size_t n, const std::function<void(std::size_t)>& piece);

/// y = activation(x w + bias).  Shape: x (M,K), w (K,N), bias (N) or nullptr, y (M,N).
/// The bias is added after the chain; ReLU is v > 0 ? v : 0, so NaN becomes 0 there and -0 becomes
/// +0.
void linear_forward(Context& context, std::size_t M, std::size_t N, std::size_t K, const float* x,
                    const float* w, const float* bias, Activation activation, float* y);

/// dx = dy w^T, chain over n in ascending order.  Shape: dy (M,N), w (K,N), dx (M,K).
/// With `relu_output` (M,K), the output of the ReLU that made x: dx is +0 where relu_output is not
/// > 0.
void linear_backward_input(Context& context, std::size_t M, std::size_t N, std::size_t K,
                           const float* dy, const float* w, const float* relu_output, float* dx);

/// Some steps of chains that are made part after part, maybe by several processes: their inputs'
/// columns from `first` on.
struct ChainPart {
  std::size_t first = 0, steps = 0;
  bool goes_on = false;  ///< from what the output holds, else from +0
};

/// A part of linear_forward's chains over k. What comes after the chain is for the last part.
/// Shape: as linear_forward.
void linear_forward_part(Context& context, std::size_t M, std::size_t N, std::size_t K,
                         const ChainPart& part, const float* x, const float* w, const float* bias,
                         Activation activation, float* y);

/// A part of linear_backward_input's chains over n. `relu_output` is for the last part.
/// Shape: as linear_backward_input.
void linear_backward_input_part(Context& context, std::size_t M, std::size_t N, std::size_t K,
                                const ChainPart& part, const float* dy, const float* w,
                                const float* relu_output, float* dx);

/// Bytes that a context keeps, at most, of what all threads read of the right side of products
/// whose chains have so many steps, with so many outputs a row.
std::size_t product_scratch_bytes(std::size_t steps, std::size_t columns);

/// Gradient of weights and bias summed over `ranks` logical ranks of `rows` rows each (M = ranks *
/// rows): per logical rank one chain over its rows in ascending order (dw: fma(x, dy, acc); db: acc
/// + dy), from +0; then the complete binary tree over the ranks. `ranks` is a power of two. K may
/// be 0, for the bias alone. Shape: x (M,K), dy (M,N), dw (K,N), db (N).
void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db);
/// Bytes that a context keeps, at most, of what all threads read of `x`, which has M rows.
std::size_t weights_scratch_bytes(std::size_t M, std::size_t K);

/// The same for further rows of one logical rank: its chains go on from what dw holds. Without a
/// bias. Shape: x (rows,K), dy (rows,N), dw (K,N).
void linear_backward_weights_further(Context& context, std::size_t rows, std::size_t N,
                                     std::size_t K, const float* x, const float* dy, float* dw);

/// What a convolution's kernel meets at each pixel, so that the convolution is a product of
/// matrices: tap (ky, kx) of the patch at (y, x) is the pixel at (y + ky - side / 2, x + kx - side
/// / 2), +0 outside the image. `side` is odd. Shape: x (M, image), patches (M * pixels, side * side
/// * channels).
void gather_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                    const float* x, float* patches);

/// The way back: dx of a value is the sum of the gradients of all taps that met it, from +0 in
/// ascending (ky, kx). With `relu_output`, the output of the ReLU that made x: dx is +0 where it is
/// not > 0. Shape: dpatches as patches, dx and relu_output (M, image).
void scatter_patches(Context& context, std::size_t M, const Extent& image, std::size_t side,
                     const float* dpatches, const float* relu_output, float* dx);

/// The greatest of each 2 x 2 pixels by comparison, the first of equals in the order (0,0), (0,1),
/// (1,0), (1,1); a last odd row or column is left out. Shape: x (M, image), y (M, image.height / 2,
/// image.width / 2, channels).
void max_pool(Context& context, std::size_t M, const Extent& image, const float* x, float* y);

/// The gradient goes to the value that was taken, all others are +0. Shape: dy as y, dx as x.
void max_pool_backward(Context& context, std::size_t M, const Extent& image, const float* x,
                       const float* dy, float* dx);

/// Statistics of each logical rank by itself. Shape: each (ranks, C).
struct BatchStatistics {
  float* mean;
  float* inverse;   ///< 1 / sqrt(biased variance + epsilon)
  float* variance;  ///< unbiased: squares / (n - 1)
};

/// Over the n = `rows` rows of each of `ranks` logical ranks: mean = sum / n; squares = sum of
/// (x - mean) * (x - mean), every product rounded; both sums by the rule at the top of this file,
/// element i being row i of the rank. rows >= 2. Shape: x (ranks * rows, C).
void batch_statistics(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                      const float* x, float epsilon, const BatchStatistics& statistics);

/// out[i] = 1 / sqrt(variance[i] + epsilon).
void inverse_deviation(Context& context, std::size_t n, const float* variance, float epsilon,
                       float* out);

/// Shape: mean and inverse (ranks, C), gamma and beta (C).
struct Normalisation {
  const float* mean;
  const float* inverse;
  const float* gamma;
  const float* beta;
};

/// y = activation(((x - mean) * inverse) * gamma + beta), every operation rounded; ReLU as in
/// linear_forward. Shape: x and y (ranks * rows, C).
void batch_normalise(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                     const float* x, const Normalisation& by, Activation activation, float* y);

/// Through the statistics, per logical rank with n = rows and h = (x - mean) * inverse: dbeta = sum
/// of dy, dgamma = sum of dy * h, dx = ((dy - dbeta / n) - h * (dgamma / n)) * (gamma * inverse),
/// every operation rounded, sums as in batch_statistics. dx may be dy. Shape: dgamma and dbeta
/// (ranks, C).
void batch_normalise_backward(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                              const float* x, const Normalisation& by, const float* dy,
                              float* dgamma, float* dbeta, float* dx);

/// out = the complete binary tree over `ranks` (a power of two) rows of values, which are lost.
/// Shape: values (ranks, n), out (n).
void sum_ranks(Context& context, std::size_t ranks, std::size_t n, float* values, float* out);

/// Softmax cross-entropy of each row and its gradient, in place.
/// loss[m] = log(sum_n exp(logits[m,n] - max_m)) + max_m - logits[m, labels[m]];
/// logits[m,n] becomes (exp(logits[m,n] - max_m) / sum - [n == labels[m]]) * scale.
/// correct[m] is 1 when the label's logit is the greatest and the first such, else 0.
/// Shape: logits (M,N), labels, loss, correct (M); every label < N. With `gradient` false logits
/// stay.
void softmax_cross_entropy(Context& context, std::size_t M, std::size_t N,
                           const std::int32_t* labels, float scale, bool gradient, float* logits,
                           float* loss, float* correct);

/// Of classes or of a table's rows those that one of several has, at multiples of kBlockElements.
struct Slice {
  std::size_t first = 0, count = 0;
  bool has(std::size_t one) const { return one >= first && one - first < count; }
};

// softmax_cross_entropy where the classes are divided: three steps of those who have some, after
// each of the first two of which all have what each has told, in the order of the classes. The same
// bits as of whole rows.

/// First: told[m] is the greatest of the slice's logits, and the label's where the slice has it.
/// Shape: logits (M, own.count), labels (M), told (M,2).
void softmax_slice_max(Context& context, std::size_t M, const Slice& own,
                       const std::int32_t* labels, const float* logits, float* told);

/// Of whole rows, from the first step: the greatest and the label's logit.  Shape: max, label (M).
struct RowLogits {
  const float *max, *label;
};
/// Second: told[m] is 1 where no logit of the slice keeps the label's from being the greatest and
/// the first such, else 0; then the sum of exp(logits - max) in each block. The logits become those
/// where `gradient`.  Shape: logits (M, own.count), labels (M), told (M, 1 + blocks of own.count).
void softmax_slice_sums(Context& context, std::size_t M, const Slice& own,
                        const std::int32_t* labels, const RowLogits& of, bool gradient,
                        float* logits, float* told);

/// From the second step, of all slices: `blocks` by slice, `told` slice after slice.
/// Shape: told (sum of M (1 + blocks)), loss, correct, total (M); total is what the sums come to.
void softmax_slices_loss(std::size_t M, std::span<const std::size_t> blocks, const float* told,
                         const RowLogits& of, float* loss, float* correct, float* total);

/// Third: the gradient, in place of what the second step has made.  Shape: as there, total (M).
void softmax_slice_gradient(Context& context, std::size_t M, const Slice& own,
                            const std::int32_t* labels, const float* total, float scale,
                            float* logits);

/// y[m] = table[tokens[m]] + positions[m mod T], one addition each. M is a multiple of T; every
/// token is a row of the table. Shape: tokens (M), table (V,C), positions (T,C), y (M,C).
void embed(Context& context, std::size_t M, std::size_t T, std::size_t C,
           const std::int32_t* tokens, const float* table, const float* positions, float* y);

/// dtable[tokens[i] - own.first] = dtable[tokens[i] - own.first] + dy[i] for i ascending, of the
/// table's rows that are own: dtable holds what it is added to.
/// Shape: tokens (M), dy (M,C), dtable (own.count, C).
void add_token_rows(Context& context, std::size_t M, std::size_t C, const Slice& own,
                    const std::int32_t* tokens, const float* dy, float* dtable);

/// Per logical rank the chain acc + dy from +0 over its `rows` sequences ascending; then the
/// complete binary tree over the ranks, a power of two. Shape: dy (ranks * rows, T, C), dpositions
/// (T,C).
void position_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t T,
                       std::size_t C, const float* dy, float* dpositions);

/// Layer normalisation of each row: mean = sum / C; d = x - mean; q = the sum of d * d; inverse =
/// 1 / sqrt(q / C + epsilon); h = d * inverse; y = h * gamma + beta. Every operation is rounded;
/// sums by the rule at the top of this file. y may be x. Shape: x and y (M,C), gamma and beta (C),
/// mean and inverse (M).
void layer_norm(Context& context, std::size_t M, std::size_t C, const float* x, const float* gamma,
                const float* beta, float epsilon, float* mean, float* inverse, float* y);

/// With h as above and g = dy * gamma: a = sum(g) / C; b = sum(g * h) / C; dx = ((g - a) - h * b) *
/// inverse, then + skip unless it is nullptr (the gradient that went past the branch). Every
/// operation is rounded. dx may be skip or dy. Shape: skip and dx (M,C), the others as above.
void layer_norm_backward_input(Context& context, std::size_t M, std::size_t C, const float* x,
                               const float* mean, const float* inverse, const float* gamma,
                               const float* dy, const float* skip, float* dx);

/// Per logical rank over its rows ascending, from +0: dgamma the chain fma(dy, h, acc), dbeta the
/// chain acc + dy; then the complete binary tree over the ranks, a power of two. Shape: x and dy
/// (ranks * rows, C), dgamma and dbeta (C).
void layer_norm_backward_weights(Context& context, std::size_t ranks, std::size_t rows,
                                 std::size_t C, const float* x, const float* mean,
                                 const float* inverse, const float* dy, float* dgamma,
                                 float* dbeta);

/// GELU in its tanh form: s = x * x; u = kappa * fma(0.044715 * s, x, x), kappa = sqrt(2 / pi); e =
/// exp(2 * u); t = 1 - 2 / (e + 1); h = 0.5 * x; y = fma(h, t, h). y may be x. Shape: all (n).
/// Source: Hendrycks and Gimpel, arXiv:1606.08415; GPT-2 has this form.
void gelu(Context& context, std::size_t n, const float* x, float* y);

/// With s, u, t and h as above: w = fma(-t, t, 1); du = kappa * fma(3 * 0.044715, s, 1), the
/// product of floats rounded; slope = fma(h * w, du, fma(0.5, t, 0.5)); dx = dy * slope. Where s is
/// infinite (|x| of 2^64 and above) the slope is NaN. dx may be dy. Shape: all (n).
void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx);

/// y = a + b. y may be a or b.  Shape: all (n).
void add(Context& context, std::size_t n, const float* a, const float* b, float* y);

/// Sizes of attention; C = heads * D. The 3C values of a position are query, key and value, each
/// head after head.
struct AttentionShape {
  std::size_t rows;  ///< sequences
  std::size_t T;     ///< positions of a sequence
  std::size_t heads;
  std::size_t D;  ///< values of one head
};

/// What is dropped of attention's weights. The key is that of one dropout at one step.
struct WeightDrop {
  std::uint64_t key = 0;
  std::size_t first_head = 0;   ///< of all that there are
  std::uint32_t first_row = 0;  ///< of the whole batch
  float share = 0.0F;           ///< of weights that are dropped; 0: none, and nothing is drawn
  float scale = 1.0F;           ///< of the others
};

/// Causal attention of each sequence and head by itself. score[i][j] = (the chain over d of
/// fma(q[i][d], k[j][d], acc) from +0) * scale for j <= i; m = the greatest score by comparison, +0
/// for -0 (NaNs are passed over); e[j] = exp(score[i][j] - m); Z = the sum of e over j = 0..i by
/// the rule at the top of this file; p[j] = e[j] / Z; w[j] = p[j], or of a dropout +0 where u <
/// share, else p[j] * drop.scale; y[i][d] = the chain over j ascending of fma(w[j], v[j][d], acc)
/// from +0. Positions j > i have no part in any chain. greatest and total take m and Z.
/// u is 2^-16 times half j mod 2, the lower one first, of word j / 2 mod 4 of philox4x32(key,
/// {b, its upper half, row, 3}), b = (head * T + i) * (T / 8, rounded up) + j / 8.
/// Shape: qkv (rows * T, 3C), y (rows * T, C), greatest and total (rows, heads, T).
/// Memory of each thread: O(T * D), and 49 rows of T.
void attention(Context& context, const AttentionShape& shape, const float* qkv, float scale,
               const WeightDrop& drop, float* y, float* greatest, float* total);

/// Scores, p and w are made again as above, from greatest and total. dp[j] = the chain over d of
/// fma(dy[i][d], v[j][d], acc), which a dropout makes +0 or multiplies as p[j]; r = the sum over j
/// of p[j] * dp[j], the product rounded; ds[i][j] = (p[j] * (dp[j] - r)) * scale. dq[i][d] = the
/// chain over j ascending of fma(ds[i][j], k[j][d], acc); dk[j][d] = the chain over i ascending
/// from j of fma(ds[i][j], q[i][d], acc); dv[j][d] = the same of fma(w[i][j], dy[i][d], acc); all
/// from +0. Shape: dy as y, dqkv as qkv, overwritten. Memory of each thread: O(T * D), and 97 rows
/// of T.
void attention_backward(Context& context, const AttentionShape& shape, const float* qkv,
                        float scale, const WeightDrop& drop, const float* greatest,
                        const float* total, const float* dy, float* dqkv);

/// Bytes that a context keeps for each of its threads that has made attention_backward.
std::size_t attention_scratch_bytes(const AttentionShape& shape);

/// Sum of n values by the reduction rule at the top of this file. n = 0 gives +0.
float sum(const float* values, std::size_t n);

/// Sums of squares, block by block: within each as above, with lanes of fma(v, v, acc).
/// Shape: values (n), out (ceil(n / 4096)).
void block_squares(Context& context, std::size_t n, const float* values, float* out);

/// The fixed binary tree over n values, as over the blocks of a sum. n = 0 gives +0.
float tree_sum(const float* values, std::size_t n);

/// out[i] = tree sum of nodes[0..count)[i]: the binary tree over `count` inputs described by
/// `order`: a post-order program: entry >= 0 pushes that input, -1 adds the two on top (left +
/// right). Shape: each node and out (n); out may be nodes[k] for any k. Bound: depth 64.
void sum_nodes(Context& context, const float* const* nodes, const std::int8_t* order,
               std::size_t order_size, std::size_t n, float* out);

/// x = gradient_scale g; v = fma(momentum, v, x); w = fma(-learning_rate, v, w).  Shape: all (n).
void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w);

/// x = gradient_scale g;
/// m = fma(beta1, m, one_minus_beta1 x); v = fma(beta2, v, (one_minus_beta2 x) x);
/// w = fma(-step_size, m / fma(sqrt(v), root_scale, epsilon), fma(-decay, w, w)).
/// Division and root are those of IEEE 754.  Shape: all (n).
void adamw(Context& context, std::size_t n, const AdamwStep& step, const float* g, float* m,
           float* v, float* w);

/// Sizes and numbers of a dropout. The key is that of one dropout at one step.
struct Drop {
  std::uint64_t key = 0;
  std::size_t columns = 0;       ///< of a row in `values`
  std::size_t first_column = 0;  ///< where those begin in the whole row
  std::uint32_t first_row = 0;   ///< of the whole batch
  float share = 0.0F;            ///< of values that are dropped
  float scale = 1.0F;            ///< of the others
};

/// In place: +0 where u < share, else the value times scale. u is the number of column c of a whole
/// row: the upper 24 bits of word c mod 4 of philox4x32(key, {c / 4, its upper half, row, 3}),
/// times 2^-24. Shape: values (rows, columns).
void drop(Context& context, std::size_t rows, const Drop& by, float* values);

/// values[i] = values[i] * factor.
void scale(Context& context, std::size_t n, float factor, float* values);

/// Bytes to values: out[i] = bytes[i] / 255 (one IEEE division).
void bytes_to_unit(const std::uint8_t* bytes, std::size_t n, float* out);

/// Own math functions: the same bits on every target. Error below 2 ulp over the finite range,
/// special values as IEEE 754 (exp(-inf) = 0, log(0) = -inf, log(<0) = NaN).
float exp_f32(float x);
float log_f32(float x);
void exp_f32(const float* x, std::size_t n, float* out);
double log_f64(double x);
double cos_f64(double x);

}  // namespace cpu
}  // namespace muster::kernels
