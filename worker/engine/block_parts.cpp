#include "worker/engine/block_parts.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "common/check.h"
#include "kernels/ops.h"

namespace muster::engine {
namespace {

constexpr std::size_t kBlock = kernels::kBlockElements;
/// Blocks whose parts are moved at once: 4 MiB.
constexpr std::size_t kBlocksAtOnce = 256;

using Parts = std::vector<std::vector<BlockPart>>;

/// By block.
std::vector<std::size_t> makers_of(const Parts& parts) {
  std::vector<std::vector<std::size_t>> owners;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    for (const BlockPart& part : parts[place]) {
      if (owners.size() <= part.block) owners.resize(part.block + 1);
      auto& of_block = owners[part.block];
      if (of_block.empty() || of_block.back() != place) of_block.push_back(place);
    }
  }
  std::vector<std::size_t> makers;
  for (const auto& of_block : owners) {
    MUSTER_CHECK(!of_block.empty());
    makers.push_back(of_block[makers.size() % of_block.size()]);
  }
  return makers;
}

/// Blocks [first, last), and of those that this process makes the elements.
struct Batch {
  std::size_t first = 0, last = 0;
  std::vector<float> elements{};
  std::vector<std::size_t> sizes{};  ///< by block
  float* at(const BlockPart& part) {
    return elements.data() + (part.block - first) * kBlock + part.in_block.begin;
  }
};

/// Those parts of a process that are of a batch.
std::span<const BlockPart> parts_of(const std::vector<BlockPart>& of_place, const Batch& batch) {
  const auto begin = std::ranges::lower_bound(of_place, batch.first, {}, &BlockPart::block);
  const auto end = std::ranges::lower_bound(of_place, batch.last, {}, &BlockPart::block);
  return {begin, end};
}

/// Brings the parts of a batch to those who make its blocks.
Status bring_together(const BlockPlan& plan, const BlockItem& item, comm::Communicator& group,
                      std::uint64_t stamp, MonoTime deadline, Batch& batch) {
  const Parts& parts = plan.parts;
  const auto own = static_cast<std::size_t>(group.rank());
  std::vector<std::vector<float>> sent(parts.size()), received(parts.size());
  for (std::size_t place = 0; place < parts.size(); ++place) {
    for (const BlockPart& part : parts_of(parts[place], batch)) {
      const std::size_t maker = plan.makers[part.block], size = part.in_block.size();
      auto& of_block = batch.sizes[part.block - batch.first];
      of_block = std::max(of_block, part.in_block.end);
      if (place == own && maker == own) {
        item.read(part.own, std::span(batch.at(part), size));
      } else if (place == own) {
        sent[maker].resize(sent[maker].size() + size);
        item.read(part.own, std::span(sent[maker]).last(size));
      } else {
        received[place].resize(received[place].size() + size);
      }
    }
  }
  if (!plan.is_moved[batch.first / kBlocksAtOnce]) return {};
  std::vector<std::span<const std::byte>> sends;
  std::vector<std::span<std::byte>> receives;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    sends.push_back(std::as_bytes(std::span(sent[place])));
    receives.push_back(std::as_writable_bytes(std::span(received[place])));
  }
  MUSTER_RETURN_IF_ERROR(comm::all_to_all(group, stamp, sends, receives, deadline));
  for (std::size_t place = 0; place < parts.size(); ++place) {
    const float* from = received[place].data();
    for (const BlockPart& part : parts_of(parts[place], batch)) {
      if (place == own) continue;
      std::copy_n(from, part.in_block.size(), batch.at(part));
      from += part.in_block.size();
    }
  }
  return {};
}

}  // namespace

Parts block_parts(const StagePlan& plan, const ModelShape& whole, std::size_t elements) {
  Parts parts;
  for (int place = 0; place < plan.places(); ++place) {
    auto& own = parts.emplace_back();
    for (const StageStretch& stretch : counted_stretches_of(plan.part(place), whole)) {
      const ElementRange range = intersection(stretch.whole, {0, elements});
      for (std::size_t at = range.begin; at < range.end;) {
        const std::size_t block = at / kBlock, begin = block * kBlock;
        const std::size_t end = std::min(begin + kBlock, range.end);
        own.push_back({block, {at - begin, end - begin}, stretch.own + (at - stretch.whole.begin)});
        at = end;
      }
    }
  }
  return parts;
}

Parts owned_parts(const Parts& parts, const std::vector<Ownership>& by_place) {
  MUSTER_CHECK(!parts.empty() && parts.size() == by_place.size());
  struct Owned {
    std::size_t end = 0;
    int copy = 0;
  };
  Parts owned(parts.size() * static_cast<std::size_t>(by_place[0].processes()));
  for (std::size_t place = 0; place < parts.size(); ++place) {
    std::map<std::size_t, Owned> by_begin;
    for (int copy = 0; copy < by_place[place].processes(); ++copy) {
      for (const ElementRange range : by_place[place].of(copy)) {
        by_begin.emplace(range.begin, Owned{range.end, copy});
      }
    }
    for (const BlockPart& part : parts[place]) {
      const std::size_t end = part.own + part.in_block.size();
      for (std::size_t at = part.own; at < end;) {
        const auto& [of, copy] = std::prev(by_begin.upper_bound(at))->second;
        const std::size_t to = std::min(of, end);
        const std::size_t first = part.in_block.begin + (at - part.own);
        owned[static_cast<std::size_t>(copy) * parts.size() + place].push_back(
            {part.block, {first, first + (to - at)}, at});
        at = to;
      }
    }
  }
  return owned;
}

BlockPlan plan_blocks(Parts parts, int own) {
  BlockPlan plan;
  plan.makers = makers_of(parts);
  plan.is_moved.resize((plan.makers.size() + kBlocksAtOnce - 1) / kBlocksAtOnce);
  for (std::size_t place = 0; place < parts.size(); ++place) {
    const bool is_own = place == static_cast<std::size_t>(own);
    auto& needed = plan.parts.emplace_back();
    for (const BlockPart& part : parts[place]) {
      const std::size_t maker = plan.makers[part.block];
      if (place != maker) plan.is_moved[part.block / kBlocksAtOnce] = true;
      if (is_own || maker == static_cast<std::size_t>(own)) needed.push_back(part);
    }
    needed.shrink_to_fit();
    parts[place] = {};
  }
  return plan;
}

std::size_t gathering_bytes(const StagePlan& plan, int place) {
  const auto slices = static_cast<std::size_t>(plan.slices);
  std::size_t values = 0;
  for (const Stage& stage : plan.stages) values += stage.shape.values();
  const std::size_t at_once = std::min(values, kBlocksAtOnce * kBlock);
  // Of each block several have parts, and one of them, in turn, is given those of the others.
  const std::size_t moved = 2 * at_once * (slices - 1) / (slices * slices);
  // The own ones, and of the others those of the blocks that it makes, which are nearly as many.
  const ModelShape& part = plan.part(place);
  const std::size_t listed = 2 * (counted_stretches_most(part) + part.values() / kBlock);
  return (at_once + moved) * sizeof(float) + 2 * listed * sizeof(BlockPart);
}

Result<std::vector<std::byte>> gather_items(const BlockPlan& plan, const BlockItem& item,
                                            comm::Communicator& group, std::uint64_t stamp,
                                            MonoTime deadline) {
  const auto own = static_cast<std::size_t>(group.rank());
  const std::vector<std::size_t>& makers = plan.makers;
  const std::size_t blocks = makers.size(), places = plan.parts.size();
  std::vector<std::size_t> offsets(places + 1);
  for (const std::size_t maker : makers) offsets[maker + 1] += item.bytes;
  for (std::size_t place = 0; place < places; ++place) offsets[place + 1] += offsets[place];
  std::vector<std::byte> told(blocks * item.bytes), items(blocks * item.bytes);
  std::byte* to = told.data() + offsets[own];
  for (std::size_t first = 0; first < blocks; first += kBlocksAtOnce) {
    Batch batch{first, std::min(first + kBlocksAtOnce, blocks)};
    batch.elements.resize((batch.last - first) * kBlock);
    batch.sizes.resize(batch.last - first);
    MUSTER_RETURN_IF_ERROR(bring_together(plan, item, group, stamp, deadline, batch));
    std::vector<std::span<const float>> made;
    for (std::size_t block = first; block < batch.last; ++block) {
      if (makers[block] != own) continue;
      const auto elements = std::span(batch.elements).subspan((block - first) * kBlock);
      made.push_back(elements.first(batch.sizes[block - first]));
    }
    item.make(made, to);
    to += made.size() * item.bytes;
  }
  MUSTER_RETURN_IF_ERROR(comm::all_gather(group, stamp, told, offsets, deadline));
  for (std::size_t block = 0; block < blocks; ++block) {
    auto& from = offsets[makers[block]];
    std::copy_n(told.data() + from, item.bytes, items.data() + block * item.bytes);
    from += item.bytes;
  }
  return items;
}

}  // namespace muster::engine
