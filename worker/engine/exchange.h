// The sum of the gradients over all logical ranks: each process holds the sums of its complete
// subtrees, the blocks go to their owners all-to-all, the owner adds them along the tree, and the
// reduced gradients are gathered by all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
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

/// What is summed, and how much of it is measured.
struct ExchangeSize {
  std::size_t elements = 0;  ///< of a node, the tail of statistics included
  std::size_t measured = 0;  ///< leading elements whose squares are summed block by block
};

/// Payload bytes that `rank` sends in one GradientExchange::sum. Over all processes, with c nodes
/// each and M bytes of gradient: c M (P - 1) to the owners and M (P - 1) back, so on average
/// (c + 1) M (P - 1) / P a process; and one float a measured block to each of the others.
std::uint64_t expected_bytes(const Assignment& assignment, int rank, ExchangeSize size);

/// Called between the parts of a sum: "scatter" and "gather" while bytes move, "reduced" in
/// between. An error ends the sum with it.
using ExchangePoint = std::function<Status(std::string_view point)>;

/// One assignment's transfers and sums. The node sums that go in stay as they are, so that a sum
/// that failed can be made anew with other members. Threads: one.
class GradientExchange {
 public:
  /// `nodes[k]`: the sum of the k-th node of `rank` in `assignment`; outlive the exchange.
  /// `size.elements` floats each. `total` takes what comes out and is kept by the caller from
  /// exchange to exchange; it may be empty.
  GradientExchange(const Assignment& assignment, int rank, ExchangeSize size,
                   std::vector<float*> nodes, std::vector<float>& total);

  /// What all logical ranks sum up to, after sum().  Shape: (elements).
  std::span<const float> total() const { return total_; }

  /// Of the measured part of total(), each block's sum of squares, after sum(): made by the block's
  /// owner and gathered with its elements.  Shape: (ceil(measured / 4096)).
  std::span<const float> block_squares() const { return block_squares_; }

  /// Whether this process makes a part of the sum, for which it waits for all others.
  bool owns_elements() const { return owned_.size() > 0; }

  /// Makes total() and block_squares() of all processes' node sums.
  /// Blocks: until `deadline`, twice on the other processes.  Errors: as comm::Work::wait, or the
  /// point's.
  Status sum(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             MonoTime deadline, const ExchangePoint& point);

 private:
  void list_transfers(const Assignment& assignment, int rank);
  void list_inputs(std::vector<const float*> chunks);
  void add(kernels::cpu::Context& context);
  void measure(kernels::cpu::Context& context);

  ExchangeSize size_;
  ElementRange owned_;
  std::vector<float> block_squares_;
  std::vector<float*> own_;
  std::span<float> total_;
  std::vector<std::vector<float>> received_;  ///< the others' nodes, only the owned elements
  std::vector<std::vector<float>> between_;   ///< results of all passes but the last
  std::vector<SumPass> passes_;
  /// By pass: where the owned elements of its inputs lie; without passes the one node's.
  std::vector<std::vector<const float*>> inputs_;
  std::vector<comm::SendBuffer> scatter_sends_, gather_sends_;
  std::vector<comm::ReceiveBuffer> scatter_receives_, gather_receives_;
};

}  // namespace muster::engine
