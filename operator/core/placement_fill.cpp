#include "operator/core/placement_fill.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace muster::core {
namespace {

/// The most x up to n/2 with x(n-x) <= limit; n when every x is allowed.
int most_going_out(int n, double limit) {
  const double half = static_cast<double>(n / 2) * (n - n / 2);
  if (limit >= half) return n;
  const double root = std::sqrt(std::max(0.0, static_cast<double>(n) * n - 4 * limit));
  int x = static_cast<int>((n - root) / 2);
  const auto out = [&](int count) { return static_cast<double>(count) * (n - count); };
  while (x > 0 && out(x) > limit) --x;
  while (x + 1 <= n / 2 && out(x + 1) <= limit) ++x;
  return x;
}

}  // namespace

int Filler::host_cap(const FillProblem& problem, double bound) const {
  const double per_pair = model_.work().gradient_bytes / problem.pods;
  return most_going_out(problem.pods, bound * model_.host_rate(problem.domain) / per_pair);
}

int Filler::local_cap(const FillProblem& problem, double bound) const {
  const double per_pair = model_.work().gradient_bytes / problem.pods;
  const double limit = bound * model_.topology().host.local_bytes_per_second / per_pair;
  return 1 + static_cast<int>(std::min<double>(limit * (1 + 1e-12), problem.pods - 1));
}

int Filler::allowed_on(int node, int big_node) const {
  const int fit = std::min(room_.on_node[as_index(node)], local_cap_);
  return node == big_node ? fit : std::min(fit, host_cap_);
}

int Filler::leaf_cap(const FillProblem& problem, double bound, int leaf,
                     const BigPlace& big) const {
  const LeafRoom& one = problem.leaves[as_index(leaf)];
  int cap = problem.pods;
  if (one.uplink > 0 && leaf != big.leaf) {
    const double per_pair = model_.work().gradient_bytes / problem.pods;
    cap = most_going_out(problem.pods, bound * one.uplink / per_pair);
  }
  if (cap == 0) return 0;
  int pods = 0;
  for (int node = one.first_node; node < one.first_node + one.nodes && pods < cap; ++node) {
    pods += allowed_on(node, big.node);
  }
  return std::min(pods, cap);
}

/// Fills picks_ with the leaves that the bound allows most, spare_ with the others.
bool Filler::choose_leaves(const FillProblem& problem, double bound, const BigPlace& big) {
  picks_.clear();
  spare_.clear();
  for (std::size_t i = 0; i < problem.leaves.size(); ++i) {
    const int leaf = static_cast<int>(i);
    const int pods = leaf_cap(problem, bound, leaf, big);
    if (pods > 0) picks_.push_back({leaf, pods});
  }
  const auto less_room = [&](const Pick& a, const Pick& b) {
    const int left = problem.leaves[as_index(a.leaf)].room,
              right = problem.leaves[as_index(b.leaf)].room;
    return left != right ? left < right : a.leaf < b.leaf;
  };
  const auto comes_first = [&](const Pick& a, const Pick& b) {
    if ((a.leaf == big.leaf) != (b.leaf == big.leaf)) return a.leaf == big.leaf;
    return a.pods != b.pods ? a.pods > b.pods : less_room(a, b);
  };
  std::sort(picks_.begin(), picks_.end(), comes_first);
  // A branch's uplink bounds its leaves together; what is left for each falls along its own order,
  // so that taking the largest of all is still right.
  const double per_pair = model_.work().gradient_bytes / problem.pods;
  std::vector<int> left;
  for (std::size_t b = 0; b < problem.branches.size(); ++b) {
    const bool is_bound = problem.branches[b] > 0 && static_cast<int>(b) != big.branch;
    const int most = is_bound ? most_going_out(problem.pods, bound * problem.branches[b] / per_pair)
                              : problem.pods;
    left.push_back(most == problem.pods ? std::numeric_limits<int>::max() : most);
  }
  bool is_cut = false;
  for (Pick& pick : picks_) {
    int& branch = left[as_index(problem.leaves[as_index(pick.leaf)].branch)];
    is_cut = is_cut || branch < pick.pods;
    pick.pods = std::min(pick.pods, branch);
    branch -= pick.pods;
  }
  if (is_cut) std::sort(picks_.begin(), picks_.end(), comes_first);
  const auto wanted = std::min(picks_.size(), as_index(problem.leaves_wanted));
  spare_.assign(picks_.begin() + static_cast<std::ptrdiff_t>(wanted), picks_.end());
  picks_.resize(wanted);
  std::int64_t pods = 0;
  for (const Pick& pick : picks_) pods += pick.pods;
  return pods >= problem.pods;
}

/// The last leaf takes what the others leave, so it may be one that leaves less room over.
void Filler::tighten_last(const FillProblem& problem) {
  int needed = problem.pods;
  for (std::size_t i = 0; i + 1 < picks_.size(); ++i) needed -= picks_[i].pods;
  Pick& last = picks_.back();
  const int branch = problem.leaves[as_index(last.leaf)].branch;
  for (const Pick& one : spare_) {
    const LeafRoom& leaf = problem.leaves[as_index(one.leaf)];
    const bool is_beside = problem.branches[as_index(branch)] == 0
                               ? problem.branches[as_index(leaf.branch)] == 0
                               : leaf.branch == branch;
    if (!is_beside || one.pods < needed) continue;
    if (leaf.room < problem.leaves[as_index(last.leaf)].room) last = one;
  }
}

void Filler::fill_leaf(const LeafRoom& leaf, int pods, int big_node, std::vector<HostShare>& out) {
  order_.clear();
  for (int node = leaf.first_node; node < leaf.first_node + leaf.nodes; ++node) {
    if (const int allowed = allowed_on(node, big_node); allowed > 0) {
      order_.push_back({node, allowed});
    }
  }
  std::sort(order_.begin(), order_.end(), [&](const HostShare& a, const HostShare& b) {
    if ((a.node == big_node) != (b.node == big_node)) return a.node == big_node;
    if (a.pods != b.pods) return a.pods > b.pods;
    const int left = room_.on_node[as_index(a.node)], right = room_.on_node[as_index(b.node)];
    return left != right ? left < right : a.node < b.node;
  });
  for (std::size_t i = 0; i < order_.size() && pods > 0; ++i) {
    HostShare share = order_[i];
    if (share.pods > pods) {
      // The rest goes where it leaves least over.
      for (std::size_t j = i + 1; j < order_.size() && order_[j].pods >= pods; ++j) {
        if (room_.on_node[as_index(order_[j].node)] < room_.on_node[as_index(share.node)])
          share = order_[j];
      }
      share.pods = pods;
    }
    pods -= share.pods;
    out.push_back(share);
  }
}

std::optional<Filling> Filler::fill(const FillProblem& problem, double bound_seconds,
                                    const BigPlace& big) {
  host_cap_ = host_cap(problem, bound_seconds);
  local_cap_ = local_cap(problem, bound_seconds);
  if (!choose_leaves(problem, bound_seconds, big)) return std::nullopt;
  tighten_last(problem);
  Filling filling;
  int pods = problem.pods;
  for (const Pick& pick : picks_) {
    const LeafRoom& leaf = problem.leaves[as_index(pick.leaf)];
    const int share = std::min(pick.pods, pods);
    if (share == 0) continue;
    fill_leaf(leaf, share, big.node, filling.hosts);
    filling.room_left += leaf.room - share;
    pods -= share;
  }
  std::sort(filling.hosts.begin(), filling.hosts.end(),
            [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  filling.time = model_.predict(filling.hosts);
  return filling;
}

}  // namespace muster::core
