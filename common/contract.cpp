#include "common/contract.h"

namespace muster::contract {

std::string_view reason_of_exit_code(int code) {
  switch (code) {
    case exit_code::kComplete:
      return "Completed";
    case exit_code::kInternal:
      return "InternalError";
    case exit_code::kUsage:
      return "Usage";
    case exit_code::kFailedJob:
      return "JobFailed";
    case exit_code::kCluster:
      return "ClusterRefused";
    case exit_code::kInvalidSpec:
      return "InvalidSpec";
    case exit_code::kData:
      return "DataInvalid";
    case exit_code::kCheckpoint:
      return "CheckpointCorrupt";
    case exit_code::kNoCheckpoint:
      return "NoCheckpoint";
    case exit_code::kNumerics:
      return "Numerics";
    case exit_code::kPeerLost:
      return "PeerLost";
    case exit_code::kOutOfMemory:
      return "OutOfMemory";
    case exit_code::kDevice:
      return "DeviceFailed";
    case exit_code::kPort:
      return "PortTaken";
    case exit_code::kDisk:
      return "DiskFull";
    case exit_code::kDeadline:
      return "DeadlineExceeded";
    case exit_code::kPlannedLeave:
      return "PlannedLeave";
    case exit_code::kHung:
      return "Hung";
    case exit_code::kCpuOrContract:
      return "CpuOrContractRefused";
    case exit_code::kLeaseLost:
      return "LeaseLost";
    case exit_code::kMemory:
      return "MemoryFaulty";
    case exit_code::kKeyRefused:
      return "KeyRefused";
    case exit_code::kNeedsSplit:
      return "NeedsSplit";
    case exit_code::kInterrupted:
      return "Interrupted";
    default:
      return "Error";
  }
}

bool is_retryable_exit_code(int code) {
  switch (code) {
    case exit_code::kUsage:
    case exit_code::kInvalidSpec:
    case exit_code::kData:
    case exit_code::kCheckpoint:
    case exit_code::kNoCheckpoint:
    case exit_code::kNumerics:
    case exit_code::kDeadline:
    case exit_code::kCpuOrContract:
    case exit_code::kNeedsSplit:
      return false;
    default:
      return true;
  }
}

}  // namespace muster::contract
