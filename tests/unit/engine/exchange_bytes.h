// What goes over the wire in a step, counted from who holds and owns what, without the exchange.
#pragma once

#include <cstdint>

#include "worker/engine/assignment.h"
#include "worker/engine/exchange.h"

namespace muster::test {

/// Payload bytes that `rank` sends in one sum.
std::uint64_t expected_bytes(const engine::Assignment& assignment, int rank,
                             const engine::Reduction& reduction);

/// Payload bytes that `rank` sends in one step, that of its sum included; `reduction` has
/// keepers. Where each keeps what it owns, and its buddies, they are those of a sum for all,
/// because a buddy is sent the gradient in place of the parameters, and one byte to each of the
/// others; hosts that are shared are sent less from others.
std::uint64_t expected_step_bytes(const engine::Assignment& assignment, int rank,
                                  const engine::Reduction& reduction);

}  // namespace muster::test
