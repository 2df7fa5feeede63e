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
#include "worker/engine/ranges.h"

namespace muster::engine {

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

/// Of `range`, the blocks with measured elements. A block of the tail alone has none.
ElementRange measured_blocks(ElementRange range, std::size_t measured);

/// The first half of a sum: everybody's node sums of the elements that a process owns come to it
/// and are added along the tree. The node sums stay as they are. Threads: one.
class OwnedSum {
 public:
  /// `nodes[k]`: `elements` floats, the sum of the k-th node of `rank` in `assignment`; outlive
  /// this.
  OwnedSum(const Assignment& assignment, int rank, std::size_t elements,
           const std::vector<float*>& nodes);

  /// What this process owns of [0, elements).
  ElementRange owned() const { return owned_; }

  /// Sends what others own and takes what they have of the owned elements.
  /// Blocks: until `deadline` on the other processes.  Errors: as comm::Work::wait, or the point's.
  Status collect(comm::Communicator& communicator, std::uint64_t step, MonoTime deadline,
                 const ExchangePoint& point);
  /// After collect(): the sum into `out`, owned().size() floats.
  void add(kernels::cpu::Context& context, float* out);

 private:
  void list_inputs(std::vector<const float*> chunks);

  ElementRange owned_;
  std::vector<std::vector<float>> received_;  ///< the others' nodes, only the owned elements
  std::vector<std::vector<float>> between_;   ///< results of all passes but the last
  std::vector<SumPass> passes_;
  /// By pass: where the owned elements of its inputs lie; without passes the one node's.
  std::vector<std::vector<const float*>> inputs_;
  std::vector<comm::SendBuffer> sends_;
  std::vector<comm::ReceiveBuffer> receives_;
};

/// One assignment's transfers and sums. The node sums that go in stay as they are, so that a sum
/// that failed can be made anew with other members. Threads: one.
class GradientExchange {
 public:
  /// `nodes[k]`: the sum of the k-th node of `rank` in `assignment`; outlive the exchange.
  /// `size.elements` floats each. `total` takes what comes out and is kept by the caller from
  /// exchange to exchange; it may be empty.
  GradientExchange(const Assignment& assignment, int rank, ExchangeSize size,
                   const std::vector<float*>& nodes, std::vector<float>& total);

  /// What all logical ranks sum up to, after sum().  Shape: (elements).
  std::span<const float> total() const { return total_; }

  /// Of the measured part of total(), each block's sum of squares, after sum(): made by the block's
  /// owner and gathered with its elements.  Shape: (ceil(measured / 4096)).
  std::span<const float> block_squares() const { return block_squares_; }

  /// Whether this process makes a part of the sum, for which it waits for all others.
  bool owns_elements() const { return sum_.owned().size() > 0; }

  /// Makes total() and block_squares() of all processes' node sums.
  /// Blocks: until `deadline`, twice on the other processes.  Errors: as comm::Work::wait, or the
  /// point's.
  Status sum(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             MonoTime deadline, const ExchangePoint& point);

 private:
  void list_gather(int rank, int processes);
  void measure(kernels::cpu::Context& context);

  ExchangeSize size_;
  OwnedSum sum_;
  std::vector<float> block_squares_;
  std::span<float> total_;
  bool is_added_ = true;  ///< false: the whole sum is the one node of the one process
  std::vector<comm::SendBuffer> gather_sends_;
  std::vector<comm::ReceiveBuffer> gather_receives_;
};

}  // namespace muster::engine
