#include "operator/core/topology.h"

#include <algorithm>
#include <deque>
#include <set>

namespace muster::core {
namespace {

Status check_input(const TopologyInput& input) {
  if (input.levels.size() > kMaxTopologyLevels * 8) {
    return Error(ErrorCode::kTooLarge, "topology: has " + std::to_string(input.levels.size()) +
                                           " levels, more than can be told apart");
  }
  if (input.nodes.size() > kMaxTopologyNodes) {
    return Error(ErrorCode::kTooLarge, "topology: has " + std::to_string(input.nodes.size()) +
                                           " nodes, at most " + std::to_string(kMaxTopologyNodes) +
                                           " are read");
  }
  for (const NodePath& path : input.nodes) {
    int above = -1;
    for (const PathStep& step : path.steps) {
      const bool is_known = step.level >= 0 && step.level < static_cast<int>(input.levels.size());
      if (!is_known || step.level <= above) {
        return Error(ErrorCode::kInvalid,
                     "topology: node " + path.node + " stands in levels that do not descend");
      }
      above = step.level;
    }
    if (path.steps.size() > kMaxTopologyLevels) {
      return Error(ErrorCode::kTooLarge, "topology: node " + path.node + " stands in " +
                                             std::to_string(path.steps.size()) +
                                             " levels, at most " +
                                             std::to_string(kMaxTopologyLevels) + " are read");
    }
  }
  return {};
}

/// Sorted paths that share their first `depth` steps, and the domain these lead to.
struct Range {
  std::size_t begin = 0, end = 0;
  int domain = 0;
};

class Builder {
 public:
  Builder(const std::vector<NodePath>& paths, Topology& out) : paths_(paths), out_(out) {}

  void run() {
    out_.domains.emplace_back().nodes = static_cast<int>(paths_.size());
    std::deque<Range> queue{{0, paths_.size(), 0}};
    while (!queue.empty()) {
      const Range range = queue.front();
      queue.pop_front();
      split(range, queue);
    }
    for (std::size_t i = out_.domains.size(); i-- > 1;) {
      Domain& parent = out_.domains[as_index(out_.domains[i].parent)];
      parent.height = std::max(parent.height, out_.domains[i].height + 1);
    }
  }

 private:
  int add(const Range& range, int parent, int level, const std::string& name) {
    const int index = static_cast<int>(out_.domains.size());
    Domain& above = out_.domains[as_index(parent)];
    if (above.children++ == 0) above.first_child = index;
    Domain made;
    made.parent = parent;
    made.level = level;
    made.depth = above.depth + 1;
    made.first_node = static_cast<int>(range.begin);
    made.nodes = static_cast<int>(range.end - range.begin);
    made.name = name;
    out_.domains.push_back(std::move(made));
    return index;
  }

  void settle(std::size_t begin, std::size_t end, int domain) {
    for (std::size_t i = begin; i < end; ++i) out_.leaf_of_node[i] = domain;
  }

  void split(const Range& range, std::deque<Range>& queue) {
    const Domain& domain = out_.domains[as_index(range.domain)];
    const auto depth = static_cast<std::size_t>(domain.depth);
    std::size_t deeper = range.begin;
    while (deeper < range.end && paths_[deeper].steps.size() == depth) ++deeper;
    // Nodes that say no more than this stand together only if it is the finest thing that anyone
    // here says, and a thing of the network.
    const bool is_area = domain.level < 0 || out_.levels[as_index(domain.level)].is_area;
    if (deeper == range.end && !is_area) return settle(range.begin, range.end, range.domain);
    for (std::size_t i = range.begin; i < deeper; ++i) {
      settle(i, i + 1, add({i, i + 1, 0}, range.domain, -1, paths_[i].node));
    }
    for (std::size_t i = deeper; i < range.end;) {
      const PathStep& step = paths_[i].steps[depth];
      std::size_t end = i + 1;
      while (end < range.end && paths_[end].steps[depth] == step) ++end;
      const int child = add({i, end, 0}, range.domain, step.level, step.value);
      queue.push_back({i, end, child});
      i = end;
    }
  }

  const std::vector<NodePath>& paths_;
  Topology& out_;
};

bool is_any_of(const std::string& name, const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

}  // namespace

std::string confidence_text(Confidence confidence) {
  switch (confidence) {
    case Confidence::kLow:
      return "low";
    case Confidence::kMedium:
      return "medium";
    case Confidence::kHigh:
      return "high";
  }
  return "low";
}

std::string Topology::path_of(int domain) const {
  const auto name_of = [&](int at) -> const std::string& { return domains[as_index(at)].name; };
  const auto above = [&](int at) { return domains[as_index(at)].parent; };
  while (domain > 0 && name_of(domain).empty()) domain = above(domain);
  if (domain <= 0) return "cluster";
  std::size_t bytes = 0;
  for (int at = domain; at > 0; at = above(at)) bytes += name_of(at).size() + 1;
  std::string path(bytes - 1, '/');
  for (int at = domain; at > 0; at = above(at)) {
    bytes -= name_of(at).size() + 1;
    path.replace(bytes, name_of(at).size(), name_of(at));
  }
  return path;
}

std::vector<int> Topology::levels_named(const std::string& name) const {
  std::vector<int> found;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i].name == name || levels[i].key == name) found.push_back(static_cast<int>(i));
  }
  // An alias counts beside names too: in a mixed cluster each pool has a word of its own.
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const bool is_known = levels[i].name == name || levels[i].key == name;
    if (!is_known && is_any_of(name, levels[i].aliases)) found.push_back(static_cast<int>(i));
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool Topology::knows(const std::string& name) const {
  return names_host(name) || !levels_named(name).empty();
}

std::string Topology::level_names() const {
  std::string text;
  std::set<std::string> seen;
  for (const TopologyLevel& level : levels) {
    if (seen.insert(level.name).second) text += level.name + ", ";
  }
  return text + "host";
}

int Topology::common_domain(int a, int b) const {
  while (a != b) {
    int& deeper = domains[as_index(a)].depth > domains[as_index(b)].depth ? a : b;
    deeper = domains[as_index(deeper)].parent;
  }
  return a;
}

Result<Topology> build_topology(TopologyInput input) {
  MUSTER_RETURN_IF_ERROR(check_input(input));
  std::sort(input.nodes.begin(), input.nodes.end(), [](const NodePath& a, const NodePath& b) {
    return a.steps != b.steps ? a.steps < b.steps : a.node < b.node;
  });
  Topology topology;
  topology.levels = std::move(input.levels);
  topology.host = input.host;
  topology.confidence = input.confidence;
  topology.source = std::move(input.source);
  topology.notes = std::move(input.notes);
  topology.leaf_of_node.resize(input.nodes.size());
  std::set<std::string_view> names;
  for (const NodePath& path : input.nodes) {
    if (!names.insert(path.node).second) {
      return Error(ErrorCode::kInvalid, "topology: node " + path.node + " is there twice");
    }
    topology.nodes.push_back(path.node);
  }
  Builder(input.nodes, topology).run();
  return topology;
}

Topology lone_nodes(const std::set<std::string>& names) {
  std::vector<NodePath> paths;
  for (const std::string& name : names) paths.push_back({name, {}});
  Topology topology;
  topology.leaf_of_node.resize(paths.size());
  topology.nodes.assign(names.begin(), names.end());
  Builder(paths, topology).run();
  return topology;
}

}  // namespace muster::core
