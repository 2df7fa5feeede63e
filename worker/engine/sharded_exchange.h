// What follows the sum of the gradients where the optimiser's state is sharded: all tell each other
// that they can update, and after the update the owners give the parameters to the others.
#pragma once

#include <cstdint>
#include <span>

#include "worker/engine/exchange.h"
#include "worker/engine/hosts.h"
#include "worker/engine/keeping.h"

namespace muster::engine {

/// Payload bytes that `rank` sends in one step, that of its sum included; `reduction` has
/// keepers. Where each keeps what it owns, and its buddies, they are those of a sum for all,
/// because a buddy is sent the gradient in place of the parameters, and one byte to each of the
/// others; hosts that are shared are sent less from others.
std::uint64_t expected_step_bytes(const Assignment& assignment, int rank,
                                  const Reduction& reduction);

/// Returns when all others have come here, too. Point: "logged" while they tell it.
/// Blocks: until `deadline`.  Errors: as comm::Work::wait, or the point's.
Status confirm(comm::Communicator& communicator, std::uint64_t step, MonoTime deadline,
               const ExchangePoint& point);

/// Who gives parameters, and to whom.
struct Giving {
  const Keeping& keeping;
  Hosts hosts{};
};

/// All who have not made an update are given the parameters. Where several share a host somebody of
/// it who has made the update gives them to the others, or one of them is sent them and gives them
/// on. Point: "gather" while they move.  Blocks, Errors: as confirm().
Status gather_parameters(comm::Communicator& communicator, const Giving& giving, std::uint64_t step,
                         std::span<float> parameters, MonoTime deadline,
                         const ExchangePoint& point);

}  // namespace muster::engine
