#include "worker/engine/hosts.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "common/check.h"

namespace muster::engine {
namespace {

/// The nodes of one host that stand side by side, cut into complete subtrees.
void add_nodes_of_run(std::span<const HeldNode> run, std::vector<HostNode>& all) {
  std::size_t next = 0;
  for (const RankRange subtree : covers({run.front().ranks.first, run.back().ranks.last})) {
    HostNode node{subtree, {}, {}};
    // Complete subtrees lie in one another or apart, so each node is in one of the longest.
    for (; next < run.size() && run[next].ranks.last <= subtree.last; ++next) {
      node.parts.push_back(run[next]);
      node.holders.push_back(run[next].process);
    }
    std::ranges::sort(node.holders);
    node.holders.erase(std::unique(node.holders.begin(), node.holders.end()), node.holders.end());
    if (node.is_made()) {
      all.push_back(std::move(node));
      continue;
    }
    for (const HeldNode& part : node.parts) all.push_back({part.ranks, {part}, {part.process}});
  }
  MUSTER_CHECK(next == run.size());
}

/// Owners elsewhere for whom `rank` makes the node, in the bucket in which they are the most: those
/// whose turns fall together may have numbers that are so far apart.
std::size_t owners_made_for(const HostNode& node, const Hosts& hosts, int processes, int rank) {
  std::size_t most = 0;
  for (std::size_t bucket = 0; bucket < node.holders.size(); ++bucket) {
    std::size_t owners = 0;
    for (int owner = 0; owner < processes; ++owner) {
      const bool is_made = !hosts.are_together(owner, rank);
      if (is_made && node.maker(turn_of(owner, bucket)) == rank) ++owners;
    }
    most = std::max(most, owners);
  }
  return most;
}

}  // namespace

Hosts::Hosts(std::vector<int> host_of) : host_of_(std::move(host_of)) {
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < host_of_.size(); ++rank) {
    const auto [known, is_new] = numbers.emplace(host_of_[rank], static_cast<int>(numbers.size()));
    if (is_new) members_.emplace_back();
    host_of_[rank] = known->second;
    members_[static_cast<std::size_t>(known->second)].push_back(static_cast<int>(rank));
  }
}

bool Hosts::are_together(int a, int b) const {
  if (host_of_.empty()) return a == b;
  return host_of_.at(static_cast<std::size_t>(a)) == host_of_.at(static_cast<std::size_t>(b));
}

int Hosts::count(int processes) const {
  return host_of_.empty() ? processes : static_cast<int>(members_.size());
}

std::vector<int> Hosts::beside(int rank) const {
  if (host_of_.empty()) return {rank};
  return members_[static_cast<std::size_t>(host_of_.at(static_cast<std::size_t>(rank)))];
}

int Hosts::first_of(int rank, std::size_t turn) const {
  if (host_of_.empty()) return rank;
  const auto host = static_cast<std::size_t>(host_of_.at(static_cast<std::size_t>(rank)));
  return members_[host][turn % members_[host].size()];
}

std::vector<HostNode> host_nodes(const Assignment& assignment, const Hosts& hosts) {
  const std::vector<HeldNode> held = held_nodes(assignment);
  std::vector<HostNode> all;
  for (std::size_t first = 0, last = 0; first < held.size(); first = last) {
    while (last < held.size() && hosts.are_together(held[first].process, held[last].process)) {
      ++last;
    }
    add_nodes_of_run(std::span(held).subspan(first, last - first), all);
  }
  return all;
}

std::size_t chunks_received(const Assignment& assignment, const Hosts& hosts, int rank) {
  std::size_t chunks = 0;
  for (const HostNode& node : host_nodes(assignment, hosts)) {
    const auto own =
        static_cast<std::size_t>(std::ranges::count(node.parts, rank, &HeldNode::process));
    const std::size_t others = node.parts.size() - own;
    const bool is_beside = hosts.are_together(rank, node.holders[0]);
    chunks += is_beside || !node.is_made() ? others : 1;
    if (node.is_made() && own > 0) {
      chunks += owners_made_for(node, hosts, assignment.processes(), rank) * others;
    }
  }
  return chunks;
}

std::vector<double> waits_by_host(const Hosts& hosts, int rank, std::vector<double> waited) {
  if (!hosts.is_any_shared() || waited.empty()) return waited;
  for (const std::vector<int>& members : hosts.members()) {
    if (hosts.are_together(rank, members[0])) continue;
    double together = 0;
    for (const int one : members) together += waited.at(static_cast<std::size_t>(one));
    for (const int one : members) waited[static_cast<std::size_t>(one)] = together;
  }
  return waited;
}

}  // namespace muster::engine
