// A communicator that somebody else may end while its user has it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "worker/comm/communicator.h"

namespace muster::comm {

/// Hands everything on to `real`, which others hold, too. Threads: as the real one.
class SharedCommunicator : public Communicator {
 public:
  explicit SharedCommunicator(std::shared_ptr<Communicator> real) : real_(std::move(real)) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  bool shares_memory() const override { return real_->shares_memory(); }
  std::vector<int> hosts() const override { return real_->hosts(); }
  Result<std::unique_ptr<Work>> start_on(int channel, std::uint64_t step, Memory memory,
                                         std::span<const SendBuffer> sends,
                                         std::span<const ReceiveBuffer> receives) override {
    return real_->start_on(channel, step, memory, sends, receives);
  }
  void abort() override { real_->abort(); }
  std::vector<double> waited_seconds() const override { return real_->waited_seconds(); }
  std::vector<Arrivals> take_arrivals() override { return real_->take_arrivals(); }
  std::uint64_t sent_bytes() const override { return real_->sent_bytes(); }

 private:
  std::shared_ptr<Communicator> real_;
};

/// The same for a user whose end ends the communicator: the peers then see the connections close,
/// whoever else still holds it.
class LentCommunicator final : public SharedCommunicator {
 public:
  using SharedCommunicator::SharedCommunicator;
  ~LentCommunicator() override { SharedCommunicator::abort(); }
};

}  // namespace muster::comm
