#include "worker/engine/exchange.h"

#include <algorithm>

#include "common/check.h"

namespace muster::engine {
namespace {

std::size_t bytes_of_floats(ElementRange range) { return range.size() * sizeof(float); }

Status reached(const ExchangePoint& point, std::string_view name) {
  return point ? point(name) : Status();
}

}  // namespace

ElementRange measured_blocks(ElementRange range, std::size_t measured) {
  return {blocks_of(std::min(range.begin, measured)), blocks_of(std::min(range.end, measured))};
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

OwnedSum::OwnedSum(const Assignment& assignment, int rank, std::size_t elements,
                   const std::vector<float*>& nodes)
    : owned_(owned_elements(rank, assignment.processes(), elements)) {
  MUSTER_CHECK(nodes.size() == assignment.nodes.at(static_cast<std::size_t>(rank)).size());
  const std::vector<HeldNode> held = held_nodes(assignment);
  passes_ = sum_passes(held);
  std::vector<const float*> chunks;  // by held node: where its owned elements lie
  std::size_t own = 0;
  received_.reserve(held.size());
  for (const HeldNode& node : held) {
    if (node.process == rank) {
      chunks.push_back(nodes[own++] + owned_.begin);
      continue;
    }
    float* const chunk = received_.emplace_back(owned_.size()).data();
    chunks.push_back(chunk);
    // A peer's nodes ascend on both sides, so several from one peer match in the order given.
    // Empty pieces are left out on both sides: there may be fewer blocks than processes.
    if (owned_.size() > 0) receives_.push_back({node.process, chunk, bytes_of_floats(owned_)});
  }
  for (int peer = 0; peer < assignment.processes(); ++peer) {
    const ElementRange theirs = owned_elements(peer, assignment.processes(), elements);
    if (peer == rank || theirs.size() == 0) continue;
    for (const float* node : nodes) {
      sends_.push_back({peer, node + theirs.begin, bytes_of_floats(theirs)});
    }
  }
  list_inputs(std::move(chunks));
}

/// A pass leaves its sum in a buffer of its own, which stands for its first input from then on.
void OwnedSum::list_inputs(std::vector<const float*> chunks) {
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

Status OwnedSum::collect(comm::Communicator& communicator, std::uint64_t step, MonoTime deadline,
                         const ExchangePoint& point) {
  MUSTER_ASSIGN_OR_RETURN(const auto scatter,
                          communicator.start(step, comm::Memory::kHost, sends_, receives_));
  MUSTER_RETURN_IF_ERROR(reached(point, "scatter"));
  return scatter->wait(deadline);
}

void OwnedSum::add(kernels::cpu::Context& context, float* out) {
  if (owned_.size() == 0) return;
  if (passes_.empty()) std::copy_n(inputs_[0][0], owned_.size(), out);
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    const auto& order = passes_[p].order;
    float* const sum = p == between_.size() ? out : between_[p].data();
    kernels::cpu::sum_nodes(context, inputs_[p].data(), order.data(), order.size(), owned_.size(),
                            sum);
  }
}

GradientExchange::GradientExchange(const Assignment& assignment, int rank, ExchangeSize size,
                                   const std::vector<float*>& nodes, std::vector<float>& total)
    : size_(size),
      sum_(assignment, rank, size.elements, nodes),
      block_squares_(blocks_of(size.measured)) {
  MUSTER_CHECK(size.measured <= size.elements);
  if (assignment.processes() == 1 && nodes.size() == 1) {
    total_ = {nodes[0], size_.elements};  // nothing is to be added
    is_added_ = false;
    return;
  }
  total.resize(size_.elements);
  total_ = total;
  list_gather(rank, assignment.processes());
}

void GradientExchange::list_gather(int rank, int processes) {
  const ElementRange owned = sum_.owned();
  for (int peer = 0; peer < processes; ++peer) {
    if (peer == rank) continue;
    const ElementRange theirs = owned_elements(peer, processes, size_.elements);
    if (theirs.size() > 0) {
      gather_receives_.push_back({peer, total_.data() + theirs.begin, bytes_of_floats(theirs)});
    }
    if (const auto blocks = measured_blocks(theirs, size_.measured); blocks.size() > 0) {
      gather_receives_.push_back(
          {peer, block_squares_.data() + blocks.begin, bytes_of_floats(blocks)});
    }
    if (owned.size() > 0) {
      gather_sends_.push_back({peer, total_.data() + owned.begin, bytes_of_floats(owned)});
    }
    if (const auto blocks = measured_blocks(owned, size_.measured); blocks.size() > 0) {
      gather_sends_.push_back(
          {peer, block_squares_.data() + blocks.begin, bytes_of_floats(blocks)});
    }
  }
}

void GradientExchange::measure(kernels::cpu::Context& context) {
  const ElementRange owned = sum_.owned();
  const ElementRange blocks = measured_blocks(owned, size_.measured);
  if (blocks.size() == 0) return;
  const std::size_t end = std::min(owned.end, size_.measured);
  kernels::cpu::block_squares(context, end - owned.begin, total_.data() + owned.begin,
                              block_squares_.data() + blocks.begin);
}

Status GradientExchange::sum(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, MonoTime deadline, const ExchangePoint& point) {
  if (communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(sum_.collect(communicator, step, deadline, point));
  }
  if (is_added_) sum_.add(context, total_.data() + sum_.owned().begin);
  measure(context);
  if (communicator.size() == 1) return {};
  MUSTER_RETURN_IF_ERROR(reached(point, "reduced"));
  MUSTER_ASSIGN_OR_RETURN(const auto gather, communicator.start(step, comm::Memory::kHost,
                                                                gather_sends_, gather_receives_));
  MUSTER_RETURN_IF_ERROR(reached(point, "gather"));
  return gather->wait(deadline);
}

}  // namespace muster::engine
