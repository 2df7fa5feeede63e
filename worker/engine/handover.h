// What one process gives others and takes from them at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/result.h"
#include "worker/comm/communicator.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/ranges.h"

namespace muster::engine {

/// Every process adds the same in the same order. What is added stays where it is until all has
/// been moved.
class Handover {
 public:
  explicit Handover(comm::Communicator& communicator) : communicator_(communicator) {}

  void add(int from, int to, void* values, std::size_t bytes) {
    if (bytes == 0) return;
    if (from == communicator_.rank()) sends_.push_back({to, values, bytes});
    if (to == communicator_.rank()) receives_.push_back({from, values, bytes});
  }
  /// The optimiser's state of `range`, for which those two have room.
  void add_state(int from, int to, OptimizerState& state, ElementRange range) {
    if (from != communicator_.rank() && to != communicator_.rank()) return;
    for (auto& buffer : state.buffers) {
      add(from, to, buffer.values.data() + offset_of(state.room, range),
          range.size() * sizeof(float));
    }
  }

  /// Of this process.
  std::uint64_t received_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& part : receives_) bytes += part.bytes;
    return bytes;
  }
  /// Blocks, errors: as Communicator::start.
  Result<std::unique_ptr<comm::Work>> start(std::uint64_t stamp) const {
    return communicator_.start(stamp, comm::Memory::kHost, sends_, receives_);
  }

 private:
  comm::Communicator& communicator_;
  std::vector<comm::SendBuffer> sends_;
  std::vector<comm::ReceiveBuffer> receives_;
};

}  // namespace muster::engine
