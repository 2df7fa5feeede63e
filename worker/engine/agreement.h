// The few words that processes exchange outside of the step: whether all can start, whether all
// have the same configuration and data, and what became of process 0's work on the disk.
#pragma once

#include "common/clock.h"
#include "common/result.h"
#include "common/sha256.h"
#include "worker/comm/communicator.h"

namespace muster::engine {

/// An error of the communicator as one of the trainer: exit code kPeerLost unless it has one.
Error peer_error(const Error& error);

/// Every process tells whether `own` went well; all return an error when any of them failed: its
/// own, or one that names the process, with exit code kPeerLost. Blocks: until `deadline`.  Errors:
/// also as comm::Work::wait, by peer_error.
Status agree_all_well(comm::Communicator& communicator, const Status& own, const char* what,
                      MonoTime deadline);

/// Every process must have the same `digest`.  Errors: kConflict, exit code `exit_code`, naming a
/// process that differs and `what`.
Status agree_equal(comm::Communicator& communicator, const Sha256Digest& digest, const char* what,
                   int exit_code, MonoTime deadline);

/// Process 0 tells the others how `own` went; they return an error with exit code kPeerLost.
Status follow_first(comm::Communicator& communicator, const Status& own, const char* what,
                    std::uint64_t step, MonoTime deadline);

}  // namespace muster::engine
