// Which GPU of those that a container lists a trainer is to see. It looks at no device.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster::worker {

struct GpuInstance {
  std::string name;
  int listed = 0;  ///< of which it is one
};

/// CUDA shows a process only one of several MIG instances, the first: each process of a worker must
/// be given its own. `listed` is what CUDA_VISIBLE_DEVICES says, or where that is not set
/// NVIDIA_VISIBLE_DEVICES; `rank` counts the job's processes. Nothing unless it names several
/// instances and nothing else: then CUDA's own count is right.
std::optional<GpuInstance> own_instance(std::string_view listed, int rank);

}  // namespace muster::worker
