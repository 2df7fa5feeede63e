// The sum of the gradients over all logical ranks: each process holds the sums of its complete
// subtrees, the blocks go to their owners all-to-all, the owner adds them along the tree, and gives
// what comes out to those who need it.
//
// Where processes share a host, what goes to other hosts goes there once: a host's processes first
// add up, through memory, the subtrees that they have together (engine/hosts), and of what comes
// out one of them is sent what the others are to have, too, and gives it on. The tree is the same,
// so the bits are.
//
// The flat buffer is cut into buckets, and one goes its way while the backward pass still computes
// the next. The groups of transfers have the same order on all processes, whoever computes what:
// node sums of bucket 0, of bucket 1, reduced gradients of bucket 0, node sums of bucket 2, reduced
// gradients of bucket 1, and so on. With shared hosts a bucket has four groups instead of two.
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
#include "worker/engine/hosts.h"
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
  Hosts hosts{};
};

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
  /// Blocks: until `deadline` on processes that are more than one bucket behind, or two with shared
  /// hosts.
  void advance(std::size_t first, MonoTime deadline);
  /// The rest of it, and until everything is there and nothing moves any more.
  /// Blocks: until `deadline`, for each group of transfers.  Errors: as comm::Work::wait, or the
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
  const Hosts& hosts() const { return reduction_.hosts; }

 private:
  struct Transfers {
    std::vector<comm::SendBuffer> sends;
    std::vector<comm::ReceiveBuffer> receives;
    std::unique_ptr<comm::Work> under_way;
  };

  /// Of some nodes' sums the same elements.
  struct Addition {
    const std::vector<SumPass>* passes = nullptr;
    std::size_t elements = 0;
    std::vector<std::vector<const float*>> inputs;  ///< of each pass
    std::vector<float*> sums;                       ///< likewise
    const float* result = nullptr;
  };

  /// The way of one bucket. The first and the last of its groups are there with shared hosts alone.
  struct Bucket {
    ElementRange owned;
    Transfers to_makers;              ///< node sums, to whoever of the host adds them up
    std::vector<Addition> host_sums;  ///< for owners on other hosts
    Transfers nodes;                  ///< to the owners
    Addition sum;                     ///< of what is owned
    Transfers reduced;                ///< what comes out
    Transfers given_on;               ///< the same, from who was sent it to others of the host
  };

  /// Some elements of one node's sum.
  struct Chunk {
    const float* values = nullptr;
    float* writable = nullptr;  ///< the same, where it was received and may be lost
  };

  float* take_memory(std::size_t elements);
  void list_nodes(const std::vector<float*>& nodes, std::size_t bucket);
  void list_for_owner(const std::vector<float*>& nodes, int owner, std::size_t bucket);
  void list_owned(const std::vector<float*>& nodes, std::size_t bucket);
  Addition list_passes(std::vector<Chunk> chunks, std::size_t elements,
                       const std::vector<SumPass>& passes);
  void list_reduced(std::size_t bucket);
  void list_reduced_of(int owner, std::size_t bucket);
  int taken_first_by(int rank, int owner, std::size_t bucket) const;
  Status make_round(std::size_t round, MonoTime deadline);
  std::size_t rounds() const { return buckets_.size() + (is_by_hosts_ ? 3 : 1); }
  Status start(Transfers& transfers);
  static Status end(Transfers& transfers, MonoTime deadline);
  Status send_nodes(Bucket& bucket, MonoTime deadline);
  Status reduce(Bucket& bucket, MonoTime deadline);
  void add(const Addition& addition);
  void add_owned(const Bucket& own);
  /// Beside a computation a wire can be used. Bytes in memory would be moved by a processor that
  /// computes otherwise, and the next bucket's are waited for in between anyway.
  bool is_overlapped() const { return !is_last_ && !communicator_->shares_memory(); }
  Status reached(std::string_view point) const { return point_ ? point_(point) : Status(); }
  Status reached_bucket(const Bucket& bucket) const {
    return &bucket != &buckets_.back() ? reached("bucket") : Status();
  }

  const Reduction reduction_;
  const int rank_;
  const bool is_by_hosts_;
  const std::vector<int> beside_;        ///< on the same host, this process included
  const std::vector<HostNode> nodes_;    ///< of all hosts
  const std::vector<SumPass> passes_;    ///< of what is owned
  std::vector<std::size_t> held_nodes_;  ///< those of `nodes_` of which this process holds a part
  std::vector<std::vector<SumPass>> host_passes_;  ///< of these; empty where nothing is to be made
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
  std::size_t round_ = 0;  ///< the next
  bool is_last_ = false;   ///< nothing is computed beside it any more
  Status status_;

  std::vector<Bucket> buckets_;  ///< last, so that transfers under way end before their buffers
};

}  // namespace muster::engine
