// Objects of a cluster as `kubectl get -o json` shows them.
#pragma once

#include <string>

#include "common/json.h"

namespace muster::cli {

/// A ready node in a rack of block b, as OCI's labels say.
inline Json racked_node(const std::string& name, const std::string& rack, Json allocatable) {
  const Json ready{{"type", "Ready"}, {"status", "True"}};
  return {
      {"apiVersion", "v1"},
      {"kind", "Node"},
      {"metadata",
       {{"name", name},
        {"uid", "node-" + name},
        {"labels",
         {{"oci.oraclecloud.com/host.network_block_id", "b"},
          {"oci.oraclecloud.com/host.rack_id", rack}}}}},
      {"status", {{"allocatable", std::move(allocatable)}, {"conditions", Json::array({ready})}}}};
}

/// `cohort` may be empty.
inline Json training_queue(const std::string& name, const std::string& resource,
                           const std::string& nominal, const std::string& cohort = "") {
  Json spec{{"resources", Json::array({{{"name", resource}, {"nominal", nominal}}})}};
  if (!cohort.empty()) spec["cohort"] = cohort;
  return {{"apiVersion", "muster.dev/v1alpha1"},
          {"kind", "TrainingQueue"},
          {"metadata", {{"name", name}, {"uid", "queue-" + name}, {"resourceVersion", "1"}}},
          {"spec", spec}};
}

}  // namespace muster::cli
