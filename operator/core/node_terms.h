// Whether a node is among those that terms select, and which one takes nobody whatever is
// tolerated.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/node_term.h"
#include "operator/api/pod.h"

namespace muster::core {

/// The value of a node's label; nullptr: it has none of this name.
using FindLabel = std::function<const std::string*(const std::string& label)>;
/// That of `labels`, which outlive it.
FindLabel label_in(const std::map<std::string, std::string>& labels);

/// The key of a taint that nothing tolerates: of a node whose newest version could not be read.
inline constexpr std::string_view kUnreadTaint = "muster.dev/unread";

/// Whether one of the terms selects the node of that name and those labels. A term without
/// requirements selects none.
bool selects(const std::vector<api::NodeTerm>& terms, const std::string& name,
             const FindLabel& label);
bool selects(const std::vector<api::NodeTerm>& terms, const api::Node& node);

}  // namespace muster::core
