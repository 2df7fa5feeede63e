#include "operator/core/placement_fill.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace muster::core {
namespace {

constexpr double kNoBound = std::numeric_limits<double>::max();

double out_of(int x, int n) { return static_cast<double>(x) * (n - x); }

/// The most x up to n/2 with x(n-x) <= limit; n when every x is allowed.
int most_going_out(int n, double limit) {
  limit = std::max(0.0, limit);
  if (limit >= out_of(n / 2, n)) return n;
  const double root = std::sqrt(std::max(0.0, static_cast<double>(n) * n - 4 * limit));
  int x = static_cast<int>((n - root) / 2);
  while (x > 0 && out_of(x, n) > limit) --x;
  while (x + 1 <= n / 2 && out_of(x + 1, n) <= limit) ++x;
  return x;
}

/// The same, and no more than `most`: on most hosts all of these, which takes no root to see.
int most_going_out(int n, double limit, int most) {
  if (most <= n / 2 && out_of(most, n) <= limit) return most;
  return std::min(most, most_going_out(n, limit));
}

}  // namespace

Slowdown judge_cost(Filling& filling, const StepModel& model, const PlacementWish& wish,
                    const Traffic* traffic) {
  filling.cost = filling.time.step_seconds;
  if (traffic == nullptr) return {};
  const Slowdown slowdown = traffic->slowdown(model.crossings(filling.hosts),
                                              wish.work.gradient_bytes / wish.pods, filling.time);
  filling.cost *= 1 + slowdown.workers / wish.pods;
  return slowdown;
}

/// Of so many pods; link -1: a card that nobody else uses.
int Filler::host_cap(const FillProblem& problem, int link, int pods) const {
  const double flows = model_.flows_within(bound_, problem.pods, link, card_rate_);
  return most_going_out(problem.pods, flows, pods);
}

int Filler::local_cap(const FillProblem& problem, double bound) const {
  const double per_pair = model_.work().gradient_bytes / problem.pods;
  const double limit = bound * model_.topology().host.local_bytes_per_second / per_pair;
  return 1 + static_cast<int>(std::min<double>(limit * (1 + 1e-12), problem.pods - 1));
}

bool Filler::minds_switches() const { return model_.has_switches() && bound_ < kNoBound; }

int Filler::allowed_on(const FillProblem& problem, int node, int big_node) const {
  int fit = std::min(room_.on_node[as_index(node)], local_cap_);
  if (fit <= 0 || node == big_node) return fit;
  if (minds_switches()) {
    fit = std::min(fit, problem.pods);
    while (fit > 0 && !model_.switches_allow({node, fit}, problem.pods, bound_)) --fit;
  }
  const int card = first_card_ < 0 ? -1 : first_card_ + node;
  const bool is_shared = traffic_ != nullptr && traffic_->is_used(card);
  return is_shared ? host_cap(problem, card, fit) : std::min(fit, host_cap_);
}

int Filler::leaf_cap(const FillProblem& problem, double bound, int leaf,
                     const BigPlace& big) const {
  const LeafRoom& one = problem.leaves[as_index(leaf)];
  int cap = problem.pods;
  if (one.uplink > 0 && leaf != big.leaf) {
    cap = most_going_out(problem.pods,
                         model_.flows_within(bound, problem.pods, one.domain, one.uplink));
  }
  if (cap == 0) return 0;
  // Mostly none of its nodes is held back, and all of its room counts.
  if (!minds_switches() && !one.is_shared && one.most <= std::min(local_cap_, host_cap_)) {
    return std::min(one.room, cap);
  }
  int pods = 0;
  for (int node = one.first_node; node < one.first_node + one.nodes && pods < cap; ++node) {
    pods += allowed_on(problem, node, big.node);
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
    if (pods > 0) picks_.push_back({leaf, pods, busy(problem.leaves[i])});
  }
  const auto less_room = [&](const Pick& a, const Pick& b) {
    const int left = problem.leaves[as_index(a.leaf)].room,
              right = problem.leaves[as_index(b.leaf)].room;
    return left != right ? left < right : a.leaf < b.leaf;
  };
  const auto comes_first = [&](const Pick& a, const Pick& b) {
    if ((a.leaf == big.leaf) != (b.leaf == big.leaf)) return a.leaf == big.leaf;
    if (a.pods != b.pods) return a.pods > b.pods;
    return a.busy != b.busy ? a.busy < b.busy : less_room(a, b);
  };
  std::sort(picks_.begin(), picks_.end(), comes_first);
  // A branch's uplink bounds its leaves together; what is left for each falls along its own order,
  // so that taking the largest of all is still right.
  std::vector<int> left;
  for (std::size_t b = 0; b < problem.branches.size(); ++b) {
    const auto& [domain, uplink] = problem.branches[b];
    const bool is_bound = uplink > 0 && static_cast<int>(b) != big.branch;
    const int most =
        is_bound
            ? most_going_out(problem.pods, model_.flows_within(bound, problem.pods, domain, uplink))
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

/// Whether one leaf may stand in for another: what bounds their branches is the same.
bool Filler::is_beside(const FillProblem& problem, int leaf, int other) const {
  const int a = problem.leaves[as_index(leaf)].branch, b = problem.leaves[as_index(other)].branch;
  const bool is_bound = problem.branches[as_index(a)].uplink > 0;
  return is_bound ? a == b : problem.branches[as_index(b)].uplink == 0;
}

double Filler::busy(const LeafRoom& leaf) const {
  return traffic_ == nullptr || leaf.uplink == 0 ? 0 : traffic_->busy(leaf.domain);
}

/// Leaves that others use make way for those that they use less, as long as all pods have room:
/// what is not our narrowest link may be somebody else's.
void Filler::prefer_quiet(const FillProblem& problem) {
  if (traffic_ == nullptr || spare_.empty()) return;
  int left = -problem.pods;
  std::vector<Pick*> order;
  for (Pick& pick : picks_) {
    left += pick.pods;
    if (pick.busy > 0) order.push_back(&pick);
  }
  if (order.empty()) return;
  std::stable_sort(order.begin(), order.end(),
                   [](const Pick* a, const Pick* b) { return a->busy > b->busy; });
  std::stable_sort(spare_.begin(), spare_.end(),
                   [](const Pick& a, const Pick& b) { return a.busy < b.busy; });
  for (Pick* pick : order) {
    for (Pick& one : spare_) {
      if (one.busy >= pick->busy) break;
      if (one.pods < std::max(1, pick->pods - left)) continue;
      if (!is_beside(problem, pick->leaf, one.leaf)) continue;
      left -= pick->pods - one.pods;
      *pick = std::exchange(one, {one.leaf, 0, one.busy});
      break;
    }
  }
}

double Filler::lost_by(const LeafRoom& leaf, int pods) const {
  if (wish_.usual == nullptr) return 0;
  const double more = wish_.usual->lost((leaf.room - pods) * wish_.pod_size) -
                      wish_.usual->lost(leaf.room * wish_.pod_size);
  return more / static_cast<double>(wish_.pod_size);
}

/// The last leaf takes what the others leave, so it may be one where that breaks up less room, or
/// leaves less over.
void Filler::tighten_last(const FillProblem& problem) {
  int needed = problem.pods;
  for (std::size_t i = 0; i + 1 < picks_.size(); ++i) needed -= picks_[i].pods;
  Pick& last = picks_.back();
  const auto wasted = [&](const Pick& pick) {
    const LeafRoom& leaf = problem.leaves[as_index(pick.leaf)];
    return std::pair(lost_by(leaf, needed), leaf.room);
  };
  for (const Pick& one : spare_) {
    if (!is_beside(problem, last.leaf, one.leaf) || one.pods < needed) continue;
    if (one.busy <= last.busy && wasted(one) < wasted(last)) last = one;
  }
}

/// Where the rest of a leaf's pods need not share a PCIe switch with others: `node`, or else the
/// first of those behind `index` in the order that hold them, too; `node` again where none is.
int Filler::with_own_switch(int node, std::size_t index, int pods) const {
  if (wish_.pcie == nullptr || !wish_.pcie->must_share(node, pods)) return node;
  for (std::size_t j = index + 1; j < order_.size() && order_[j].pods >= pods; ++j) {
    if (!wish_.pcie->must_share(order_[j].node, pods)) return order_[j].node;
  }
  return node;
}

void Filler::fill_leaf(const FillProblem& problem, const LeafRoom& leaf, int pods, int big_node,
                       std::vector<HostShare>& out) {
  order_.clear();
  for (int node = leaf.first_node; node < leaf.first_node + leaf.nodes; ++node) {
    if (const int allowed = allowed_on(problem, node, big_node); allowed > 0) {
      order_.push_back({node, allowed});
    }
  }
  std::sort(order_.begin(), order_.end(), [&](const HostShare& a, const HostShare& b) {
    if ((a.node == big_node) != (b.node == big_node)) return a.node == big_node;
    if (a.pods != b.pods) return a.pods > b.pods;
    if (traffic_ != nullptr) {
      const double one = traffic_->busy_card(a.node), other = traffic_->busy_card(b.node);
      if (one != other) return one < other;
    }
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
    if (share.pods == pods) share.node = with_own_switch(share.node, i, pods);
    pods -= share.pods;
    out.push_back(share);
  }
}

std::optional<Filling> Filler::fill(const FillProblem& problem, double bound_seconds,
                                    const BigPlace& big) {
  bound_ = bound_seconds;
  first_card_ = model_.link_of(0, problem.domain);
  card_rate_ = model_.host_rate(problem.domain);
  host_cap_ = host_cap(problem, -1, problem.pods);
  local_cap_ = local_cap(problem, bound_seconds);
  if (!choose_leaves(problem, bound_seconds, big)) return std::nullopt;
  prefer_quiet(problem);
  tighten_last(problem);
  Filling filling;
  int pods = problem.pods;
  for (const Pick& pick : picks_) {
    const LeafRoom& leaf = problem.leaves[as_index(pick.leaf)];
    const int share = std::min(pick.pods, pods);
    if (share == 0) continue;
    fill_leaf(problem, leaf, share, big.node, filling.hosts);
    filling.room_left += leaf.room - share;
    filling.lost += lost_by(leaf, share);
    pods -= share;
  }
  std::sort(filling.hosts.begin(), filling.hosts.end(),
            [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  filling.time = model_.predict(filling.hosts);
  return filling;
}

}  // namespace muster::core
