// What is made of the whole model block by block (norm, hash), made by the stages of a pipeline
// together: who has a block whole makes its item, of a block that a cut goes through all parts are
// sent, and the rest is done by all. A block has 4,096 elements, so what is sent is little.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/comm/communicator.h"
#include "worker/engine/stage_plan.h"

namespace muster::engine {

/// A part of a block, or all of it, that one stage has.
struct BlockPart {
  std::size_t block = 0;
  ElementRange in_block;  ///< counted from the block's first element
  std::size_t own = 0;    ///< the first one in the stage's flat buffer
  bool is_whole = false;
};

/// By stage, of the whole model's first `elements` values.
std::vector<std::vector<BlockPart>> block_parts(const StagePlan& plan, const ModelShape& whole,
                                                std::size_t elements);

/// How an item is made of a block, and where a stage's own elements are read.
struct BlockItem {
  std::size_t bytes = 0;
  std::function<void(std::span<const float> block, std::byte* item)> make;
  std::function<void(std::size_t first, std::span<float> elements)> read;
};

/// The items of all blocks, on every stage of `group`. Blocks and errors: as comm::all_gather.
Result<std::vector<std::byte>> gather_items(const std::vector<std::vector<BlockPart>>& parts,
                                            const BlockItem& item, comm::Communicator& group,
                                            std::uint64_t stamp, MonoTime deadline);

}  // namespace muster::engine
