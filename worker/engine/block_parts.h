// What is made of the whole model block by block (norm, hash), made by the processes of a group, or
// of all groups, together: who has a block whole makes its item; the parts of a block that several
// have come to one of them, in turn. Between stages these are few; of the layers that are divided
// by columns a process sends most of what it has.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/comm/communicator.h"
#include "worker/engine/buckets.h"
#include "worker/engine/stage_plan.h"

namespace muster::engine {

/// A part of a block, or all of it, that one process counts.
struct BlockPart {
  std::size_t block = 0;
  ElementRange in_block;  ///< counted from the block's first element
  std::size_t own = 0;    ///< the first one in the process's flat buffer
};

/// By place in the group, of the whole model's first `elements` values, ascending.
std::vector<std::vector<BlockPart>> block_parts(const StagePlan& plan, const ModelShape& whole,
                                                std::size_t elements);

/// The same of several copies, one after the other: of what a place counts, each copy's process has
/// what it owns there.  Shape: by_place as many as parts.
std::vector<std::vector<BlockPart>> owned_parts(const std::vector<std::vector<BlockPart>>& parts,
                                                const std::vector<Ownership>& by_place);

/// Who makes which items, as one process needs to know it: made once for as long as each has what
/// it has.
struct BlockPlan {
  /// By place: of this process all its parts, of the others those of blocks whose items it makes.
  std::vector<std::vector<BlockPart>> parts;
  std::vector<std::size_t> makers;  ///< by block: one of those that have parts of it, in turn
  std::vector<bool> is_moved;       ///< by batch of blocks: whether anybody sends any of it
};

/// Of the parts of all places, each of the blocks of which has one.
BlockPlan plan_blocks(std::vector<std::vector<BlockPart>> parts, int own);

/// How items are made of blocks, and where a process's own elements are read.
struct BlockItem {
  std::size_t bytes = 0;
  /// Of several blocks at once, so that all threads have some of them; one item behind the other.
  std::function<void(std::span<const std::span<const float>> blocks, std::byte* items)> make;
  std::function<void(std::size_t first, std::span<float> elements)> read;
};

/// Bytes that gather_items() takes on the process at `place`, and two plans for it: of a norm and
/// of a hash.
std::size_t gathering_bytes(const StagePlan& plan, int place);

/// The items of all blocks, on every process of `group`, where `plan` is of its place. Blocks and
/// errors: as comm::all_gather.
Result<std::vector<std::byte>> gather_items(const BlockPlan& plan, const BlockItem& item,
                                            comm::Communicator& group, std::uint64_t stamp,
                                            MonoTime deadline);

}  // namespace muster::engine
