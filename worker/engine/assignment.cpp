#include "worker/engine/assignment.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string>

#include "common/check.h"
#include "common/contract.h"

namespace muster::engine {
namespace {

/// Entries of an order program are signed bytes.
constexpr std::size_t kMaxInputs = 127;

/// Length of the longest subtree that starts at `first` and ends within `last`.
int subtree_at(int first, int last) {
  const auto room = static_cast<unsigned>(last - first);
  const auto fits = std::bit_floor(room);
  if (first == 0) return static_cast<int>(fits);
  const unsigned aligned = static_cast<unsigned>(first) & (~static_cast<unsigned>(first) + 1);
  return static_cast<int>(std::min(fits, aligned));
}

int count_covers(RankRange range) {
  int count = 0;
  for (int first = range.first; first < range.last; ++count) first += subtree_at(first, range.last);
  return count;
}

/// The part of the node list that lies in a subtree of the sum.
struct Span {
  RankRange ranks;
  int begin = 0, end = 0;
};

class PassBuilder {
 public:
  explicit PassBuilder(const std::vector<HeldNode>& nodes) : nodes_(nodes) {}

  /// Adds the passes that leave the sum of `span` in one node, and returns that node.
  int reduce(Span span) {
    if (span.end - span.begin == 1) return span.begin;
    if (static_cast<std::size_t>(span.end - span.begin) > kMaxInputs) {
      const auto [left, right] = halves(span);
      const int first = reduce(left);
      const int second = reduce(right);
      passes_.push_back({{first, second}, {0, 1, -1}});
      return first;
    }
    SumPass pass;
    for (int node = span.begin; node < span.end; ++node) pass.inputs.push_back(node);
    append(span, span.begin, pass.order);
    passes_.push_back(std::move(pass));
    return span.begin;
  }

  std::vector<SumPass> take() { return std::move(passes_); }

 private:
  std::pair<Span, Span> halves(Span span) const {
    const int middle = span.ranks.first + span.ranks.size() / 2;
    int cut = span.begin;
    while (cut < span.end && nodes_[static_cast<std::size_t>(cut)].ranks.first < middle) ++cut;
    return {{{span.ranks.first, middle}, span.begin, cut},
            {{middle, span.ranks.last}, cut, span.end}};
  }

  void append(Span span, int base, std::vector<std::int8_t>& order) const {
    if (span.end - span.begin == 1) {
      order.push_back(static_cast<std::int8_t>(span.begin - base));
      return;
    }
    const auto [left, right] = halves(span);
    append(left, base, order);
    append(right, base, order);
    order.push_back(-1);
  }

  const std::vector<HeldNode>& nodes_;
  std::vector<SumPass> passes_;
};

}  // namespace

std::vector<RankRange> covers(RankRange range) {
  MUSTER_CHECK(range.first >= 0 && range.first <= range.last);
  std::vector<RankRange> nodes;
  for (int first = range.first; first < range.last;) {
    const int length = subtree_at(first, range.last);
    nodes.push_back({first, first + length});
    first += length;
  }
  return nodes;
}

int count_ranks(const std::vector<RankRange>& nodes) {
  int count = 0;
  for (const RankRange node : nodes) count += node.size();
  return count;
}

std::optional<Assignment> assign_within(int logical_ranks, const std::vector<int>& most) {
  const int sharing = static_cast<int>(most.size());
  const auto most_of = [&](int process) { return most[static_cast<std::size_t>(process)]; };
  std::vector<int> room{0};  // room[p]: of the last p processes together
  for (int p = 1; p <= sharing; ++p) {
    room.push_back(room.back() + std::min(most_of(sharing - p), logical_ranks));
  }
  if (sharing < 1 || sharing > logical_ranks || room.back() < logical_ranks) return std::nullopt;
  constexpr int kImpossible = std::numeric_limits<int>::max() / 2;
  // fewest[p][first]: nodes of the last p processes when they share [first, L).
  std::vector<std::vector<int>> fewest(
      room.size(), std::vector<int>(static_cast<std::size_t>(logical_ranks) + 1, kImpossible));
  const auto at = [&](int p, int first) -> int& {
    return fewest[static_cast<std::size_t>(p)][static_cast<std::size_t>(first)];
  };
  at(0, logical_ranks) = 0;
  for (int p = 1; p <= sharing; ++p) {
    // Only starts that leave neither too much for the last p processes nor for those before them.
    const int room_of_last = room[static_cast<std::size_t>(p)];
    const int least = std::max(sharing - p, logical_ranks - room_of_last);
    const int latest = std::min(logical_ranks - p, room.back() - room_of_last);
    for (int first = least; first <= latest; ++first) {
      const int end = std::min(first + most_of(sharing - p), logical_ranks);
      for (int last = first + 1; last <= end; ++last) {
        if (at(p - 1, last) >= kImpossible) continue;
        at(p, first) = std::min(at(p, first), count_covers({first, last}) + at(p - 1, last));
      }
    }
  }
  Assignment assignment{logical_ranks, {}};
  int first = 0;
  for (int p = sharing; p >= 1; --p) {
    int last = first + 1;
    while (count_covers({first, last}) + at(p - 1, last) != at(p, first)) ++last;
    assignment.nodes.push_back(covers({first, last}));
    first = last;
  }
  return assignment;
}

Result<Assignment> assign(int logical_ranks, int processes) {
  if (logical_ranks < 1 || logical_ranks > contract::kMaxLogicalRanks ||
      !std::has_single_bit(static_cast<unsigned>(logical_ranks))) {
    return Error(ErrorCode::kInvalid, "spec.training.logicalRanks: must be a power of two up to " +
                                          std::to_string(contract::kMaxLogicalRanks));
  }
  if (processes < 1) return Error(ErrorCode::kInvalid, "there must be at least one process");
  const int sharing = std::min(processes, logical_ranks);
  const int longest = (logical_ranks + sharing - 1) / sharing;
  auto assignment =
      assign_within(logical_ranks, std::vector<int>(static_cast<std::size_t>(sharing), longest));
  assignment->nodes.resize(static_cast<std::size_t>(processes));
  return *std::move(assignment);
}

Assignment repair(int logical_ranks, const std::vector<std::vector<RankRange>>& held) {
  MUSTER_CHECK(!held.empty());
  Assignment assignment{logical_ranks, std::vector<std::vector<RankRange>>(held.size())};
  std::vector<bool> is_taken(static_cast<std::size_t>(logical_ranks));
  const auto is_free = [&](RankRange node) {
    return std::none_of(is_taken.begin() + node.first, is_taken.begin() + node.last,
                        [](bool taken) { return taken; });
  };
  for (std::size_t process = 0; process < held.size(); ++process) {
    for (const RankRange node : held[process]) {
      if (!is_free(node)) continue;
      std::fill(is_taken.begin() + node.first, is_taken.begin() + node.last, true);
      assignment.nodes[process].push_back(node);
    }
  }
  const auto missing = static_cast<unsigned>(std::count(is_taken.begin(), is_taken.end(), false));
  const auto sharing = static_cast<unsigned>(held.size());
  const int piece_most = static_cast<int>(std::bit_floor((missing + sharing - 1) / sharing));
  std::vector<int> load(held.size());
  const auto deal = [&](RankRange piece) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    load[static_cast<std::size_t>(least)] += piece.size();
    assignment.nodes[static_cast<std::size_t>(least)].push_back(piece);
  };
  for (int first = 0; first < logical_ranks;) {
    int last = first;
    while (last < logical_ranks && !is_taken[static_cast<std::size_t>(last)]) ++last;
    for (const RankRange subtree : covers({first, last})) {
      const int length = std::min(subtree.size(), piece_most);
      for (int at = subtree.first; at < subtree.last; at += length) deal({at, at + length});
    }
    first = last == first ? first + 1 : last;
  }
  for (auto& nodes : assignment.nodes) {
    std::sort(nodes.begin(), nodes.end(),
              [](RankRange a, RankRange b) { return a.first < b.first; });
  }
  return assignment;
}

std::vector<HeldNode> held_nodes(const Assignment& assignment) {
  std::vector<HeldNode> nodes;
  for (int process = 0; process < assignment.processes(); ++process) {
    for (const RankRange& ranks : assignment.nodes[static_cast<std::size_t>(process)]) {
      nodes.push_back({process, ranks});
    }
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const HeldNode& a, const HeldNode& b) { return a.ranks.first < b.ranks.first; });
  int next = 0;
  for (const HeldNode& node : nodes) {
    MUSTER_CHECK_MSG(node.ranks.first == next, "a logical rank is held twice or by nobody");
    next = node.ranks.last;
  }
  MUSTER_CHECK(next == assignment.logical_ranks);
  return nodes;
}

std::vector<SumPass> sum_passes(const std::vector<HeldNode>& nodes) {
  MUSTER_CHECK(!nodes.empty());
  PassBuilder builder(nodes);
  builder.reduce(
      {{nodes.front().ranks.first, nodes.back().ranks.last}, 0, static_cast<int>(nodes.size())});
  return builder.take();
}

}  // namespace muster::engine
