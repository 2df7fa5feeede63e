// `muster get`: the jobs of a cluster.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "cli/kubectl.h"

namespace muster::cli {

struct GetOptions {
  std::vector<std::string> names;  ///< empty: all
  bool all_namespaces = false;
  std::string output;    ///< "", "wide", or what kubectl itself writes: "json", "yaml", "name"
  std::string selector;  ///< of labels; empty: all
  bool watches = false;  ///< a row for every change until a signal
};

/// Returns the exit code. Blocks: on the cluster.
int get_command(Kubectl& kubectl, const GetOptions& options, const Display& display);

}  // namespace muster::cli
