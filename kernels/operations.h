// The operations that a model's passes are made of, as a table: one for each kind of device, so
// that a model does not know where it is computed. All have the names, arguments and meaning of
// kernels/ops.h, and give the same bits.
#pragma once

#include "kernels/ops.h"

// clang-format off
#define MUSTER_OPERATIONS(X) \
  X(linear_forward) \
  X(linear_backward_input) \
  X(linear_backward_weights) \
  X(linear_backward_weights_further) \
  X(gather_patches) \
  X(scatter_patches) \
  X(max_pool) \
  X(max_pool_backward) \
  X(batch_statistics) \
  X(inverse_deviation) \
  X(batch_normalise) \
  X(batch_normalise_backward) \
  X(sum_ranks) \
  X(softmax_cross_entropy) \
  X(embed) \
  X(add_token_rows) \
  X(position_gradient) \
  X(layer_norm) \
  X(layer_norm_backward_input) \
  X(layer_norm_backward_weights) \
  X(gelu) \
  X(gelu_backward) \
  X(add) \
  X(attention) \
  X(attention_backward) \
  X(drop) \
  X(scale)
// clang-format on

namespace muster::kernels {

namespace detail {

template <typename Function>
struct OfContext;
template <typename Device, typename... Arguments>
struct OfContext<void(Device&, Arguments...)> {
  using Pointer = void (*)(Context&, Arguments...);
  /// The same function of another kind of device.
  template <typename Other>
  using On = void(Other&, Arguments...);
  /// `operation` of one kind of device, for those who know only that it has contexts.
  template <void (*operation)(Device&, Arguments...)>
  static void call(Context& context, Arguments... arguments) {
    operation(static_cast<Device&>(context), arguments...);
  }
};

}  // namespace detail

/// Each takes a context of the device whose table it is from.
struct Operations {
#define MUSTER_OPERATION(name) detail::OfContext<decltype(cpu::name)>::Pointer name;
  MUSTER_OPERATIONS(MUSTER_OPERATION)
#undef MUSTER_OPERATION
};

/// Within the namespace of a kind of device: a pointer of its table.
#define MUSTER_TABLE_ENTRY(name) &kernels::detail::OfContext<decltype(name)>::call<&name>,

}  // namespace muster::kernels
