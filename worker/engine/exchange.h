// The sum of the gradients over all logical ranks: each process holds the sums of its complete
// subtrees, the blocks go to their owners all-to-all, the owner adds them along the tree, and the
// reduced gradients are gathered by all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "kernels/ops.h"
#include "worker/comm/communicator.h"
#include "worker/engine/assignment.h"

namespace muster::engine {

/// Elements [begin, end) of the flat buffer whose sum process `rank` makes: whole blocks of 4,096,
/// divided evenly. The last block may be short.
struct ElementRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
};
ElementRange owned_elements(int rank, int processes, std::size_t elements);

/// Payload bytes that `rank` sends in one GradientExchange::sum. Over all processes, with c nodes
/// each and M bytes of gradient: c M (P - 1) to the owners and M (P - 1) back, so on average
/// (c + 1) M (P - 1) / P a process.
std::uint64_t expected_bytes(const Assignment& assignment, int rank, std::size_t elements);

/// Owns one gradient buffer per held node. Threads: one.
class GradientExchange {
 public:
  /// `elements` floats a buffer, the tail of statistics included.
  GradientExchange(const Assignment& assignment, int rank, std::size_t elements);

  const std::vector<RankRange>& nodes() const { return own_; }
  /// The buffer that takes the sum of nodes()[k].  Shape: (elements).
  std::span<float> buffer(std::size_t k) { return buffers_[k]; }
  /// What all logical ranks sum up to, after sum(). It is buffer(0).
  std::span<const float> total() const { return buffers_[0]; }

  /// Replaces buffer(0) by the sum over all logical ranks; the other buffers are used up.
  /// Blocks: until `deadline`, twice on the other processes.  Errors: as comm::Work::wait.
  Status sum(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             MonoTime deadline);

 private:
  void list_transfers(const Assignment& assignment, int rank, std::size_t elements);
  void add(kernels::cpu::Context& context);

  std::vector<RankRange> own_;
  ElementRange owned_;
  std::vector<std::vector<float>> buffers_;
  std::vector<std::vector<float>> received_;  ///< the others' nodes, only the owned elements
  std::vector<float*> chunks_;                ///< by held node: where its owned elements lie
  std::vector<SumPass> passes_;
  std::vector<const float*> inputs_;
  std::vector<comm::SendBuffer> scatter_sends_, gather_sends_;
  std::vector<comm::ReceiveBuffer> scatter_receives_, gather_receives_;
};

}  // namespace muster::engine
