// Bytes between the trainer processes of one membership epoch. A communicator moves bytes and never
// adds: every sum of the training step is done by kernels/ in a fixed order (docs/numerics.md).
// The interface is shaped so that TCP, shared memory, NVLink and NCCL all fit: grouped sends and
// receives on caller-owned buffers, completion by a handle, abort from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "worker/comm/arrivals.h"

namespace muster::comm {

/// Where a buffer lives. A host communicator refuses kCuda buffers with kUnsupported.
enum class Memory { kHost, kCuda };

struct SendBuffer {
  int peer = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

struct ReceiveBuffer {
  int peer = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// So many bytes in the time that a wait was given, either way and of any group, are a peer that
/// works. It bounds every wait: there are only so many bytes to move.
inline constexpr std::uint64_t kMovingBytes = std::uint64_t{1} << 20;

/// A group of transfers under way. Destroying an unfinished Work aborts the communicator, because
/// the buffers are about to go away.
class Work {
 public:
  virtual ~Work() = default;
  /// The caller does something else before it waits, and the bytes are to move meanwhile. Without
  /// this they may stand until somebody waits. Blocks: no.
  virtual void proceed_alone() {}
  /// Until every transfer of the group is complete. After an error the receive buffers are
  /// undefined. Blocks: until done, aborted, or `deadline`; over a network the deadline moves on by
  /// the time that was given as long as the communicator's bytes do (kMovingBytes), because what is
  /// large is not late. Errors: kAborted (a peer was lost, or abort()), kDeadlineExceeded (the
  /// communicator is then aborted, too), kCorrupt (a frame that cannot be right).
  virtual Status wait(MonoTime deadline) = 0;
  /// Until what comes from `ranks` is there: its buffers may be read, and nothing is known of the
  /// others before wait(). Blocks and errors: as wait(), which it is where a transport knows of
  /// whole groups alone.
  virtual Status wait_for(std::span<const int> /*ranks*/, MonoTime deadline) {
    return wait(deadline);
  }
};

/// Groups of one channel are in an order of their own: see make_subset.
inline constexpr int kChannels = 5;

/// P processes of one epoch. Collective calls (start) are made in the same order by every rank;
/// several groups may be under way at once. Threads: one thread starts and waits; abort() and
/// sent_bytes() from any.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Whether every peer is reached by memory: then moving bytes is work for a processor, and no
  /// wait for a wire that could be used.
  virtual bool shares_memory() const { return false; }

  /// By rank, a number for the host that it is on: the same for those who reach each other by
  /// memory. All ranks know the same ones. Empty: each is alone.
  virtual std::vector<int> hosts() const { return {}; }

  /// Starts one group: all `sends` and `receives`, none to itself. Several to or from one peer are
  /// matched in the order given (one frame may carry them all); the byte counts must match on both
  /// sides (checked on arrival: a difference is kCorrupt). Buffers belong to the caller and stay
  /// untouched by it until the Work is finished. `step` stamps the frames. Blocks: no.
  Result<std::unique_ptr<Work>> start(std::uint64_t step, Memory memory,
                                      std::span<const SendBuffer> sends,
                                      std::span<const ReceiveBuffer> receives) {
    return start_on(0, step, memory, sends, receives);
  }
  /// The same on a channel, 0 to kChannels - 1: only those who have transfers with each other there
  /// need start the same groups in the same order. Between two ranks that meet on several channels
  /// the groups of all of them are in one order.
  virtual Result<std::unique_ptr<Work>> start_on(int channel, std::uint64_t step, Memory memory,
                                                 std::span<const SendBuffer> sends,
                                                 std::span<const ReceiveBuffer> receives) = 0;

  /// Ends every transfer under way and all later ones with kAborted. Idempotent. Blocks: no.
  virtual void abort() = 0;

  /// By rank, seconds that wait() has waited until everything from that rank was there, summed
  /// since creation; empty where a transport does not measure it. Threads: the one that waits.
  virtual std::vector<double> waited_seconds() const { return {}; }

  /// By rank, what has come in large messages over a network since this was last called; nothing of
  /// whoever is reached by memory. Empty where a transport does not measure it, and of a subset.
  /// Threads: the one that waits.
  virtual std::vector<Arrivals> take_arrivals() { return {}; }

  /// Bytes written to peers since creation, headers and handshakes included, whichever way they
  /// went.
  virtual std::uint64_t sent_bytes() const = 0;
};

struct PeerAddress {
  std::string host;  ///< numeric address or DNS name
  int port = 0;
};

/// Connections closed before they became a peer's, by reason. Filled by make_tcp_communicator.
struct RefusedConnections {
  std::uint64_t garbage = 0;       ///< another protocol or version, or cut off in the middle
  std::uint64_t unauthorized = 0;  ///< did not prove the job key (stranger, replay, another job)
  std::uint64_t epoch = 0;         ///< of another membership epoch or size of gang
  std::uint64_t rank = 0;          ///< a rank that is not expected here, or is connected already
  std::uint64_t silent = 0;        ///< said nothing in time, or stood in the way of newer ones
};

struct TcpOptions {
  int rank = 0;
  int listen_fd = -1;  ///< listens and does not block; the communicator takes ownership
  /// By rank, this rank included; size() = peers.size(). Those under one address are on one host.
  std::vector<PeerAddress> peers;
  std::string job_key;  ///< 64 hexadecimal digits; every connection proves it both ways
  std::string job_uid;
  std::int64_t epoch = 0;  ///< frames and handshakes of another epoch are refused
  MonoTime
      connect_deadline;  ///< all connections stand by then, or kUnavailable names the missing rank
  /// Between processes of one machine (and network namespace) frames go through memory that the two
  /// share; the connection then only wakes them, and tells when one has ended.
  bool shares_memory = true;
  int cancel_fd = -1;  ///< optional; when it is readable, connecting ends with kAborted
  /// Optional; called by a thread that connects or waits, at least once a second. Must not block.
  std::function<void()> on_wait;
  const Clock* clock = nullptr;           ///< outlives the communicator
  RefusedConnections* refused = nullptr;  ///< optional; written until the call returns
};

/// Connects all ranks with each other (the higher rank dials the lower) and then closes the
/// listening socket, also on errors. Blocks: until connected or the deadline. Errors: kInvalid
/// (options), kAborted (cancelled), kUnavailable (names the missing ranks), kUnauthorized (a
/// missing rank answered with another key; tried until the deadline, because addresses are reused),
/// kIo.
Result<std::unique_ptr<Communicator>> make_tcp_communicator(const TcpOptions& options);

/// Some ranks of `whole`, which they have in the order of `ranks`; this process is one of them.
/// Each of them makes its own of the same ranks and channel, and two such sets on one channel have
/// nobody in common. Ending the subset's transfers ends those of `whole`; sent_bytes() is that of
/// `whole`, which outlives it.
std::unique_ptr<Communicator> make_subset(Communicator& whole, std::vector<int> ranks, int channel);

/// `size` ranks in one process, connected by memory, as if they were on `hosts`; for tests. The
/// clock outlives them.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, const Clock& clock,
                                                                    std::vector<int> hosts = {});

// ---- Collectives: free functions over any communicator
// ------------------------------------------------

/// all_to_all: `sends[p]` goes to rank p and `receives[p]` comes from it; entries of this rank are
/// copied. Bytes sent: sum of sends[p].size() over p != rank. Blocks: until `deadline`. Errors: as
/// Work::wait.
Status all_to_all(Communicator& communicator, std::uint64_t step,
                  std::span<const std::span<const std::byte>> sends,
                  std::span<const std::span<std::byte>> receives, MonoTime deadline);

/// all_gather of uneven pieces: `buffer` is cut at `offsets` (size() + 1 ascending byte positions);
/// on entry this rank's piece is filled, on return all are. Bytes sent: own piece x (P - 1).
Status all_gather(Communicator& communicator, std::uint64_t step, std::span<std::byte> buffer,
                  std::span<const std::size_t> offsets, MonoTime deadline);

/// `buffer` of rank `root` is copied to all. Bytes sent by root: buffer.size() x (P - 1).
Status broadcast(Communicator& communicator, std::uint64_t step, int root,
                 std::span<std::byte> buffer, MonoTime deadline);

/// Returns when every rank has entered. Bytes sent: 1 x (P - 1) and headers.
Status barrier(Communicator& communicator, std::uint64_t step, MonoTime deadline);

}  // namespace muster::comm
