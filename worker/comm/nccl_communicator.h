// Device memory between GPUs by NCCL, behind the Communicator interface. Built with MUSTER_CUDA.
//
// NCCL matches buffer by buffer: unlike over TCP, several buffers for one peer must be cut at the
// same places on both sides.
#pragma once

#include <memory>

#include "worker/comm/communicator.h"

namespace muster::comm {

struct NcclOptions {
  /// Carries NCCL's unique id from rank 0 to all, and gives rank and size. Used until
  /// make_nccl_communicator returns, by all ranks at the same place in their order of groups.
  Communicator* host = nullptr;
  int device = 0;  ///< index of this process's GPU
  MonoTime connect_deadline;
  const Clock* clock = nullptr;  ///< outlives the communicator
};

/// Connects the GPUs of all ranks. Buffers of the result are kCuda, and what writes them is
/// complete when start() is called. Blocks: until connected or the deadline. Errors: kUnsupported
/// (no such GPU, with exit code kDevice), kDeadlineExceeded, kAborted (a rank was lost).
Result<std::unique_ptr<Communicator>> make_nccl_communicator(const NcclOptions& options);

}  // namespace muster::comm
