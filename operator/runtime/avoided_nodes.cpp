#include "operator/runtime/avoided_nodes.h"

#include <algorithm>

#include "operator/core/words.h"

namespace muster::runtime {
namespace {

/// Of one node, for how long it is avoided: an hour at most.
constexpr int kTimesCounted = 6;
/// Nothing else forgets a node that nobody tries again.
constexpr std::chrono::hours kForgottenAfter{24};

}  // namespace

void AvoidedNodes::add(const std::set<std::string>& nodes, std::int64_t epoch, MonoTime now) {
  for (const std::string& node : nodes) {
    Avoided& avoided = nodes_[node];
    // Whoever failed is told of until another takes its place: it is the same failure.
    if (avoided.times > 0 && avoided.epoch == epoch) continue;
    avoided.times = std::min(avoided.times + 1, kTimesCounted);
    avoided.until = now + core::words::kAvoidFor * (1 << (avoided.times - 1));
    avoided.epoch = epoch;
    avoided.is_over = false;
  }
}

bool AvoidedNodes::end_those_over(MonoTime now) {
  bool any = false;
  for (auto& [node, avoided] : nodes_) {
    if (avoided.is_over || avoided.until > now) continue;
    avoided.is_over = any = true;
  }
  return any;
}

void AvoidedNodes::forget(const std::vector<Run>& runs,
                          const std::function<bool(const std::string&)>& is_there, MonoTime now) {
  std::erase_if(nodes_, [&](const auto& entry) {
    const auto& [node, avoided] = entry;
    if (!avoided.is_over) return false;
    const bool is_forgiven = std::any_of(runs.begin(), runs.end(), [&](const Run& run) {
      return run.node == entry.first && run.attempt >= entry.second.epoch;
    });
    return is_forgiven || now - avoided.until >= kForgottenAfter || !is_there(node);
  });
}

std::set<std::string> AvoidedNodes::at(MonoTime now) const {
  std::set<std::string> nodes;
  for (const auto& [node, avoided] : nodes_) {
    if (now < avoided.until) nodes.insert(node);
  }
  return nodes;
}

std::optional<MonoTime> AvoidedNodes::next_end() const {
  std::optional<MonoTime> next;
  for (const auto& [node, avoided] : nodes_) {
    if (!avoided.is_over) next = std::min(next.value_or(avoided.until), avoided.until);
  }
  return next;
}

}  // namespace muster::runtime
