#include "worker/device.h"

#include <string>

#include "common/contract.h"
#include "common/log.h"
#ifdef MUSTER_CUDA
#include "kernels/cuda/ops.h"
#endif

namespace muster::worker {
namespace {

#ifdef MUSTER_CUDA
constexpr bool kHasKernels = true;
std::unique_ptr<kernels::Context> device_of(int rank, kernels::Products products) {
  const int count = kernels::cuda::device_count();
  return count > 0 ? std::make_unique<kernels::cuda::Context>(
                         kernels::cuda::DeviceShare{rank % count}, products)
                   : nullptr;
}
#else
constexpr bool kHasKernels = false;
std::unique_ptr<kernels::Context> device_of(int, kernels::Products) { return nullptr; }
#endif

/// Empty where a device can compute it.
std::string why_on_processors(const engine::TrainingConfig& config) {
  if (!kHasKernels) return "this build of the worker has no kernels for GPUs";
  if (config.group_size() > 1) return "spec.training.parallelism splits the model";
  return "";
}

}  // namespace

Result<std::unique_ptr<kernels::Context>> open_device(const engine::TrainingConfig& config,
                                                      int rank) {
  if (const std::string why = why_on_processors(config); !why.empty()) {
    log_warning("this worker holds GPUs and trains on processors alone", {{"why", why}});
    return std::unique_ptr<kernels::Context>();
  }
  auto device = device_of(
      rank, config.is_bfloat16 ? kernels::Products::kBfloat16 : kernels::Products::kFloat32);
  const char* const error = device ? device->finish() : "CUDA finds no device, or no driver";
  if (error == nullptr) {
    log_info("training on a GPU");
    return device;
  }
  return Error(ErrorCode::kUnsupported,
               "spec.worker.resources.gpus: " + std::string(error) +
                   "; must be a node whose GPUs the container sees, of compute capability 9.0 or "
                   "later, with a driver for CUDA 13")
      .with_exit_code(contract::exit_code::kDevice);
}

}  // namespace muster::worker
