#include "worker/engine/passes.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "worker/data/prefetch.h"
#include "worker/data/read_ahead.h"

namespace muster::engine {
namespace {

/// Piece i finds as many sums on the stack as i has bits set, and completes as many subtrees as it
/// ends with: the carries of a binary counter.
void cut(std::size_t node, RankRange ranks, int length, std::vector<ComputePass>& passes) {
  unsigned number = 0;
  for (int first = ranks.first; first < ranks.last; first += length, ++number) {
    passes.push_back({{node,
                       {first, first + length},
                       static_cast<unsigned>(std::popcount(number)),
                       static_cast<unsigned>(std::countr_one(number))}});
  }
}

}  // namespace

std::vector<ComputePass> plan_passes(const std::vector<RankRange>& nodes, int ranks_most) {
  MUSTER_CHECK(ranks_most >= 1);
  const int piece = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_most)));
  std::vector<ComputePass> passes;
  int room = 0;  // of the last pass, for further whole nodes
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const int size = nodes[k].size();
    MUSTER_CHECK(std::has_single_bit(static_cast<unsigned>(size)) && nodes[k].first % size == 0);
    if (size > ranks_most) {
      cut(k, nodes[k], piece, passes);
      room = 0;
      continue;
    }
    if (size > room) {
      passes.emplace_back();
      room = ranks_most;
    }
    passes.back().push_back({k, nodes[k]});
    room -= size;
  }
  return passes;
}

std::size_t ranks_of(const ComputePass& pass) {
  std::size_t ranks = 0;
  for (const Piece& piece : pass) ranks += static_cast<std::size_t>(piece.ranks.size());
  return ranks;
}

std::size_t later_ranks_most(const std::vector<ComputePass>& passes) {
  std::size_t most = 0;
  for (const ComputePass& pass : passes) most = std::max(most, ranks_of(pass) - pass.size());
  return most;
}

std::vector<RestOfPiece> rest_of(const std::vector<ComputePass>& passes, std::size_t rows_per_rank,
                                 data::SamplePart part) {
  std::vector<RestOfPiece> rest;
  for (const ComputePass& pass : passes) {
    for (const Piece& piece : pass) {
      const std::size_t rows = static_cast<std::size_t>(piece.ranks.size()) * rows_per_rank;
      const std::size_t skipped = std::min(part.skipped, rows);
      const std::size_t wanted = std::min(part.most, rows - skipped);
      part.skipped -= skipped;
      part.most -= wanted;
      if (wanted > 0) rest.push_back({piece.ranks, {skipped, wanted}});
    }
  }
  return rest;
}

void prefetch(const data::Dataset& samples, const data::Loader& loader, std::int64_t step,
              const std::vector<ComputePass>& passes, std::size_t taken) {
  if (taken > 0 && samples.shards) return;  // of which any number is wanted at once
  data::SamplePart part{taken};
  // What follows is told later. Telling all each time would take a large step's time squared.
  if (!samples.shards) part.most = data::ReadAhead::kMostWanted;
  const auto rows_per_rank = static_cast<std::size_t>(loader.rows_per_rank());
  for (const RestOfPiece& piece : rest_of(passes, rows_per_rank, part)) {
    data::prefetch(samples, loader, step, piece.ranks, piece.part);
  }
}

}  // namespace muster::engine
