// The few words that processes exchange outside of the step: whether all came to the same result,
// and what became of one process' work on the disk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/sha256.h"
#include "worker/comm/communicator.h"
#include "worker/engine/ranges.h"

namespace muster::engine {

/// An error of the communicator as one of the trainer: exit code kPeerLost unless it has one.
Error peer_error(const Error& error);

/// Every process must have the same `digest`.  Errors: kConflict, exit code `exit_code`, naming a
/// process that differs and `what`.
Status agree_equal(comm::Communicator& communicator, const Sha256Digest& digest, const char* what,
                   int exit_code, MonoTime deadline);

/// What each rank has `counts[rank]` of, one rank after the other.  Errors: as comm::all_gather.
template <typename T>
Result<std::vector<T>> gather_lists(comm::Communicator& communicator, const std::vector<T>& own,
                                    const std::vector<std::size_t>& counts, std::uint64_t step,
                                    MonoTime deadline) {
  std::vector<std::size_t> offsets{0};
  for (const std::size_t count : counts) offsets.push_back(offsets.back() + count * sizeof(T));
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::vector<T> all(offsets.back() / sizeof(T));
  std::ranges::copy(own, all.begin() + static_cast<std::ptrdiff_t>(offsets[rank] / sizeof(T)));
  if (!all.empty() && communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(comm::all_gather(
        communicator, step, std::as_writable_bytes(std::span(all)), offsets, deadline));
  }
  return all;
}

/// By rank, what each says of itself: 1 for true.
Result<std::vector<std::uint8_t>> gather_flags(comm::Communicator& communicator, bool own,
                                               std::uint64_t step, MonoTime deadline);

/// By rank, the `own` of each, which are of one length.
Result<std::vector<std::vector<std::uint64_t>>> gather_sums(comm::Communicator& communicator,
                                                            const std::vector<std::uint64_t>& own,
                                                            std::uint64_t step, MonoTime deadline);

/// By rank, the ranges of each, which end at `elements` at the latest.  Errors: kCorrupt where some
/// cannot be right.
Result<std::vector<Ranges>> gather_ranges(comm::Communicator& communicator, const Ranges& own,
                                          std::size_t elements, std::uint64_t step,
                                          MonoTime deadline);

/// Process `root` tells the others how `own` went; they return an error with exit code kPeerLost.
Status follow(comm::Communicator& communicator, int root, const Status& own, const char* what,
              std::uint64_t step, MonoTime deadline);

}  // namespace muster::engine
