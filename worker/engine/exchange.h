// The sum of the gradients over all logical ranks: each process holds the sums of its complete
// subtrees, the blocks go to their owners all-to-all, the owner adds them along the tree, and gives
// what comes out to those who need it.
//
// The flat buffer is cut into buckets, and one goes its way while the backward pass still computes
// the next. The groups of transfers have the same order on all processes, whoever computes what:
// node sums of bucket 0, of bucket 1, reduced gradients of bucket 0, node sums of bucket 2, reduced
// gradients of bucket 1, and so on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "kernels/ops.h"
#include "worker/comm/communicator.h"
#include "worker/engine/assignment.h"
#include "worker/engine/buckets.h"
#include "worker/engine/keeping.h"
#include "worker/engine/optimizer.h"

namespace muster::engine {

/// What is summed, by whom and for whom.
struct Reduction {
  Ownership ownership;
  std::size_t trained = 0;   ///< leading elements, which go to those who update them; the others,
                             ///< the tail, go to all
  bool is_measured = false;  ///< each block's sum of squares, of the trained elements, goes to all
  std::optional<Keeping> keeping{};  ///< who makes which updates; without: all make all
};

/// Payload bytes that `rank` sends in one sum.
std::uint64_t expected_bytes(const Assignment& assignment, int rank, const Reduction& reduction);

/// Called between the parts of a sum: "bucket" while the node sums of a bucket move and later ones
/// are still to come, "scatter" while the last move, "reduced" when everything owned is added up,
/// "gather" (with keepers "log") while that moves. An error ends the sum with it.
using ExchangePoint = std::function<Status(std::string_view point)>;

/// One assignment's transfers and sums. The node sums that go in stay as they are, so that a sum
/// that failed can be made anew with other members. Threads: one.
class GradientExchange {
 public:
  /// `nodes[k]`: the sum of the k-th node of `rank` in `assignment`, as many elements as there are
  /// to be summed; outlive the exchange, and so does `memory`, which is the exchange's as long as
  /// it lives and may be used by the next one.
  GradientExchange(const Assignment& assignment, int rank, Reduction reduction,
                   const std::vector<float*>& nodes, std::vector<float>& memory);

  /// Begins the sum of one step: `communicator` and `context` are used until finish() returns. What
  /// came out of the last one is lost.
  void begin(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             ExchangePoint point);
  /// From element `first` on all nodes' sums are final and stay untouched until finish() returns.
  /// Sends what is complete now, adds up what was sent before, and gives that to others. An error
  /// is kept for finish().
  /// Blocks: until `deadline` on processes that are more than one bucket behind.
  void advance(std::size_t first, MonoTime deadline);
  /// The rest of it, and until everything is there and nothing moves any more.
  /// Blocks: until `deadline`, twice on the other processes.  Errors: as comm::Work::wait, or the
  /// point's. Transfers may be under way then; aborting the communicator ends them.
  Status finish(MonoTime deadline);
  /// All of it at once.
  Status sum(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             MonoTime deadline, const ExchangePoint& point);

  // After finish():
  /// Reduced gradients of all that this process updates, each trained element once.
  std::span<const Gradient> gradients() const { return gradients_; }
  /// Those of the trained elements that this process owns, whoever updates them.
  std::span<const Gradient> owned_gradients() const { return owned_gradients_; }
  /// What stands behind the trained elements.  Shape: (elements - trained).
  std::span<const float> tail() const { return tail_; }
  /// Each block's sum of squares, made by its owner.  Shape: (ceil(trained / 4096)), or none.
  std::span<const float> block_squares() const { return block_squares_; }

  /// Whether this process makes a part of the sum, for which it waits for all others.
  bool owns_elements() const { return owns_elements_; }

 private:
  /// The way of one bucket.
  struct Bucket {
    ElementRange owned;
    std::vector<comm::SendBuffer> node_sends;
    std::vector<comm::ReceiveBuffer> node_receives;
    std::vector<std::vector<const float*>> inputs;  ///< of each pass, the owned elements
    std::vector<float*> sums;                       ///< likewise
    const float* reduced = nullptr;                 ///< what comes out
    std::vector<comm::SendBuffer> sends;            ///< of that
    std::vector<comm::ReceiveBuffer> receives;
    std::unique_ptr<comm::Work> nodes_under_way, reduced_under_way;
  };

  /// The owned elements of one node's sum.
  struct Chunk {
    const float* values = nullptr;
    float* writable = nullptr;  ///< the same, where it was received and may be lost
  };

  float* take_memory(std::size_t elements);
  void list_nodes(int rank, const std::vector<float*>& nodes, const std::vector<HeldNode>& held,
                  std::size_t bucket);
  void list_passes(std::vector<Chunk> chunks, Bucket& own);
  void list_reduced(int rank, std::size_t bucket);
  Status send_nodes(std::size_t bucket);
  Status reduce(std::size_t bucket, MonoTime deadline);
  void add(const Bucket& own);
  /// Beside a computation a wire can be used. Bytes in memory would be moved by a processor that
  /// computes otherwise, and the next bucket's are waited for in between anyway.
  bool is_overlapped() const { return !is_last_ && !communicator_->shares_memory(); }
  Status reached(std::string_view point) const { return point_ ? point_(point) : Status(); }

  const Reduction reduction_;
  const std::vector<SumPass> passes_;
  std::vector<float>& memory_;
  std::size_t memory_taken_ = 0;
  std::vector<std::vector<float>> between_;  ///< of passes that have no other place for their sums
  std::vector<float> tail_, block_squares_;
  std::vector<Gradient> gradients_, owned_gradients_;
  bool owns_elements_ = false;

  // The sum under way.
  comm::Communicator* communicator_ = nullptr;
  kernels::cpu::Context* context_ = nullptr;
  std::uint64_t step_ = 0;
  ExchangePoint point_;
  std::size_t sent_ = 0, reduced_ = 0;  ///< buckets
  bool is_last_ = false;                ///< nothing is computed beside it any more
  Status status_;

  std::vector<Bucket> buckets_;  ///< last, so that transfers under way end before their buffers
};

}  // namespace muster::engine
