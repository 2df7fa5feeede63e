#include "worker/device.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "common/contract.h"
#include "common/log.h"
#include "worker/gpu_list.h"
#ifdef MUSTER_CUDA
#include "kernels/cuda/ops.h"
#endif

namespace muster::worker {
namespace {

#ifdef MUSTER_CUDA
Error refused(const std::string& what) {
  return Error(ErrorCode::kUnsupported,
               "spec.worker.resources.gpus: " + what +
                   "; must be a node whose GPUs the container sees, of compute capability 9.0 or "
                   "later, with a driver for CUDA 13")
      .with_exit_code(contract::exit_code::kDevice);
}

constexpr bool kHasKernels = true;
Result<std::unique_ptr<kernels::Context>> device_of(const GpuWish& wish,
                                                    kernels::Products products) {
  if (const char* const why = kernels::cuda::why_no_device(); why != nullptr) {
    return refused("CUDA finds no device (" + std::string(why) + ")");
  }
  const int count = kernels::cuda::device_count();
  if (wish.instances == 0 && count < std::min(wish.gpus, wish.processes)) {
    return refused("CUDA finds " + std::to_string(count) + " of the " + std::to_string(wish.gpus) +
                   " GPUs that the worker holds (of several MIG instances the first, unless "
                   "NVIDIA_VISIBLE_DEVICES names them)");
  }
  const int devices = std::max(count, wish.instances);
  const kernels::cuda::DeviceShare share{wish.rank % count,
                                         (wish.together + devices - 1) / devices};
  auto device = std::make_unique<kernels::cuda::Context>(share, products);
  if (const char* const error = device->finish(); error != nullptr) return refused(error);
  return std::unique_ptr<kernels::Context>(std::move(device));
}
#else
constexpr bool kHasKernels = false;
Result<std::unique_ptr<kernels::Context>> device_of(const GpuWish&, kernels::Products) {
  return std::unique_ptr<kernels::Context>();
}
#endif

/// Empty where a device can compute it.
std::string why_on_processors(const engine::TrainingConfig& config) {
  if (!kHasKernels) return "this build of the worker has no kernels for GPUs";
  if (config.group_size() > 1) return "spec.training.parallelism splits the model";
  return "";
}

}  // namespace

int take_instance(const std::string& listed, int rank) {
  const auto own = kHasKernels ? own_instance(listed, rank) : std::nullopt;
  if (!own || setenv("CUDA_VISIBLE_DEVICES", own->name.c_str(), 1) != 0) return 0;
  log_info("this process has one of the MIG instances", {{"instance", own->name}});
  return own->listed;
}

Result<std::unique_ptr<kernels::Context>> open_device(const engine::TrainingConfig& config,
                                                      const GpuWish& wish) {
  if (const std::string why = why_on_processors(config); !why.empty()) {
    log_warning("this worker holds GPUs and trains on processors alone", {{"why", why}});
    return std::unique_ptr<kernels::Context>();
  }
  const auto products =
      config.is_bfloat16 ? kernels::Products::kBfloat16 : kernels::Products::kFloat32;
  MUSTER_ASSIGN_OR_RETURN(auto device, device_of(wish, products));
  log_info("training on a GPU", {{"device", device->facts().name}});
  return device;
}

}  // namespace muster::worker
