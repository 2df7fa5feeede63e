#include "worker/engine/exchange.h"

#include <algorithm>

#include "common/check.h"

namespace muster::engine {

ElementRange owned_elements(int rank, int processes, std::size_t elements) {
  const std::size_t blocks = (elements + kernels::kBlockElements - 1) / kernels::kBlockElements;
  const auto start = [&](int p) {
    const std::size_t block =
        blocks * static_cast<std::size_t>(p) / static_cast<std::size_t>(processes);
    return std::min(block * kernels::kBlockElements, elements);
  };
  return {start(rank), start(rank + 1)};
}

std::uint64_t expected_bytes(const Assignment& assignment, int rank, std::size_t elements) {
  const int processes = assignment.processes();
  const std::uint64_t own = owned_elements(rank, processes, elements).size();
  const std::uint64_t nodes = covers(assignment.ranges.at(static_cast<std::size_t>(rank))).size();
  const auto others = static_cast<std::uint64_t>(processes - 1);
  return sizeof(float) * (nodes * (elements - own) + own * others) * (others > 0 ? 1 : 0);
}

GradientExchange::GradientExchange(const Assignment& assignment, int rank, std::size_t elements)
    : own_(covers(assignment.ranges.at(static_cast<std::size_t>(rank)))),
      owned_(owned_elements(rank, assignment.processes(), elements)) {
  for (std::size_t k = 0; k < own_.size(); ++k) buffers_.emplace_back(elements);
  const std::vector<HeldNode> nodes = held_nodes(assignment);
  passes_ = sum_passes(nodes);
  std::size_t own = 0;
  for (const HeldNode& node : nodes) {
    if (node.process == rank) {
      chunks_.push_back(buffers_[own++].data() + owned_.begin);
    } else {
      chunks_.push_back(received_.emplace_back(owned_.size()).data());
    }
  }
  for (const SumPass& pass : passes_) {
    inputs_.resize(std::max(inputs_.size(), pass.inputs.size()));
  }
  list_transfers(assignment, rank, elements);
}

void GradientExchange::list_transfers(const Assignment& assignment, int rank,
                                      std::size_t elements) {
  const auto bytes = [](ElementRange range) { return range.size() * sizeof(float); };
  std::size_t received = 0;
  for (int peer = 0; peer < assignment.processes(); ++peer) {
    if (peer == rank) continue;
    const ElementRange theirs = owned_elements(peer, assignment.processes(), elements);
    // Empty pieces are left out on both sides: there may be fewer blocks than processes.
    if (theirs.size() > 0) {
      for (auto& buffer : buffers_) {
        scatter_sends_.push_back({peer, buffer.data() + theirs.begin, bytes(theirs)});
      }
      gather_receives_.push_back({peer, buffers_[0].data() + theirs.begin, bytes(theirs)});
    }
    const std::size_t nodes = covers(assignment.ranges[static_cast<std::size_t>(peer)]).size();
    for (std::size_t k = 0; k < nodes; ++k) {
      // Nodes ascend with their processes, so the received ones stand in the order of the peers.
      float* to = received_[received++].data();
      if (owned_.size() > 0) scatter_receives_.push_back({peer, to, bytes(owned_)});
    }
    if (owned_.size() > 0) {
      gather_sends_.push_back({peer, buffers_[0].data() + owned_.begin, bytes(owned_)});
    }
  }
}

void GradientExchange::add(kernels::cpu::Context& context) {
  float* const total = buffers_[0].data() + owned_.begin;
  for (const SumPass& pass : passes_) {
    for (std::size_t i = 0; i < pass.inputs.size(); ++i) {
      inputs_[i] = chunks_[static_cast<std::size_t>(pass.inputs[i])];
    }
    // An earlier pass has used up buffer 0's own values before the last one writes there.
    float* out =
        &pass == &passes_.back() ? total : chunks_[static_cast<std::size_t>(pass.inputs[0])];
    kernels::cpu::sum_nodes(context, inputs_.data(), pass.order.data(), pass.order.size(),
                            owned_.size(), out);
  }
}

Status GradientExchange::sum(comm::Communicator& communicator, kernels::cpu::Context& context,
                             std::uint64_t step, MonoTime deadline) {
  if (communicator.size() > 1) {
    MUSTER_ASSIGN_OR_RETURN(
        const auto scatter,
        communicator.start(step, comm::Memory::kHost, scatter_sends_, scatter_receives_));
    MUSTER_RETURN_IF_ERROR(scatter->wait(deadline));
  }
  if (owned_.size() > 0) add(context);
  if (communicator.size() > 1) {
    MUSTER_ASSIGN_OR_RETURN(const auto gather, communicator.start(step, comm::Memory::kHost,
                                                                  gather_sends_, gather_receives_));
    MUSTER_RETURN_IF_ERROR(gather->wait(deadline));
  }
  return {};
}

}  // namespace muster::engine
