// How the sum of weights' gradients over rows and logical ranks is cut into blocks: a block is
// either some logical ranks that make a complete subtree of the sum, or a part of one rank's chain.
// What blocks leave for each other, unfinished chains and subtrees that wait for their right
// neighbour, lies in slots as in a binary counter: block g finds popcount(g) of them.
#pragma once

#include <bit>
#include <cstddef>

#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {

struct Blocks {
  std::size_t ranks;   // of one block
  std::size_t parts;   // of one rank's chain, when ranks is 1
  std::size_t length;  // of a part; the last may be shorter
  std::size_t count;   // not counting parts
};

/// Of `ranks` chains of `rows` steps, so that a block has at most steps_max.
inline Blocks cut_ranks(std::size_t ranks, std::size_t rows, std::size_t steps_max) {
  if (rows > steps_max) {
    const std::size_t parts = (rows + steps_max - 1) / steps_max;
    return {1, parts, (rows + parts - 1) / parts, ranks};
  }
  const std::size_t fit = rows == 0 ? ranks : std::bit_floor(steps_max / rows);
  const std::size_t in_block = least(ranks, fit);
  return {in_block, 1, rows, ranks / in_block};
}

/// One part of one block.
struct Piece {
  std::size_t block;
  std::size_t part;
  std::size_t step;   // its first
  std::size_t steps;  // of one rank
};

inline Piece piece_of(const Blocks& blocks, std::size_t rank_rows, std::size_t block,
                      std::size_t part) {
  const std::size_t offset = part * blocks.length;
  return {block, part, block * blocks.ranks * rank_rows + offset,
          least(blocks.length, rank_rows - offset)};
}

/// Where a tile's sum begins, which sums join it and where it goes.
struct Links {
  const float* from;  // the chain goes on from there; or nullptr: from +0
  const float* left;  // its nearest left neighbour; the next lies Slots::stride before it
  std::size_t lefts;  // how many
  float* to;          // an unfinished sum goes there; or nullptr: it is finished
};

/// What tasks hold for each tile between blocks.
struct Slots {
  float* base;
  std::size_t stride;  // between slots
  std::size_t cells;   // of a tile

  Links links(const Blocks& blocks, const Piece& piece, std::size_t tile) const {
    const auto waiting = static_cast<std::size_t>(std::popcount(piece.block));
    float* top = base + tile * cells + waiting * stride;
    Links links{piece.part != 0 ? top : nullptr, nullptr, 0, top};
    if (piece.part + 1 != blocks.parts) return links;
    links.lefts = static_cast<std::size_t>(std::countr_one(piece.block));
    if (links.lefts != 0) links.left = top - stride;
    links.to = piece.block + 1 != blocks.count ? top - links.lefts * stride : nullptr;
    return links;
  }

  /// How many are wanted.
  static std::size_t count(const Blocks& blocks) {
    const bool alone = blocks.count * blocks.parts == 1;
    return alone ? 0 : static_cast<std::size_t>(std::bit_width(blocks.count));
  }
};

}  // namespace muster::kernels::cpu
