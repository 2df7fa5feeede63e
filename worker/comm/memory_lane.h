// Two byte rings in memory that two processes of one machine share, one each way: what a socket
// does between them, without the kernel's copies. Nobody waits here: who finds nothing to do tells
// the other, which says so to whoever is to wake the first.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "common/file.h"
#include "common/result.h"
#include "worker/comm/frame.h"

namespace muster::comm {

/// One side of a pair. Threads: one at a time.
class MemoryLane {
 public:
  /// What may stand in one direction of each lane of a process that has so many: a power of two, 1
  /// MiB at most, and of all lanes together a few MiB.
  static std::size_t ring_bytes(std::size_t lanes);

  MemoryLane(const MemoryLane&) = delete;
  MemoryLane& operator=(const MemoryLane&) = delete;
  ~MemoryLane();

  /// New memory with `proof` in it, which nobody but the process meant can tell. Requires
  /// `ring_bytes` of ring_bytes(). Errors: kIo.
  static Result<std::unique_ptr<MemoryLane>> make(const Proof& proof, std::size_t ring_bytes);
  /// The other side of what a process of this machine offers. Errors: kNotFound (no such thing
  /// there, or this process may not see it), kUnauthorized (another proof), kIo.
  static Result<std::unique_ptr<MemoryLane>> open(const LaneOffer& offer, const Proof& proof);

  /// Of a lane that was made, until close_offer().
  LaneOffer offer() const;
  void close_offer() { offered_.reset(); }

  struct Moved {
    std::size_t bytes = 0;
    bool wakes = false;  ///< the other side found nothing to do before, and has something now
  };
  /// Copies from the beginning of `pieces` what there is room for, and no more than kCopyBytes. 0
  /// bytes: there is none; some read() of the other side will say `wakes` when there is much.
  /// Errors: kCorrupt (the other side wrote nonsense).
  Result<Moved> write(std::span<const iovec> pieces);
  /// The same into `pieces`. 0 bytes: nothing is there; the next write() of the other side will say
  /// `wakes`.
  Result<Moved> read(std::span<const iovec> pieces);

 private:
  // Counts of bytes since the beginning, each on a cache line of who changes it.
  struct Ring {
    alignas(64) std::atomic<std::uint64_t> written{0};
    std::atomic<std::uint32_t> writer_sleeps{0};
    alignas(64) std::atomic<std::uint64_t> read{0};
    std::atomic<std::uint32_t> reader_sleeps{0};
  };
  struct Shared;
  struct Mapped {
    Shared* shared = nullptr;
    std::size_t ring_bytes = 0;
  };

  MemoryLane(Mapped mapped, UniqueFd offered, int own)
      : mapped_(mapped), offered_(std::move(offered)), own_(own) {}
  static Result<Mapped> map(int fd, std::size_t ring_bytes);
  std::byte* bytes_of(int ring) const;

  const Mapped mapped_;
  UniqueFd offered_;
  const int own_;  ///< the ring that this side writes: 0 who made the lane, 1 who opened it
  // What this side has moved itself: nobody else can make it lose count.
  std::uint64_t written_ = 0, read_ = 0;
};

}  // namespace muster::comm
