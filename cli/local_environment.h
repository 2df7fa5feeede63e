// What one machine offers its workers, and the environment contract of own programs there: pods'
// names do not resolve, and all workers share its ports.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace muster::cli {

/// So many different TCP ports of loopback that nobody listens on now. Errors: kIo.
Result<std::vector<int>> free_ports(int count);

/// GPUs that processes of this machine see, as CUDA does and by its names: those that
/// CUDA_VISIBLE_DEVICES lists, up to the first one that is none; where it is not set, a number for
/// each that NVIDIA's driver shows as a directory in `driver`. At most 64.
std::vector<std::string> visible_gpus(const std::map<std::string, std::string>& environment,
                                      const std::string& driver = "/proc/driver/nvidia/gpus");

/// Puts 127.0.0.1 and `ports` (one per slot) in place of pods' names and their one port: in
/// MASTER_ADDR, MASTER_PORT, PET_* and TF_CONFIG, where they are set.
void adapt_to_loopback(std::map<std::string, std::string>& environment,
                       const std::vector<int>& ports);

}  // namespace muster::cli
