#include <cstring>

#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

constexpr std::size_t kDepthMax = 64;
/// Elements that go through the whole program at a time, so that its stack stays in the first
/// cache.
constexpr std::size_t kPiece = 128;
constexpr std::size_t kTaskElements = 16 * kBlockElements;

/// A sum that is not the last is left in the buffer of its stack slot; inputs are pushed as
/// pointers. The last sum goes straight to out, which may be one of the inputs: each of its
/// elements has been read by then.
void run_program(const VectorTable& table, const float* const* nodes, const std::int8_t* order,
                 std::size_t order_size, std::size_t first, std::size_t n, float* out) {
  alignas(64) float buffers[kDepthMax][kPiece];
  const float* stack[kDepthMax];
  std::size_t depth = 0;
  for (std::size_t i = 0; i < order_size; ++i) {
    if (order[i] >= 0) {
      stack[depth++] = nodes[order[i]] + first;
      continue;
    }
    --depth;
    float* target = i + 1 == order_size ? out + first : buffers[depth - 1];
    table.add(stack[depth - 1], stack[depth], n, target);
    stack[depth - 1] = target;
  }
  if (stack[0] != out + first) std::memmove(out + first, stack[0], n * sizeof(float));
}

void check_program(const std::int8_t* order, std::size_t order_size) {
  std::size_t depth = 0;
  for (std::size_t i = 0; i < order_size; ++i) {
    if (order[i] >= 0) {
      if (++depth > kDepthMax) fail("sum_nodes: the order needs more than 64 places");
    } else {
      if (order[i] != -1 || depth < 2) fail("sum_nodes: the order is not a post-order program");
      --depth;
    }
  }
  if (depth != 1) fail("sum_nodes: the order does not end with one sum");
}

}  // namespace

void sum_nodes(Context& context, const float* const* nodes, const std::int8_t* order,
               std::size_t order_size, std::size_t n, float* out) {
  check_program(order, order_size);
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kTaskElements, [&](std::size_t first, std::size_t size) {
    for (std::size_t at = first; at < first + size; at += kPiece) {
      run_program(table, nodes, order, order_size, at, least(kPiece, first + size - at), out);
    }
  });
}

}  // namespace muster::kernels::cpu
