// A pod as its node sees it, and the statuses a node writes. Pure.
#pragma once

#include <string>

#include "common/clock.h"
#include "common/json.h"
#include "operator/api/object_meta.h"

namespace muster::embedded {

struct PodView {
  std::string namespace_name, name, uid;
  std::string node_name;      ///< bound to; empty = not yet
  std::string required_node;  ///< of the affinity on metadata.name; empty = any
  std::string phase;          ///< "Pending" when the status has none
  bool is_deleting = false;
  seconds grace{30};

  api::ObjectKey key() const { return {namespace_name, name}; }
  /// Bound to this node, or not bound and free to come here (this node is the only one).
  bool concerns(const std::string& node) const;
};

/// Reads what is there; what is missing or of another type is empty.
PodView view_of_pod(const Json& pod);

struct ContainerEnd {
  int exit_code = 0;
  int signal = 0;
  std::string message;
};

/// Merge patches of pods/status, each with the uid as precondition. `now` is RFC 3339.
Json status_running(const PodView& pod, const std::string& now);
Json status_ended(const PodView& pod, const ContainerEnd& end, const std::string& now);
/// The program could not be started: Failed, exit code 128, reason StartError.
Json status_not_started(const PodView& pod, const std::string& sentence, const std::string& now);

}  // namespace muster::embedded
