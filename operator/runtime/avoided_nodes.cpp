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

bool AvoidedNodes::add(const std::map<std::string, int>& failed, MonoTime now) {
  bool is_news = false;
  for (const auto& [node, attempt] : failed) {
    const auto [entry, is_new] = nodes_.try_emplace(node);
    Avoided& avoided = entry->second;
    // Whoever failed is told of until another takes its place: it is the same failure.
    if (!is_new && attempt <= avoided.attempt) continue;
    avoided.times = std::min(avoided.times + 1, kTimesCounted);
    avoided.until = now + core::words::kAvoidFor * (1 << (avoided.times - 1));
    avoided.attempt = attempt;
    avoided.is_over = false;
    is_news = true;
  }
  return is_news;
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
    const Avoided& avoided = entry.second;
    if (!avoided.is_over) return false;
    return now - avoided.until >= kForgottenAfter || !is_there(entry.first);
  });
  // Who failed there stays known: it may still be told.
  for (const Run& run : runs) {
    const auto found = nodes_.find(run.node);
    if (found == nodes_.end() || !found->second.is_over) continue;
    if (run.attempt > found->second.attempt) found->second.times = 0;
  }
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
