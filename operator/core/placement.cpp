#include "operator/core/placement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "operator/core/placement_fill.h"
#include "operator/core/placement_groups.h"
#include "operator/core/placement_polish.h"
#include "operator/core/placement_words.h"

namespace muster::core {
namespace {

constexpr std::size_t kMaxCandidates = 32;  ///< domains that are alike but for the step's time
constexpr std::size_t kMaxChoices = 128;    ///< sets of branches looked at, where they are so few
constexpr std::size_t kMaxLeavesLooked = 6'000;  ///< in all these sets together
constexpr std::size_t kSpareLeaves = 32;
constexpr std::size_t kLeavesATry = 64;
constexpr std::int64_t kMaxTableSteps = 4'000'000;
constexpr std::size_t kMostHostsPolished = 64;  ///< of more, what is tried in time is too little
constexpr std::size_t kMostPolished = 3;        ///< domains beside the best
constexpr int kHostsPolished = 10'000;          ///< in all placements that are tried then
constexpr double kSame = 1e-9;
constexpr double kFineEnough = 1e-3;
constexpr int kMaxHalvings = 16;

/// The fewest of `rooms` that hold `pods` (they are the largest), and what the largest but the last
/// of them hold.
struct Fewest {
  int count = 0;
  int without_last = 0;
};

Fewest fewest_of(std::vector<int>& rooms, int pods) {
  // Amounts are small integers, so counting them is sorting them.
  std::vector<int> having(as_index(pods) + 1, 0);
  for (int& room : rooms) {
    room = std::min(room, pods);
    ++having[as_index(room)];
  }
  Fewest fewest;
  int held = 0;
  for (int room = pods; room > 0 && held < pods; --room) {
    for (int i = 0; i < having[as_index(room)] && held < pods; ++i) {
      fewest.without_last = held;
      held += room;
      ++fewest.count;
    }
  }
  return fewest;
}

/// Of one branch: what its j fullest leaves hold, by j.
using Holds = std::vector<int>;

/// The most that `branches` of several branches hold on so many leaves in all, for every number of
/// leaves from `least` on; the answer to "which, and on how few".
class LeafTable {
 public:
  LeafTable(const std::vector<Holds>& holds, int branches, int least, int leaves)
      : holds_(holds), branches_(branches), least_(least), leaves_(leaves) {
    for (const Holds& one : holds) longest_ = std::max(longest_, static_cast<int>(one.size()) - 1);
    const std::size_t cells = as_index(branches + 1) * as_index(leaves + 1);
    most_.assign(cells, kOutOfReach);
    most_[0] = 0;
    taken_.assign(holds.size() * cells, 0);
    for (std::size_t b = 0; b < holds.size(); ++b) add(b);
  }

  /// 0 = not on so few.
  int fewest(int pods) const {
    for (int m = least_; m <= leaves_; ++m) {
      if (most_[cell(branches_, m)] >= pods) return m;
    }
    return 0;
  }

  /// Indices of the branches that hold the most on m leaves.
  std::vector<std::size_t> branches_of(int m) const {
    std::vector<std::size_t> chosen;
    int k = branches_;
    for (std::size_t b = holds_.size(); b-- > 0;) {
      const int j = taken_[b * most_.size() + cell(k, m)];
      if (j == 0) continue;
      chosen.push_back(b);
      --k;
      m -= j;
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  std::size_t cell(int k, int m) const { return as_index(k) * as_index(leaves_ + 1) + as_index(m); }

  /// Only what the answer can rest on is filled in: so many branches as the rest can still bring to
  /// all, on so many leaves as they can still bring to the least. Of as many pods with more and
  /// with fewer leaves of this branch those with fewer stay.
  void add(std::size_t b) {
    const Holds& holds = holds_[b];
    const int rest = static_cast<int>(holds_.size() - 1 - b);
    for (int k = std::min(branches_, static_cast<int>(b) + 1); k >= std::max(1, branches_ - rest);
         --k) {
      const int fewest = std::max(1, least_ - (branches_ - k) * longest_);
      const int most = std::min(leaves_, k * longest_);
      const int most_here = std::min(most, static_cast<int>(holds.size()) - 1);
      for (int j = 1; fewest <= most && j <= most_here; ++j) {
        const int first = std::max(fewest, j);
        int* taken = taken_.data() + b * most_.size() + cell(k, first);
        raise(most_.data() + cell(k, first), taken, most_.data() + cell(k - 1, first - j),
              most - first + 1, {holds[as_index(j)], j});
      }
    }
  }

  struct Added {
    int pods = 0, leaves = 0;
  };
  /// Along the numbers of leaves, where these bring more than was there. What cannot be reached
  /// stays far below 0, whatever is added to it, so that no step branches. Four at a time, as a
  /// compiler would with -O3.
  static void raise(int* best, int* taken, const int* before, int count, Added added) {
    using Four [[gnu::vector_size(16)]] = int;
    const auto load = [](const int* from) {
      Four four;
      std::memcpy(&four, from, sizeof four);
      return four;
    };
    int i = 0;
    for (; i + 4 <= count; i += 4) {
      const Four was = load(best + i), with = load(before + i) + added.pods;
      const Four is_more = with > was;
      const Four most = (is_more & with) | (~is_more & was);
      const Four leaves = (is_more & added.leaves) | (~is_more & load(taken + i));
      std::memcpy(best + i, &most, sizeof most);
      std::memcpy(taken + i, &leaves, sizeof leaves);
    }
    for (; i < count; ++i) {
      const int with = before[i] + added.pods;
      if (with <= best[i]) continue;
      best[i] = with;
      taken[i] = added.leaves;
    }
  }

  static constexpr int kOutOfReach = std::numeric_limits<int>::min() / 2;

  const std::vector<Holds>& holds_;
  int branches_, least_, leaves_;
  int longest_ = 0;  ///< leaves of a branch
  std::vector<int> most_;
  std::vector<int> taken_;
};

/// A domain that holds all, and how.
struct Candidate {
  int domain = 0;
  int branches = 0, leaves = 0;
  std::vector<int> chosen;  ///< branches, where they matter: height 2 and more
};

class Search {
 public:
  Search(const Topology& topology, const Room& room, const PlacementWish& wish,
         const Traffic* traffic)
      : topology_(topology),
        room_(room),
        wish_(wish),
        traffic_(traffic),
        model_(topology, wish.work, traffic == nullptr ? nullptr : &traffic->uses(), &wish.gpus),
        filler_(model_, room, traffic, wish),
        tries_(wish.tries) {}

  /// What is found is to be better than this, which is one of those that are searched.
  Placement start_from(const Placement& one) {
    Filling filling = filling_of(one.hosts);
    consider(filling, one.domain);
    return made({one.domain, one.branches, one.leaves, {}}).value();
  }

  /// Nothing: no domain of these levels has room. No levels: anywhere.
  std::optional<Placement> within(const std::vector<int>& levels) {
    std::vector<Candidate> candidates = lowest(levels);
    if (candidates.empty()) return std::nullopt;
    for (Candidate& one : candidates) shape(one);
    const auto rank = [&](const Candidate& one) {
      return std::tuple(one.branches, one.leaves, busy(one.domain), room_of(one.domain),
                        one.domain);
    };
    std::sort(candidates.begin(), candidates.end(),
              [&](const Candidate& a, const Candidate& b) { return rank(a) < rank(b); });
    const Candidate first = candidates.front();
    std::size_t alike = 0;
    while (alike < candidates.size() && candidates[alike].branches == first.branches &&
           candidates[alike].leaves == first.leaves) {
      ++alike;
    }
    if (alike > kMaxCandidates) is_cut_ = true;
    for (std::size_t i = 0; i < std::min(alike, kMaxCandidates); ++i) look_at(candidates[i]);
    polish_all();
    return made(first);
  }

  std::optional<Placement> on_one_host() {
    int best = -1;
    for (std::size_t i = 0; i < room_.on_node.size(); ++i) {
      if (room_.on_node[i] < wish_.pods) continue;
      if (best < 0 || room_.on_node[i] < room_.on_node[as_index(best)]) best = static_cast<int>(i);
    }
    if (best < 0) return std::nullopt;
    const int leaf = topology_.leaf_of_node[as_index(best)];
    Filling filling{{{best, wish_.pods}}, {}};
    filling.time = model_.predict(filling.hosts);
    consider(filling, leaf);
    return made({leaf, 1, 1, {}});
  }

 private:
  int room_of(int domain) const { return room_.in_domain[as_index(domain)]; }
  const Domain& domain_at(int domain) const { return topology_.domains[as_index(domain)]; }
  double busy(int domain) const { return traffic_ == nullptr ? 0 : traffic_->busy(domain); }

  std::vector<Candidate> lowest(const std::vector<int>& levels) const {
    std::vector<bool> is_allowed(topology_.domains.size(), levels.empty());
    std::vector<Candidate> found;
    int height = std::numeric_limits<int>::max();
    for (std::size_t i = 0; i < topology_.domains.size(); ++i) {
      const Domain& domain = topology_.domains[i];
      const bool is_level = std::find(levels.begin(), levels.end(), domain.level) != levels.end();
      if (domain.level >= 0 && is_level) is_allowed[i] = true;
      if (domain.parent >= 0 && is_allowed[as_index(domain.parent)]) is_allowed[i] = true;
      if (!is_allowed[i] || room_.in_domain[i] < wish_.pods || domain.height > height) continue;
      if (domain.height < height) found.clear();
      height = domain.height;
      found.push_back({static_cast<int>(i), 0, 0, {}});
    }
    return found;
  }

  /// Those with room. Found once: up to kMaxChoices sets of branches are looked at.
  const std::vector<int>& leaves_under(int domain) {
    if (leaves_.empty()) leaves_.resize(topology_.domains.size());
    std::vector<int>& leaves = leaves_[as_index(domain)];
    if (!leaves.empty()) return leaves;
    const Domain& one = domain_at(domain);
    for (int node = one.first_node; node < one.first_node + one.nodes;) {
      const int leaf = topology_.leaf_of_node[as_index(node)];
      if (room_of(leaf) > 0) leaves.push_back(leaf);
      node = domain_at(leaf).first_node + domain_at(leaf).nodes;
    }
    return leaves;
  }

  Holds holds_of(int branch) {
    Holds rooms;
    for (const int leaf : leaves_under(branch)) rooms.push_back(room_of(leaf));
    std::sort(rooms.begin(), rooms.end(), std::greater<>());
    Holds holds{0};
    for (const int one : rooms) holds.push_back(std::min(holds.back() + one, kMaxPodsCounted * 2));
    return holds;
  }

  /// Branches with room, the roomiest first.
  std::vector<int> branches_of(int domain) const {
    std::vector<int> branches;
    const Domain& one = domain_at(domain);
    for (int child = one.first_child; child < one.first_child + one.children; ++child) {
      if (room_of(child) > 0) branches.push_back(child);
    }
    std::sort(branches.begin(), branches.end(), [&](int a, int b) {
      return room_of(a) != room_of(b) ? room_of(a) > room_of(b) : a < b;
    });
    return branches;
  }

  int fewest_leaves(const std::vector<int>& branches) {
    rooms_.clear();
    for (const int branch : branches) {
      for (const int leaf : leaves_under(branch)) rooms_.push_back(room_of(leaf));
    }
    return fewest_of(rooms_, wish_.pods).count;
  }

  void shape(Candidate& one) {
    const Domain& domain = domain_at(one.domain);
    one.branches = one.leaves = 1;
    if (domain.height == 0) return;
    std::vector<int> rooms(room_.in_domain.begin() + domain.first_child,
                           room_.in_domain.begin() + domain.first_child + domain.children);
    one.branches = one.leaves = fewest_of(rooms, wish_.pods).count;
    if (domain.height == 1) return;
    const std::vector<int> branches = branches_of(one.domain);
    one.chosen.assign(branches.begin(), branches.begin() + one.branches);
    one.leaves = fewest_leaves(one.chosen);
    // With any number of branches it takes no fewer.
    const int least = fewest_leaves(branches);
    if (one.leaves == least) return;
    std::vector<Holds> holds;
    std::size_t longest = 0;
    for (const int branch : branches) {
      holds.push_back(holds_of(branch));
      longest = std::max(longest, holds.back().size());
    }
    const auto steps = static_cast<std::int64_t>(branches.size()) * one.branches * one.leaves *
                       static_cast<std::int64_t>(longest);
    if (steps > kMaxTableSteps) {
      is_cut_ = true;
      return;
    }
    const LeafTable table(holds, one.branches, least, one.leaves - 1);
    const int fewer = table.fewest(wish_.pods);
    if (fewer == 0) return;
    one.leaves = fewer;
    one.chosen.clear();
    for (const std::size_t b : table.branches_of(fewer)) one.chosen.push_back(branches[b]);
  }

  // ---- The shortest step

  void look_at(const Candidate& one) {
    if (domain_at(one.domain).height < 2) return solve(problem_of(one, {}));
    solve(problem_of(one, one.chosen));
    const std::vector<int> branches = branches_of(one.domain);
    // All sets of so many branches, where these are few.
    std::vector<bool> is_in(branches.size(), false);
    std::fill_n(is_in.begin(), one.branches, true);
    const std::size_t most =
        std::min(kMaxChoices, kMaxLeavesLooked / leaves_under(one.domain).size());
    std::size_t seen = 0;
    do {
      if (++seen > most) {
        is_cut_ = true;
        return;
      }
      std::vector<int> chosen;
      int pods = 0;
      for (std::size_t b = 0; b < branches.size(); ++b) {
        if (!is_in[b]) continue;
        chosen.push_back(branches[b]);
        pods += room_of(branches[b]);
      }
      if (pods < wish_.pods || chosen == one.chosen) continue;
      if (fewest_leaves(chosen) == one.leaves) solve(problem_of(one, chosen));
    } while (tries_ > 0 && std::prev_permutation(is_in.begin(), is_in.end()));
  }

  void add_leaf(FillProblem& problem, int leaf, int branch) const {
    const Domain& one = domain_at(leaf);
    LeafRoom made{leaf,      branch,        one.first_node,
                  one.nodes, room_of(leaf), leaf == problem.domain ? 0 : model_.uplink(leaf)};
    for (int node = one.first_node; node < one.first_node + one.nodes; ++node) {
      made.most = std::max(made.most, room_.on_node[as_index(node)]);
      if (traffic_ == nullptr || made.is_shared) continue;
      made.is_shared = traffic_->is_used(model_.link_of(node, problem.domain));
    }
    problem.leaves.push_back(made);
  }

  FillProblem problem_of(const Candidate& one, const std::vector<int>& chosen) {
    FillProblem problem;
    problem.domain = one.domain;
    problem.pods = wish_.pods;
    problem.leaves_wanted = one.leaves;
    const Domain& domain = domain_at(one.domain);
    if (domain.height < 2) {
      problem.branches = {{one.domain, 0}};
      const auto leaves = domain.height == 0 ? std::vector<int>{one.domain}
                                             : useful(leaves_under(one.domain), one.leaves);
      for (const int leaf : leaves) add_leaf(problem, leaf, 0);
      return problem;
    }
    std::vector<int> all;
    std::vector<std::pair<int, int>> branch_of;
    for (const int branch : chosen) {
      const bool is_leaf = domain_at(branch).height == 0;
      const int index = static_cast<int>(problem.branches.size());
      problem.branches.push_back({branch, is_leaf ? 0 : model_.uplink(branch)});
      for (const int leaf : leaves_under(branch)) {
        all.push_back(leaf);
        branch_of.emplace_back(leaf, index);
      }
    }
    const std::vector<int> kept = useful(all, one.leaves);
    for (const auto& [leaf, branch] : branch_of) {
      if (std::binary_search(kept.begin(), kept.end(), leaf)) add_leaf(problem, leaf, branch);
    }
    return problem;
  }

  /// Leaves that can be among so many that hold all; of very many the roomiest and the tightest.
  std::vector<int> useful(std::vector<int> leaves, int wanted) {
    std::vector<int> rooms;
    for (const int leaf : leaves) rooms.push_back(room_of(leaf));
    const int needed = wish_.pods - fewest_of(rooms, wish_.pods).without_last;
    std::erase_if(leaves, [&](int leaf) { return room_of(leaf) < needed; });
    const std::size_t most = as_index(wanted) + kSpareLeaves;
    if (leaves.size() > 2 * most) {
      is_cut_ = true;
      const auto is_roomier = [&](int a, int b) {
        return std::tuple(-room_of(a), busy(a), a) < std::tuple(-room_of(b), busy(b), b);
      };
      const auto middle = leaves.begin() + static_cast<std::ptrdiff_t>(most);
      std::nth_element(leaves.begin(), middle, leaves.end(), is_roomier);
      const auto last = leaves.end() - static_cast<std::ptrdiff_t>(most);
      std::nth_element(middle, last, leaves.end(), is_roomier);
      leaves.erase(middle, last);
    }
    std::sort(leaves.begin(), leaves.end());
    return leaves;
  }

  /// No filling of `places`, each holding up to `room`, loads the links less: the fullest has its
  /// share at least, or more than half.
  double floor_of(int places, int room, double rate) const {
    const int n = wish_.pods;
    const int share = (n + places - 1) / places;
    double load = std::numeric_limits<double>::infinity();
    if (share <= n / 2) load = model_.load_seconds(share, n, rate);
    if (room > n / 2) load = std::min(load, model_.load_seconds(std::min(room, n - 1), n, rate));
    return load;
  }

  double floor_of(const FillProblem& problem) const {
    int most_on_node = 0, nodes = 0, most_in_leaf = 0;
    double fastest = 0;
    for (const LeafRoom& leaf : problem.leaves) {
      most_in_leaf = std::max(most_in_leaf, leaf.room);
      fastest = std::max(fastest, leaf.uplink);
      nodes += leaf.nodes;
      most_on_node = std::max(most_on_node, leaf.most);
    }
    if (most_on_node >= wish_.pods) return 0;
    double load = floor_of(nodes, most_on_node, model_.host_rate(problem.domain));
    if (fastest > 0) load = std::max(load, floor_of(problem.leaves_wanted, most_in_leaf, fastest));
    return load;
  }

  bool is_better(const Filling& filling, const Filling& than) const {
    const double a = filling.cost, b = than.cost;
    if (std::abs(a - b) > kSame * std::max(a, b)) return a < b;
    if (filling.hosts.size() != than.hosts.size()) return filling.hosts.size() < than.hosts.size();
    if (const int spares = compare_lost(filling, than); spares != 0) return spares < 0;
    return filling.room_left < than.room_left;
  }

  /// Below 0: it breaks up less room than the other. What is about equal is equal.
  int compare_lost(const Filling& filling, const Filling& than) const {
    const double more = filling.lost - than.lost;
    return std::abs(more) <= kSame * wish_.pods ? 0 : more < 0 ? -1 : 1;
  }

  bool is_alike(const Filling& filling) const {
    const double a = filling.cost, b = best_->cost;
    return std::abs(a - b) <= kSame * std::max(a, b) && filling.hosts.size() == best_->hosts.size();
  }

  void consider(Filling& filling, int domain) {
    if (starts_.empty() || starts_.back().domain != domain) starts_.push_back({domain, {}});
    Filling& start = starts_.back().filling;
    if (start.hosts.empty() || filling.time.step_seconds < start.time.step_seconds) start = filling;
    // What it costs others only adds to it.
    if (best_ && filling.time.step_seconds > best_->cost * (1 + kSame)) return;
    const Slowdown slowdown = judge_cost(filling, model_, wish_, traffic_);
    const bool is_one_of_alike = best_ && is_alike(filling);
    if (is_one_of_alike && compare_lost(filling, *best_) != 0) spares_room_ = true;
    if (best_ && !is_better(filling, *best_)) return;
    if (!is_one_of_alike) spares_room_ = false;
    best_ = filling;
    best_domain_ = domain;
    slowdown_ = slowdown;
  }

  Filling filling_of(const std::vector<HostShare>& hosts) const {
    Filling filling{hosts, model_.predict(hosts)};
    for (std::size_t i = 0; i < hosts.size();) {
      const int leaf = topology_.leaf_of_node[as_index(hosts[i].node)];
      int pods = 0;
      for (; i < hosts.size() && topology_.leaf_of_node[as_index(hosts[i].node)] == leaf; ++i) {
        pods += hosts[i].pods;
      }
      filling.room_left += room_of(leaf) - pods;
      filling.lost += filler_.lost_by({leaf, 0, 0, 0, room_of(leaf), 0}, pods);
    }
    return filling;
  }

  /// What is best gets better, unless it is known that nothing can be; and what is nearly as good
  /// elsewhere, where that may become the best.
  void polish_all() {
    if (!best_ || best_->cost <= least_ * (1 + kSame)) return;
    if (best_->hosts.size() > kMostHostsPolished) return;
    hosts_left_ = kHostsPolished;
    const int domain = best_domain_;
    polish(*best_, domain);
    std::vector<Start> starts = std::exchange(starts_, {});
    std::erase_if(starts, [&](const Start& one) { return one.domain == domain; });
    std::stable_sort(starts.begin(), starts.end(), [](const Start& a, const Start& b) {
      return a.filling.time.step_seconds < b.filling.time.step_seconds;
    });
    if (starts.size() > kMostPolished) starts.resize(kMostPolished);
    for (const Start& one : starts) polish(one.filling, one.domain);
  }

  void polish(const Filling& start, int domain) {
    Filling at = filling_of(start.hosts);
    judge_cost(at, model_, wish_, traffic_);
    Polisher(topology_, room_, domain).improve(start.hosts, [&](const auto& hosts) {
      hosts_left_ -= static_cast<int>(hosts.size());
      if (hosts_left_ < 0) return Tried::kEnough;
      if (model_.predict(hosts).step_seconds > at.cost * (1 + kSame)) return Tried::kNoBetter;
      Filling filling = filling_of(hosts);
      judge_cost(filling, model_, wish_, traffic_);
      if (!is_better(filling, at)) return Tried::kNoBetter;
      at = std::move(filling);
      return Tried::kBetter;
    });
    consider(at, domain);
  }

  /// One try. Nothing when the bound is not kept.
  std::optional<Filling> try_bound(const FillProblem& problem, double bound, const BigPlace& big) {
    if (tries_ <= 0) return std::nullopt;
    tries_ -= 1 + static_cast<int>(problem.leaves.size() / kLeavesATry);
    auto filling = filler_.fill(problem, bound * (1 + kSame), big);
    if (!filling) return std::nullopt;
    consider(*filling, problem.domain);
    if (filling->time.load_seconds > bound * (1 + 3 * kSame)) return std::nullopt;
    return filling;
  }

  void solve(const FillProblem& problem) {
    if (tries_ <= 0) {
      is_cut_ = true;
      return;
    }
    try_bound(problem, std::numeric_limits<double>::max(), {});
    const double floor = floor_of(problem);
    const double latency = floor > 0 ? model_.latency(problem.domain) : 0;
    const double least = model_.step_of(latency, floor).step_seconds;
    least_ = std::min(least_, least);
    for (const BigPlace& big : big_places(problem)) {
      if (!best_ || best_->cost <= least * (1 + kSame)) return;
      if (tries_ <= 0) is_cut_ = true;
      improve(problem, big, floor);
    }
  }

  void improve(const FillProblem& problem, const BigPlace& big, double floor) {
    const double latency = model_.latency(problem.domain);
    const double to_beat = model_.load_of(latency, best_->cost);
    if (to_beat <= floor) return;
    auto found = try_bound(problem, to_beat * (1 - kFineEnough), big);
    if (!found) return;
    double low = floor, high = found->time.load_seconds;
    for (int i = 0; i < kMaxHalvings && high - low > kFineEnough * high; ++i) {
      const double middle = (low + high) / 2;
      found = try_bound(problem, middle, big);
      if (found) {
        high = std::min(middle, found->time.load_seconds);
      } else {
        low = middle;
      }
    }
    // As short, and perhaps on fewer hosts.
    try_bound(problem, high, big);
  }

  std::vector<BigPlace> big_places(const FillProblem& problem) const {
    constexpr std::size_t kMostLeaves = 8, kMostHosts = 2;
    const int half = wish_.pods / 2;
    std::vector<BigPlace> places{{}};
    std::vector<int> leaves;
    for (std::size_t i = 0; i < problem.leaves.size(); ++i) {
      if (problem.leaves[i].room > half) leaves.push_back(static_cast<int>(i));
    }
    const auto is_roomier = [&](int a, int b) {
      const int left = problem.leaves[as_index(a)].room, right = problem.leaves[as_index(b)].room;
      return left != right ? left > right : a < b;
    };
    const auto shown = static_cast<std::ptrdiff_t>(std::min(leaves.size(), kMostLeaves));
    std::partial_sort(leaves.begin(), leaves.begin() + shown, leaves.end(), is_roomier);
    leaves.resize(static_cast<std::size_t>(shown));
    for (const int leaf : leaves) {
      const LeafRoom& one = problem.leaves[as_index(leaf)];
      places.push_back({one.branch, leaf, -1});
      std::vector<int> hosts;
      for (int node = one.first_node; node < one.first_node + one.nodes; ++node) {
        if (room_.on_node[as_index(node)] > half) hosts.push_back(node);
      }
      const auto most = static_cast<std::ptrdiff_t>(std::min(hosts.size(), kMostHosts));
      std::partial_sort(hosts.begin(), hosts.begin() + most, hosts.end(), [&](int a, int b) {
        const int left = room_.on_node[as_index(a)], right = room_.on_node[as_index(b)];
        return left != right ? left > right : a < b;
      });
      for (std::ptrdiff_t i = 0; i < most; ++i) {
        places.push_back({one.branch, leaf, hosts[static_cast<std::size_t>(i)]});
      }
    }
    std::vector<int> held(problem.branches.size(), 0);
    for (const LeafRoom& leaf : problem.leaves) held[as_index(leaf.branch)] += leaf.room;
    for (std::size_t b = 0; b < problem.branches.size(); ++b) {
      const bool is_big = problem.branches[b].uplink > 0 && held[b] > half;
      if (is_big) places.push_back({static_cast<int>(b), -1, -1});
    }
    return places;
  }

  std::optional<Placement> made(const Candidate& one) {
    if (!best_) return std::nullopt;
    Placement placement;
    placement.hosts = best_->hosts;
    placement.domain = best_domain_;
    placement.branches = one.branches;
    placement.leaves = one.leaves;
    placement.time = best_->time;
    placement.undisturbed_seconds = best_->time.exchange_seconds;
    placement.slowdown = slowdown_;
    placement.spares_room = spares_room_;
    placement.is_search_cut = is_cut_;
    return placement;
  }

  const Topology& topology_;
  const Room& room_;
  const PlacementWish& wish_;
  const Traffic* traffic_;
  StepModel model_;
  Filler filler_;
  int tries_;
  std::vector<std::vector<int>> leaves_;  ///< by domain, of those that were asked for
  std::vector<int> rooms_;                ///< of fewest_leaves
  bool is_cut_ = false;
  int hosts_left_ = 0;  ///< in placements that polish tries
  /// The shortest step in each domain that was looked at.
  struct Start {
    int domain = 0;
    Filling filling;
  };
  std::vector<Start> starts_;
  std::optional<Filling> best_;
  int best_domain_ = 0;
  double least_ = std::numeric_limits<double>::max();  ///< no cost is below
  Slowdown slowdown_;                                  ///< by the best
  bool spares_room_ = false;  ///< it was chosen of several, alike but for that
};

/// The link that costs most where a gang would stand that knew nothing of the others: the one that
/// bounds its own step, or where it slows another most.
int dearest_link(const Topology& topology, const PlacementWish& wish, const Placement& one,
                 double alone_step) {
  const double own = one.time.step_seconds / alone_step - 1;
  int pods = 0;
  for (const HostShare& host : one.hosts) pods += host.pods;
  if (one.slowdown.workers > own * pods) return one.slowdown.link;
  if (one.time.bound_switch >= 0) {
    return wish.gpus.seats->link_of(one.time.bound_node, one.time.bound_switch);
  }
  return one.time.bound_domain >= 0
             ? one.time.bound_domain
             : static_cast<int>(topology.domains.size()) + one.time.bound_node;
}

/// `alone` is best if nobody else sends; what is best beside them.
Placement beside_others(const Topology& topology, const Room& room, const PlacementWish& wish,
                        const Traffic& traffic, const std::vector<int>& levels,
                        const Placement& alone) {
  Search search(topology, room, wish, &traffic);
  const Placement disturbed = search.start_from(alone);
  const double alone_step = alone.time.step_seconds;
  const bool is_same =
      disturbed.time.step_seconds <= alone_step * (1 + kSame) && disturbed.slowdown.workers <= 0;
  Placement found = is_same ? disturbed : search.within(levels).value();
  found.is_search_cut = found.is_search_cut || alone.is_search_cut;
  if (found.hosts != alone.hosts) {
    found.avoided_link = dearest_link(topology, wish, disturbed, alone_step);
  }
  found.undisturbed_seconds =
      StepModel(topology, wish.work, nullptr, &wish.gpus).predict(found.hosts).exchange_seconds;
  return found;
}

/// Of the levels to be kept, or of those that are wished for.
std::optional<Placement> place_within(const Topology& topology, const Room& room,
                                      const PlacementWish& wish, const Traffic* traffic,
                                      const std::vector<int>& levels) {
  Search search(topology, room, wish, nullptr);
  std::optional<Placement> alone = search.within(levels);
  if (!alone || traffic == nullptr) return alone;
  return beside_others(topology, room, wish, *traffic, levels, *alone);
}

std::optional<Placement> place_on_host(const Topology& topology, const Room& room,
                                       const PlacementWish& wish) {
  return Search(topology, room, wish, nullptr).on_one_host();
}

}  // namespace

std::vector<int> Placement::nodes() const {
  std::vector<int> nodes;
  for (const HostShare& host : hosts) nodes.insert(nodes.end(), as_index(host.pods), host.node);
  return nodes;
}

PlacementVerdict place_gang(const Topology& topology, const Room& room, const PlacementWish& wish,
                            const Traffic* traffic) {
  if (wish.pods < 1 || wish.pods > kMaxPodsCounted || wish.tries < 1) {
    return {std::nullopt, "needs from 1 to " + std::to_string(kMaxPodsCounted) + " pods"};
  }
  if (!wish.groups.empty()) return place_groups(topology, room, wish, traffic);
  std::optional<Placement> placement;
  bool is_wish_kept = true;
  if (!wish.required.empty()) {
    const std::vector<int> levels = topology.levels_named(wish.required);
    if (names_host(wish.required)) {
      placement = place_on_host(topology, room, wish);
    } else if (levels.empty()) {
      return {std::nullopt, why_unknown_level(topology, "spec.topology.required", wish.required)};
    } else {
      placement = place_within(topology, room, wish, traffic, levels);
    }
  } else {
    if (!wish.preferred.empty()) {
      const std::vector<int> levels = topology.levels_named(wish.preferred);
      if (names_host(wish.preferred)) {
        placement = place_on_host(topology, room, wish);
      } else if (!levels.empty()) {
        placement = place_within(topology, room, wish, traffic, levels);
      }
      is_wish_kept = placement.has_value();
    }
    if (!placement) placement = place_within(topology, room, wish, traffic, {});
  }
  if (!placement) return {std::nullopt, why_not_here(topology, room, wish)};
  placement->is_wish_kept = is_wish_kept;
  placement->why = why_here(topology, room, wish, *placement);
  if (traffic != nullptr) placement->why += why_beside(topology, wish, *traffic, *placement);
  return {std::move(placement), ""};
}

}  // namespace muster::core
