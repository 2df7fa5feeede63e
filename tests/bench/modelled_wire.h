// A communicator whose groups take as long as they would between machines: the bytes go over the
// real one, and a wait lasts until a network of the given speed would have moved them, too. Every
// rank has one link, which sends and receives at the same time; what others send it arrives in
// turn.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"

namespace muster::bench {

struct Wire {
  double bytes_per_second = 0;  ///< each way; 0: no network is modelled
  double latency_seconds = 0;
};

/// Threads: one. All ranks read one clock.
class ModelledWire final : public comm::Communicator {
 public:
  ModelledWire(comm::Communicator& real, const Wire& wire, const Clock& clock)
      : real_(real), wire_(wire), clock_(clock) {}
  int rank() const override { return real_.rank(); }
  int size() const override { return real_.size(); }
  void abort() override { real_.abort(); }
  std::uint64_t sent_bytes() const override { return real_.sent_bytes(); }

  Result<std::unique_ptr<comm::Work>> start_on(
      int channel, std::uint64_t step, comm::Memory memory, std::span<const comm::SendBuffer> sends,
      std::span<const comm::ReceiveBuffer> receives) override {
    auto work = std::make_unique<TimedWork>(clock_);
    std::vector<comm::SendBuffer> timed_sends(sends.begin(), sends.end());
    std::vector<comm::ReceiveBuffer> timed_receives(receives.begin(), receives.end());
    work->stamps.resize(static_cast<std::size_t>(size()) + 1);
    const MonoTime now = clock_.mono_now();
    std::vector<bool> is_from(work->stamps.size()), is_to(work->stamps.size());
    for (const auto& send : sends) {
      is_to[static_cast<std::size_t>(send.peer)] = true;
      sent_at_ = std::max(sent_at_, now) + duration_of(send.bytes);
    }
    for (const auto& receive : receives) {
      is_from[static_cast<std::size_t>(receive.peer)] = true;
      received_at_ = std::max(received_at_, now) + duration_of(receive.bytes);
    }
    if (!sends.empty()) work->stamps.back() = sent_at_;
    if (!receives.empty()) work->received_at = received_at_;
    work->latency = std::chrono::duration_cast<nanoseconds>(
        std::chrono::duration<double>(wire_.latency_seconds));
    for (int peer = 0; peer < size(); ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (is_to[at]) timed_sends.push_back({peer, &work->stamps.back(), sizeof(MonoTime)});
      if (is_from[at]) timed_receives.push_back({peer, &work->stamps[at], sizeof(MonoTime)});
    }
    MUSTER_ASSIGN_OR_RETURN(work->real,
                            real_.start_on(channel, step, memory, timed_sends, timed_receives));
    return std::unique_ptr<comm::Work>(std::move(work));
  }

 private:
  struct TimedWork final : comm::Work {
    explicit TimedWork(const Clock& time) : clock(time) {}
    ~TimedWork() override { real.reset(); }
    void proceed_alone() override { real->proceed_alone(); }
    Status wait(MonoTime deadline) override {
      MUSTER_RETURN_IF_ERROR(real->wait(deadline));
      MonoTime due = received_at;
      for (const MonoTime stamp : stamps) due = std::max(due, stamp);
      if (due == MonoTime{}) return {};
      const auto left = due + latency - clock.mono_now();
      if (left <= nanoseconds{0}) return {};
      const timespec pause{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      (void)ppoll(nullptr, 0, &pause, nullptr);
      return {};
    }
    const Clock& clock;
    std::vector<MonoTime> stamps;  ///< by rank, when it has sent its part; the last: own
    MonoTime received_at{};
    nanoseconds latency{};
    std::unique_ptr<comm::Work> real;
  };

  nanoseconds duration_of(std::size_t bytes) const {
    return std::chrono::duration_cast<nanoseconds>(
        std::chrono::duration<double>(static_cast<double>(bytes) / wire_.bytes_per_second));
  }

  comm::Communicator& real_;
  const Wire wire_;
  const Clock& clock_;
  MonoTime sent_at_{}, received_at_{};
};

}  // namespace muster::bench
