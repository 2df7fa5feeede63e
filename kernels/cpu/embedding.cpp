// Rows of a table for tokens, and a row for each position.
#include <bit>

#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values.
constexpr std::size_t kTaskElements = 16'384;
/// Values that one task takes through all rows: the sums of several ranks stay in the first cache.
constexpr std::size_t kPiece = 512;

std::size_t row_of(std::int32_t token) {
  if (token < 0) fail("a token is below 0");
  return static_cast<std::size_t>(token);
}

/// One logical rank's chain over its rows.
void add_rows(const VectorTable& table, std::size_t rows, std::size_t stride, std::size_t n,
              const float* dy, float* sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] = 0.0F;
  for (std::size_t row = 0; row < rows; ++row) table.add(sum, dy + row * stride, n, sum);
}

}  // namespace

void embed(Context& context, std::size_t M, std::size_t T, std::size_t C,
           const std::int32_t* tokens, const float* table, const float* positions, float* y) {
  if (M == 0 || C == 0) return;
  if (T == 0 || M % T != 0) fail("embed: rows are not whole sequences");
  const VectorTable& loops = vectors();
  parallel_rows(context, M, C, kTaskElements, [&](std::size_t m) {
    loops.add(table + row_of(tokens[m]) * C, positions + m % T * C, C, y + m * C);
  });
}

void add_token_rows(Context& context, std::size_t M, std::size_t C, const Slice& own,
                    const std::int32_t* tokens, const float* dy, float* dtable) {
  const VectorTable& loops = vectors();
  // A row's order is that of all tokens, so only columns can be shared out.
  const std::size_t share = C / static_cast<std::size_t>(context.threads());
  const std::size_t piece = round_up(share == 0 ? 1 : share, 64);
  parallel_pieces(context, C, piece, [&](std::size_t first, std::size_t n) {
    for (std::size_t i = 0; i < M; ++i) {
      const std::size_t token = row_of(tokens[i]);
      if (!own.has(token)) continue;
      float* row = dtable + (token - own.first) * C + first;
      loops.add(row, dy + i * C + first, n, row);
    }
  });
}

void position_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t T,
                       std::size_t C, const float* dy, float* dpositions) {
  if (!std::has_single_bit(ranks)) fail("logical ranks must be a power of two");
  const VectorTable& loops = vectors();
  const std::size_t all = T * C;
  const auto depth_max = static_cast<std::size_t>(std::bit_width(ranks));
  parallel_for(context, (all + kPiece - 1) / kPiece, [&](std::size_t index, std::size_t thread) {
    const std::size_t first = index * kPiece;
    const std::size_t n = least(kPiece, all - first);
    // Complete subtrees to the left, as many as the rank's number has bits set.
    float* stack = thread_scratch(context, thread).reserve(depth_max * kPiece);
    float* top = stack;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      add_rows(loops, rows, all, n, dy + rank * rows * all + first, top);
      for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {
        loops.add(top - kPiece, top, n, top - kPiece);
        top -= kPiece;
      }
      top += kPiece;
    }
    for (std::size_t i = 0; i < n; ++i) dpositions[first + i] = stack[i];
  });
}

}  // namespace muster::kernels::cpu
