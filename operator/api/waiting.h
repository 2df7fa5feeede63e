// What the API server says of a container that has not started.
#pragma once

#include <string_view>

namespace muster::api {

/// Whether the reason for which a container waits says more than that its pod is new.
inline bool says_why(std::string_view waiting) {
  return !waiting.empty() && waiting != "ContainerCreating" && waiting != "PodInitializing";
}

}  // namespace muster::api
