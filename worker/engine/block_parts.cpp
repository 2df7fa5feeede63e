#include "worker/engine/block_parts.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/ops.h"

namespace muster::engine {
namespace {

constexpr std::size_t kBlock = kernels::kBlockElements;

std::size_t sent_bytes_of(const BlockPart& part, std::size_t item_bytes) {
  return part.is_whole ? item_bytes : part.in_block.size() * sizeof(float);
}

/// What a stage tells of its parts, one after the other.
void tell_parts(const std::vector<BlockPart>& parts, const BlockItem& item, std::byte* to) {
  std::array<float, kBlock> elements;
  for (const BlockPart& part : parts) {
    const auto own = std::span(elements).first(part.in_block.size());
    item.read(part.own, own);
    if (part.is_whole) {
      item.make(own, to);
    } else {
      std::memcpy(to, own.data(), own.size_bytes());
    }
    to += sent_bytes_of(part, item.bytes);
  }
}

}  // namespace

std::vector<std::vector<BlockPart>> block_parts(const StagePlan& plan, const ModelShape& whole,
                                                std::size_t elements) {
  std::vector<std::vector<BlockPart>> parts;
  for (const Stage& stage : plan.stages) {
    auto& own = parts.emplace_back();
    for (const StageStretch& stretch : stretches_of(stage.shape, whole)) {
      const ElementRange range = intersection(stretch.whole, {0, elements});
      for (std::size_t at = range.begin; at < range.end;) {
        const std::size_t block = at / kBlock, begin = block * kBlock;
        const std::size_t end = std::min(begin + kBlock, range.end);
        const std::size_t last = std::min(begin + kBlock, elements);
        own.push_back({block,
                       {at - begin, end - begin},
                       stretch.own + (at - stretch.whole.begin),
                       at == begin && end == last});
        at = end;
      }
    }
  }
  return parts;
}

Result<std::vector<std::byte>> gather_items(const std::vector<std::vector<BlockPart>>& parts,
                                            const BlockItem& item, comm::Communicator& group,
                                            std::uint64_t stamp, MonoTime deadline) {
  std::vector<std::size_t> offsets{0};
  std::size_t blocks = 0;
  for (const auto& of_stage : parts) {
    std::size_t bytes = 0;
    for (const BlockPart& part : of_stage) {
      bytes += sent_bytes_of(part, item.bytes);
      blocks = std::max(blocks, part.block + 1);
    }
    offsets.push_back(offsets.back() + bytes);
  }
  std::vector<std::byte> told(offsets.back());
  const auto rank = static_cast<std::size_t>(group.rank());
  tell_parts(parts[rank], item, told.data() + offsets[rank]);
  MUSTER_RETURN_IF_ERROR(comm::all_gather(group, stamp, told, offsets, deadline));
  struct CutBlock {
    std::vector<float> elements;
    std::size_t size = 0;
  };
  std::vector<std::byte> items(blocks * item.bytes);
  std::vector<CutBlock> cut(blocks);
  const std::byte* from = told.data();
  for (const auto& of_stage : parts) {
    for (const BlockPart& part : of_stage) {
      const std::size_t bytes = sent_bytes_of(part, item.bytes);
      CutBlock& pieces = cut[part.block];
      if (part.is_whole) {
        std::memcpy(items.data() + part.block * item.bytes, from, bytes);
      } else {
        pieces.elements.resize(kBlock);
        pieces.size = std::max(pieces.size, part.in_block.end);
        std::memcpy(pieces.elements.data() + part.in_block.begin, from, bytes);
      }
      from += bytes;
    }
  }
  for (std::size_t block = 0; block < blocks; ++block) {
    if (cut[block].size == 0) continue;
    item.make(std::span(cut[block].elements).first(cut[block].size),
              items.data() + block * item.bytes);
  }
  return items;
}

}  // namespace muster::engine
