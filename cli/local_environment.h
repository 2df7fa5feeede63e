// The environment contract of own programs on one machine: pods' names do not resolve there, and
// all workers share its ports.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace muster::cli {

/// So many different TCP ports of loopback that nobody listens on now. Errors: kIo.
Result<std::vector<int>> free_ports(int count);

/// Puts 127.0.0.1 and `ports` (one per slot) in place of pods' names and their one port: in
/// MASTER_ADDR, MASTER_PORT, PET_* and TF_CONFIG, where they are set.
void adapt_to_loopback(std::map<std::string, std::string>& environment,
                       const std::vector<int>& ports);

}  // namespace muster::cli
