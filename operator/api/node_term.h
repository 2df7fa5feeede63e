// Which nodes are meant: by their labels, or by name.
#pragma once

#include <compare>
#include <string>
#include <vector>

namespace muster::api {

/// One requirement of a node selector term.
struct NodeRequirement {
  std::string key;
  std::string op;  ///< In, NotIn, Exists, DoesNotExist, Gt, Lt
  std::vector<std::string> values;
  auto operator<=>(const NodeRequirement&) const = default;
};

/// All requirements hold; of a node's fields there is metadata.name alone.
struct NodeTerm {
  std::vector<NodeRequirement> labels, fields;
  auto operator<=>(const NodeTerm&) const = default;
};

}  // namespace muster::api
