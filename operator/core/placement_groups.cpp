#include "operator/core/placement_groups.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "operator/core/placement_fill.h"
#include "operator/core/placement_words.h"
#include "operator/core/slot_groups.h"

namespace muster::core {
namespace {

constexpr std::size_t kMostDomainsTried = 32;
constexpr std::size_t kMostNodesTried = 8;  ///< in each, of PlacementWish::first
constexpr double kSameCost = 1e-9;

/// What holds pods: a domain or a node, by its number.
struct Holder {
  int number = 0;
  int pods = 0;
  double busy = 0;
};

/// Of these the fewest that hold so many, and how many each: `first` before all others, where it is
/// one of them, then the roomiest; the tightest of those that hold what is left.
std::vector<Holder> fewest_holders(std::vector<Holder> all, int pods, int first) {
  std::sort(all.begin(), all.end(), [&](const Holder& a, const Holder& b) {
    return std::tuple(a.number != first, -a.pods, a.busy, a.number) <
           std::tuple(b.number != first, -b.pods, b.busy, b.number);
  });
  std::vector<Holder> chosen;
  for (std::size_t i = 0; i < all.size() && pods > 0; ++i) {
    Holder one = all[i];
    if (one.pods >= pods && one.number != first) {
      // Of those with as little room the first is the least busy.
      for (std::size_t j = i + 1; j < all.size() && all[j].pods >= pods; ++j) {
        if (all[j].pods < one.pods) one = all[j];
      }
    }
    one.pods = std::min(one.pods, pods);
    pods -= one.pods;
    if (one.pods > 0) chosen.push_back(one);
  }
  return chosen;
}

/// A domain that holds all, and the node that one of them stands on; -1: any.
struct GroupCandidate {
  int domain = 0;
  int first = -1;
  int branches = 0;
};

struct GroupFilling : Filling {
  int leaves = 0;
  Slowdown slowdown;
};

class GroupSearch {
 public:
  /// Keeps all groups of the wish; what is given outlives it.
  GroupSearch(const Topology& topology, const Room& room, const PlacementWish& wish,
              const Traffic* traffic)
      : topology_(topology),
        room_(room),
        wish_(wish),
        traffic_(traffic),
        model_(topology, wish.work, traffic == nullptr ? nullptr : &traffic->uses(), &wish.gpus),
        undivided_(topology.domains.size(), 1),
        holds_(topology.domains.size(), 0) {
    for (const GroupWish& one : wish.groups) {
      const LevelPlaces places(topology, one.level);
      for (std::size_t d = 0; d < undivided_.size(); ++d) {
        if (places.of_domain(static_cast<int>(d)) < 0) undivided_[d] = one.size;
      }
    }
    if (wish.place >= static_cast<int>(holds_.size())) return;  // one node, and nothing to add up
    const Domain& place = domain_at(wish.place);
    for (int node = place.first_node; node < place.first_node + place.nodes; ++node) {
      const int leaf = topology.leaf_of_node[as_index(node)];
      holds_[as_index(leaf)] += whole(room.on_node[as_index(node)], leaf);
    }
    for (std::size_t d = holds_.size(); d-- > 1;) {
      const int parent = topology.domains[d].parent;
      holds_[as_index(parent)] += whole(holds_[d], parent);
    }
  }

  /// Within one domain of the level; empty: anywhere. Nothing: none holds all.
  std::optional<Placement> within(const std::string& level) {
    if (wish_.place >= static_cast<int>(holds_.size())) return on_node();
    std::vector<GroupCandidate> candidates = lowest(level);
    if (candidates.empty()) return std::nullopt;
    Placement best;
    best.is_search_cut = candidates.size() > kMostDomainsTried;
    if (!wish_.first.empty()) keep_roomiest(candidates);
    for (GroupCandidate& one : candidates) {
      one.branches = domain_at(one.domain).height == 0
                         ? 1
                         : static_cast<int>(chosen(one.domain, wish_.pods, one.first).size());
    }
    std::sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
      return std::tuple(a.branches, busy(a.domain), holds_[as_index(a.domain)], a.domain, a.first) <
             std::tuple(b.branches, busy(b.domain), holds_[as_index(b.domain)], b.domain, b.first);
    });
    candidates.resize(std::min(candidates.size(), kMostDomainsTried));
    GroupFilling least;
    for (const GroupCandidate& one : candidates) {
      if (one.branches > candidates.front().branches) break;
      GroupFilling filling = filled(one);
      if (!least.hosts.empty() && !is_better(filling, least)) continue;
      best.domain = one.domain;
      best.branches = one.branches;
      least = std::move(filling);
    }
    take(best, std::move(least));
    return best;
  }

  /// So many at most in whole groups within one domain of the level.
  int most(const std::string& level) const {
    const int beyond = wish_.place - static_cast<int>(holds_.size());
    if (beyond >= 0) return room_.on_node[as_index(beyond)];
    const std::vector<bool> is_allowed = allowed(level);
    int most = 0;
    for (std::size_t d = 0; d < holds_.size(); ++d) {
      if (is_allowed[d]) most = std::max(most, holds_[d]);
    }
    return most;
  }

 private:
  const Domain& domain_at(int domain) const { return topology_.domains[as_index(domain)]; }
  double busy(int domain) const { return traffic_ == nullptr ? 0 : traffic_->busy(domain); }
  /// Of so many that have room in one child or on one node of the domain.
  int whole(int pods, int domain) const { return pods - pods % undivided_[as_index(domain)]; }

  /// Domains within one of the level, and within the wish's place.
  std::vector<bool> allowed(const std::string& level) const {
    const LevelPlaces places(topology_, level);
    const Domain& place = domain_at(wish_.place);
    std::vector<bool> allowed(holds_.size());
    for (std::size_t d = 0; d < allowed.size(); ++d) {
      const Domain& one = topology_.domains[d];
      const bool is_inside = one.first_node >= place.first_node &&
                             one.first_node + one.nodes <= place.first_node + place.nodes;
      allowed[d] = is_inside && (level.empty() || places.of_domain(static_cast<int>(d)) >= 0);
    }
    return allowed;
  }

  /// Domains that hold all, the nearest to where the others stand, and of these the lowest.
  std::vector<GroupCandidate> lowest(const std::string& level) const {
    std::vector<bool> holds_all = allowed(level);
    for (std::size_t d = 0; d < holds_.size(); ++d) {
      holds_all[d] = holds_all[d] && holds_[d] >= wish_.pods;
    }
    std::vector<GroupCandidate> found;
    std::pair<int, int> best{0, 0};
    const auto add = [&](int domain, int first) {
      const int near = wish_.near < 0 ? domain : topology_.leaf_of_node[as_index(wish_.near)];
      const int distance = domain_at(topology_.common_domain(domain, near)).height;
      const std::pair rank{wish_.near < 0 ? 0 : distance, domain_at(domain).height};
      if (!found.empty() && rank > best) return;
      if (found.empty() || rank < best) found.clear();
      best = rank;
      found.push_back({domain, first, 0});
    };
    if (wish_.first.empty()) {
      for (std::size_t d = 0; d < holds_.size(); ++d) {
        if (holds_all[d]) add(static_cast<int>(d), -1);
      }
    }
    for (std::size_t node = 0; node < wish_.first.size(); ++node) {
      if (!wish_.first[node]) continue;
      int at = topology_.leaf_of_node[node];
      bool holds_any = whole(room_.on_node[node], at) > 0;
      while (at >= 0 && holds_any && !holds_all[as_index(at)]) {
        const int parent = domain_at(at).parent;
        holds_any = parent >= 0 && whole(holds_[as_index(at)], parent) > 0;
        at = parent;
      }
      if (at >= 0 && holds_any) add(at, static_cast<int>(node));
    }
    return found;
  }

  /// The child of a domain, or the node of a leaf, that a node is in; -1: it is not in the domain.
  int towards(int domain, int node) const {
    const Domain& one = domain_at(domain);
    if (node < one.first_node || node >= one.first_node + one.nodes) return -1;
    if (one.height == 0) return node;
    int at = topology_.leaf_of_node[as_index(node)];
    while (domain_at(at).parent != domain) at = domain_at(at).parent;
    return at;
  }

  /// In each domain those whose node has most room around it: of no others its branches are fewer.
  void keep_roomiest(std::vector<GroupCandidate>& candidates) const {
    const auto rank = [&](const GroupCandidate& one) {
      const int below = towards(one.domain, one.first);
      const bool is_leaf = domain_at(one.domain).height == 0;
      const int held = is_leaf ? room_.on_node[as_index(below)] : holds_[as_index(below)];
      return std::tuple(one.domain, -held, one.first);
    };
    std::sort(candidates.begin(), candidates.end(),
              [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    std::size_t of_domain = 0;
    int domain = -1;
    std::erase_if(candidates, [&](const GroupCandidate& one) {
      if (std::exchange(domain, one.domain) != one.domain) of_domain = 0;
      return of_domain++ >= kMostNodesTried;
    });
  }

  /// Where below the domain they go.
  std::vector<Holder> chosen(int domain, int pods, int first) const {
    const Domain& one = domain_at(domain);
    const bool is_leaf = one.height == 0;
    const int begin = is_leaf ? one.first_node : one.first_child;
    const int near = first < 0 ? towards(domain, wish_.near) : -1;
    std::vector<Holder> all;
    for (int i = begin; i < begin + (is_leaf ? one.nodes : one.children); ++i) {
      const int held = is_leaf ? room_.on_node[as_index(i)] : holds_[as_index(i)];
      const int here = whole(held, domain);
      if (here == 0) continue;
      if (i == near && here >= pods) return {{i, pods, 0}};
      const double used = traffic_ == nullptr ? 0 : is_leaf ? traffic_->busy_card(i) : busy(i);
      all.push_back({i, here, used});
    }
    return fewest_holders(std::move(all), pods, towards(domain, first));
  }

  void fill(int domain, int pods, int first, GroupFilling& filling) const {
    const bool is_leaf = domain_at(domain).height == 0;
    filling.leaves += is_leaf ? 1 : 0;
    const int below = towards(domain, first);
    for (const Holder& one : chosen(domain, pods, first)) {
      if (is_leaf) {
        filling.hosts.push_back({one.number, one.pods});
      } else {
        fill(one.number, one.pods, one.number == below ? first : -1, filling);
      }
    }
  }

  GroupFilling filled(const GroupCandidate& one) const {
    GroupFilling filling;
    fill(one.domain, wish_.pods, one.first, filling);
    std::sort(filling.hosts.begin(), filling.hosts.end(),
              [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
    judge_time(filling);
    return filling;
  }

  void judge_time(GroupFilling& filling) const {
    filling.time = model_.predict(filling.hosts);
    filling.slowdown = judge_cost(filling, model_, wish_, traffic_);
  }

  bool is_better(const GroupFilling& one, const GroupFilling& than) const {
    if (one.leaves != than.leaves) return one.leaves < than.leaves;
    const bool is_same =
        std::abs(one.cost - than.cost) <= kSameCost * std::max(one.cost, than.cost);
    return is_same ? one.hosts.size() < than.hosts.size() : one.cost < than.cost;
  }

  std::optional<Placement> on_node() const {
    const int node = wish_.place - static_cast<int>(holds_.size());
    const bool is_first = wish_.first.empty() || wish_.first[as_index(node)];
    if (room_.on_node[as_index(node)] < wish_.pods || !is_first) return std::nullopt;
    GroupFilling filling;
    filling.hosts = {{node, wish_.pods}};
    filling.leaves = 1;
    judge_time(filling);
    Placement placement;
    placement.domain = topology_.leaf_of_node[as_index(node)];
    placement.branches = 1;
    take(placement, std::move(filling));
    return placement;
  }

  void take(Placement& placement, GroupFilling filling) const {
    placement.hosts = std::move(filling.hosts);
    placement.leaves = filling.leaves;
    placement.time = filling.time;
    placement.slowdown = filling.slowdown;
    const StepModel alone(topology_, wish_.work, nullptr, &wish_.gpus);
    placement.undisturbed_seconds = alone.predict(placement.hosts).exchange_seconds;
  }

  const Topology& topology_;
  const Room& room_;
  const PlacementWish& wish_;
  const Traffic* traffic_;
  StepModel model_;
  /// By domain, pods that none of its children, or nodes, may have a part of: the size of the
  /// largest groups whose places are within them.
  std::vector<int> undivided_;
  std::vector<int> holds_;  ///< by domain, pods in whole groups
};

/// As place_gang without groups; all of them are kept on one host.
PlacementVerdict place_ungrouped(const Topology& topology, const Room& room, PlacementWish wish,
                                 const Traffic* traffic) {
  const bool is_on_host = names_host(wish.required);
  const std::size_t groups = std::exchange(wish.groups, {}).size();
  PlacementVerdict verdict = place_gang(topology, room, wish, traffic);
  if (verdict.placement) verdict.placement->keeps_groups.assign(groups, is_on_host);
  return verdict;
}

bool takes_first(const PlacementWish& wish, const Placement& placement) {
  return wish.first.empty() ||
         std::any_of(placement.hosts.begin(), placement.hosts.end(),
                     [&](const HostShare& host) { return wish.first[as_index(host.node)]; });
}

/// Groups that can be kept at all: their level is known, and the gang is made of whole ones.
std::vector<bool> usable_groups(const Topology& topology, const PlacementWish& wish) {
  std::vector<bool> usable;
  int within = 1;
  for (const GroupWish& one : wish.groups) {
    const bool is_whole = one.size >= 1 && wish.pods % one.size == 0 && one.size % within == 0;
    usable.push_back(is_whole && topology.knows(one.level));
    if (usable.back()) within = one.size;
  }
  return usable;
}

/// With these groups alone, all of them kept; the gang's preferred level as far as there is room.
PlacementVerdict place_keeping(const Topology& topology, const Room& room, PlacementWish wish,
                               const Traffic* traffic, const std::vector<bool>& keeps) {
  const std::vector<GroupWish> all = std::exchange(wish.groups, {});
  for (std::size_t i = 0; i < keeps.size(); ++i) {
    if (keeps[i]) wish.groups.push_back(all[i]);
  }
  GroupSearch search(topology, room, wish, traffic);
  const bool prefers = !topology.levels_named(wish.preferred).empty();
  std::optional<Placement> placement;
  if (prefers) placement = search.within(wish.preferred);
  const bool is_wish_kept = placement || wish.preferred.empty();
  if (!placement) placement = search.within(wish.required);
  if (!placement) {
    return {std::nullopt, why_not_in_groups(topology, room, wish, search.most(wish.required))};
  }
  const bool is_on_host = names_host(wish.preferred) && placement->hosts.size() == 1;
  placement->is_wish_kept = is_wish_kept || is_on_host;
  placement->keeps_groups = keeps;
  placement->why = why_here(topology, room, wish, *placement);
  if (traffic != nullptr) placement->why += why_beside(topology, wish, *traffic, *placement);
  return {std::move(placement), ""};
}

/// Empty: all levels that are required are known.
std::string why_levels_unknown(const Topology& topology, const PlacementWish& wish) {
  if (!wish.required.empty() && !topology.knows(wish.required)) {
    return why_unknown_level(topology, "spec.topology.required", wish.required);
  }
  for (const GroupWish& one : wish.groups) {
    if (!one.is_required || topology.knows(one.level)) continue;
    return why_unknown_level(topology, one.field, one.level);
  }
  return "";
}

}  // namespace

PlacementVerdict place_groups(const Topology& topology, const Room& room, const PlacementWish& wish,
                              const Traffic* traffic) {
  if (std::string why = why_levels_unknown(topology, wish); !why.empty())
    return {std::nullopt, why};
  if (names_host(wish.required)) return place_ungrouped(topology, room, wish, traffic);
  if (names_host(wish.preferred)) {
    PlacementWish on_host = wish;
    on_host.required = std::exchange(on_host.preferred, "");
    PlacementVerdict verdict = place_ungrouped(topology, room, on_host, traffic);
    if (verdict.placement && takes_first(wish, *verdict.placement)) return verdict;
  }
  const std::vector<bool> usable = usable_groups(topology, wish);
  std::vector<std::size_t> optional;  // the largest first: it is given up first
  for (std::size_t i = wish.groups.size(); i-- > 0;) {
    if (usable[i] && !wish.groups[i].is_required) optional.push_back(i);
  }
  PlacementVerdict verdict;
  for (std::size_t without = 0; without < (std::size_t{1} << optional.size()); ++without) {
    std::vector<bool> keeps = usable;
    for (std::size_t i = 0; i < optional.size(); ++i) {
      if ((without >> i & 1) != 0) keeps[optional[i]] = false;
    }
    const bool keeps_any = std::find(keeps.begin(), keeps.end(), true) != keeps.end();
    if (!keeps_any && !wish.groups.empty()) {
      return place_ungrouped(topology, room, wish, traffic);
    }
    verdict = place_keeping(topology, room, wish, traffic, keeps);
    if (verdict.placement) break;
  }
  return verdict;
}

}  // namespace muster::core
