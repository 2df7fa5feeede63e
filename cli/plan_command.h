// `muster plan FILE`: what would become of a job, before it is submitted.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "cli/kubectl.h"

namespace muster::cli {

struct PlanOptions {
  std::string file;
  std::vector<std::string> overrides;
  std::string price_list;      ///< file; empty: no cost is told
  std::string cluster;         ///< file of a saved cluster; empty: the live one
  std::string namespace_name;  ///< of the job; empty: the manifest's, else the one in use
  std::string output;          ///< "json", or empty
};

/// `kubectl` is needed for a live cluster alone. 0: the job would start now; kFailedJob: it would
/// not; others as the errors have them. Blocks: on kubectl.
int plan_command(Kubectl* kubectl, const PlanOptions& options, const Display& display);

}  // namespace muster::cli
