// What follows the sum of the gradients where the optimiser's state is sharded: all tell each other
// that they can update, and after the update the owners give the parameters to the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/exchange.h"
#include "worker/engine/hosts.h"
#include "worker/engine/keeping.h"

namespace muster::engine {

/// Returns when all others have come here, too, each with a word for all: by rank in `said`, where
/// one's own is already. Point: "logged" while they tell it.
/// Blocks: until `deadline`.  Errors: as comm::Work::wait, or the point's.
Status confirm(comm::Communicator& communicator, std::span<std::uint8_t> said, std::uint64_t step,
               MonoTime deadline, const ExchangePoint& point);

/// Who gives parameters, and to whom.
struct Giving {
  const Keeping& keeping;
  Hosts hosts{};
};

/// Parameters on their way from one to another.
struct Gift {
  int from = 0, to = 0;
  ElementRange range;
  bool is_given_on = false;  ///< it was given to `from` before
};

/// All that a process gives or is given.
struct Gifts {
  std::vector<Gift> all;         ///< between two processes in the same order on both
  bool is_any_given_on = false;  ///< by some process, not only by this one
};

/// All who have not made an update are given the parameters. Where several share a host somebody of
/// it who has made the update gives them to the others, or one of them is sent them and gives them
/// on. Pure, and the same as long as members and keepers are.
Gifts plan_gifts(const Giving& giving, int rank);

/// Moves them. Point: "gather" meanwhile.  Blocks, Errors: as confirm().
Status gather_parameters(comm::Communicator& communicator, const Gifts& gifts, std::uint64_t step,
                         std::span<float> parameters, MonoTime deadline,
                         const ExchangePoint& point);

}  // namespace muster::engine
