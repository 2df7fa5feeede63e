// Reads from sysfs how a node's GPUs and network cards hang together on PCIe. Nothing is asked of a
// device or its driver, so it works without either.
#pragma once

#include <string>

#include "common/result.h"
#include "operator/api/pcie.h"

namespace muster::agent {

/// What stands below `root` (/sys, or a tree made like it): GPUs, other accelerators and network
/// cards, without virtual functions. A device of which something essential cannot be read, or that
/// does not fit in, is left out. The same machine gives the same answer whatever it does at the
/// moment. Errors: kNotFound or kIo (there is no list of devices), kTooLarge (more of them than
/// any machine has). Blocks: on sysfs.
Result<api::PcieNode> read_pcie(const std::string& root);

}  // namespace muster::agent
