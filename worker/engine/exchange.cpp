#include "worker/engine/exchange.h"

#include <algorithm>

#include "common/check.h"

namespace muster::engine {
namespace {

std::size_t blocks_of(std::size_t elements) {
  return (elements + kernels::kBlockElements - 1) / kernels::kBlockElements;
}

/// Of `range`, the blocks with measured elements. A block of the tail alone has none.
ElementRange measured_blocks(ElementRange range, std::size_t measured) {
  return {blocks_of(std::min(range.begin, measured)), blocks_of(std::min(range.end, measured))};
}

}  // namespace

ElementRange owned_elements(int rank, int processes, std::size_t elements) {
  const std::size_t blocks = blocks_of(elements);
  const auto start = [&](int p) {
    const std::size_t block =
        blocks * static_cast<std::size_t>(p) / static_cast<std::size_t>(processes);
    return std::min(block * kernels::kBlockElements, elements);
  };
  return {start(rank), start(rank + 1)};
}

std::uint64_t expected_bytes(const Assignment& assignment, int rank, ExchangeSize size) {
  const int processes = assignment.processes();
  const ElementRange owned = owned_elements(rank, processes, size.elements);
  const std::uint64_t own = owned.size();
  const std::uint64_t measured = measured_blocks(owned, size.measured).size();
  const std::uint64_t nodes = assignment.nodes.at(static_cast<std::size_t>(rank)).size();
  const auto others = static_cast<std::uint64_t>(processes - 1);
  const std::uint64_t floats = nodes * (size.elements - own) + (own + measured) * others;
  return others > 0 ? sizeof(float) * floats : 0;
}

GradientExchange::GradientExchange(const Assignment& assignment, int rank, ExchangeSize size,
                                   std::vector<float*> nodes, std::vector<float>& total)
    : size_(size),
      owned_(owned_elements(rank, assignment.processes(), size.elements)),
      block_squares_(blocks_of(size.measured)),
      own_(std::move(nodes)) {
  MUSTER_CHECK(size.measured <= size.elements);
  MUSTER_CHECK(own_.size() == assignment.nodes.at(static_cast<std::size_t>(rank)).size());
  const std::vector<HeldNode> held = held_nodes(assignment);
  passes_ = sum_passes(held);
  if (held.size() == 1 && assignment.processes() == 1) {
    total_ = {own_[0], size_.elements};  // nothing is to be added
    return;
  }
  total.resize(size_.elements);
  total_ = total;
  std::vector<const float*> chunks;  // by held node: where its owned elements lie
  std::size_t own = 0;
  received_.reserve(held.size());
  for (const HeldNode& node : held) {
    if (node.process == rank) {
      chunks.push_back(own_[own++] + owned_.begin);
    } else {
      chunks.push_back(received_.emplace_back(owned_.size()).data());
    }
  }
  list_inputs(std::move(chunks));
  list_transfers(assignment, rank);
}

/// A pass leaves its sum in a buffer of its own, which stands for its first input from then on.
void GradientExchange::list_inputs(std::vector<const float*> chunks) {
  if (passes_.empty()) {
    inputs_.push_back(std::move(chunks));
    return;
  }
  between_.resize(passes_.size() - 1);
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    auto& inputs = inputs_.emplace_back();
    for (const int input : passes_[p].inputs) {
      inputs.push_back(chunks[static_cast<std::size_t>(input)]);
    }
    if (p == between_.size()) return;
    between_[p].resize(owned_.size());
    chunks[static_cast<std::size_t>(passes_[p].inputs[0])] = between_[p].data();
  }
}

void GradientExchange::list_transfers(const Assignment& assignment, int rank) {
  const auto bytes = [](ElementRange range) { return range.size() * sizeof(float); };
  for (int peer = 0; peer < assignment.processes(); ++peer) {
    if (peer == rank) continue;
    const ElementRange theirs = owned_elements(peer, assignment.processes(), size_.elements);
    // Empty pieces are left out on both sides: there may be fewer blocks than processes.
    if (theirs.size() > 0) {
      for (float* buffer : own_) {
        scatter_sends_.push_back({peer, buffer + theirs.begin, bytes(theirs)});
      }
      gather_receives_.push_back({peer, total_.data() + theirs.begin, bytes(theirs)});
    }
    if (const auto blocks = measured_blocks(theirs, size_.measured); blocks.size() > 0) {
      gather_receives_.push_back({peer, block_squares_.data() + blocks.begin, bytes(blocks)});
    }
    if (owned_.size() > 0) {
      gather_sends_.push_back({peer, total_.data() + owned_.begin, bytes(owned_)});
    }
    if (const auto blocks = measured_blocks(owned_, size_.measured); blocks.size() > 0) {
      gather_sends_.push_back({peer, block_squares_.data() + blocks.begin, bytes(blocks)});
    }
  }
  if (owned_.size() == 0) return;
  // A peer's nodes ascend on both sides, so several from one peer match in the order given.
  std::size_t received = 0;
  for (const HeldNode& node : held_nodes(assignment)) {
    if (node.process == rank) continue;
    scatter_receives_.push_back({node.process, received_[received++].data(), bytes(owned_)});
  }
}

void GradientExchange::add(kernels::cpu::Context& context) {
  float* const total = total_.data() + owned_.begin;
  if (passes_.empty()) std::copy_n(inputs_[0][0], owned_.size(), total);
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const auto& order = passes_[p].order;
    float* const out = p == between_.size() ? total : between_[p].data();
    kernels::cpu::sum_nodes(context, inputs_[p].data(), order.data(), order.size(), owned_.size(),
                            out);
  }
}

void GradientExchange::measure(kernels::cpu::Context& context) {
  const ElementRange blocks = measured_blocks(owned_, size_.measured);
  if (blocks.size() == 0) return;
  const std::size_t end = std::min(owned_.end, size_.measured);
  kernels::cpu::block_squares(context, end - owned_.begin, total_.data() + owned_.begin,
                              block_squares_.data() + blocks.begin);
}

Status GradientExchange::sum(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, MonoTime deadline, const ExchangePoint& point) {
  const auto reached = [&](std::string_view name) { return point ? point(name) : Status(); };
  if (communicator.size() == 1) {
    if (total_.data() != own_[0]) add(context);
    measure(context);
    return {};
  }
  {
    MUSTER_ASSIGN_OR_RETURN(
        const auto scatter,
        communicator.start(step, comm::Memory::kHost, scatter_sends_, scatter_receives_));
    MUSTER_RETURN_IF_ERROR(reached("scatter"));
    MUSTER_RETURN_IF_ERROR(scatter->wait(deadline));
  }
  if (owned_.size() > 0) {
    add(context);
    measure(context);
  }
  MUSTER_RETURN_IF_ERROR(reached("reduced"));
  MUSTER_ASSIGN_OR_RETURN(const auto gather, communicator.start(step, comm::Memory::kHost,
                                                                gather_sends_, gather_receives_));
  MUSTER_RETURN_IF_ERROR(reached("gather"));
  return gather->wait(deadline);
}

}  // namespace muster::engine
