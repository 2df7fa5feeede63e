// The transfers of a step whose optimiser state is sharded: the reduced gradient of a block goes to
// the block's owner and its buddy alone, and after the update the parameters go to all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/engine/exchange.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/shard.h"

namespace muster::engine {

/// Payload bytes that `rank` sends in one step: those of GradientExchange::sum, because the buddy
/// is sent the gradient in place of the parameters, and one byte to each of the others.
std::uint64_t expected_bytes(const Assignment& assignment, const Shards& shards, int rank,
                             ExchangeSize size);

/// One membership's transfers. The node sums stay as they are, and so does what log() has brought,
/// until the next log(). Threads: one.
class ShardedExchange {
 public:
  /// As GradientExchange. `size.measured` is 0 or all of `shards.trained`.
  ShardedExchange(const Assignment& assignment, const Shards& shards, int rank, ExchangeSize size,
                  const std::vector<float*>& nodes);

  /// Adds up what this process owns and gives each what it needs for its updates. When it has
  /// returned well, this process can update all that it keeps without anybody's help.
  /// Points: "scatter" while node sums move, "reduced", "log" while reduced gradients move.
  /// Blocks: until `deadline`, twice on the other processes.  Errors: as comm::Work::wait, or the
  /// point's.
  Status log(comm::Communicator& communicator, kernels::cpu::Context& context, std::uint64_t step,
             MonoTime deadline, const ExchangePoint& point);

  /// After log(): returns when all others have logged, too. Point: "logged" while they tell it.
  /// Blocks, Errors: as log().
  Status confirm(comm::Communicator& communicator, std::uint64_t step, MonoTime deadline,
                 const ExchangePoint& point);

  // After log():
  /// Reduced gradients of all that this process keeps.
  std::span<const Gradient> gradients() const { return gradients_; }
  /// What stands behind the trained elements.  Shape: (elements - trained).
  std::span<const float> tail() const { return tail_; }
  /// As GradientExchange::block_squares.
  std::span<const float> block_squares() const { return block_squares_; }

  /// After the update: owners give `parameters` to all but those who have made the same update.
  /// Point: "gather" while they move.  Blocks, Errors: as log().
  Status gather(comm::Communicator& communicator, std::uint64_t step, std::span<float> parameters,
                MonoTime deadline, const ExchangePoint& point);

 private:
  void list_log(int processes);
  void finish_sum(kernels::cpu::Context& context);
  /// Of what `rank` owns, the part behind the trained elements, counted from there.
  ElementRange tail_of(int rank, int processes) const;

  Shards shards_;
  int rank_;
  ExchangeSize size_;
  OwnedSum sum_;
  std::vector<float> reduced_;  ///< of the owned elements; empty: the one node of the one process
  const float* own_ = nullptr;  ///< where it is
  std::vector<std::vector<float>> copies_;  ///< of the wards' elements
  std::vector<float> tail_, block_squares_;
  std::vector<Gradient> gradients_;
  std::vector<comm::SendBuffer> sends_;
  std::vector<comm::ReceiveBuffer> receives_;
};

}  // namespace muster::engine
