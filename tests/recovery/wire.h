// The connections of one membership in the simulation: a communicator whose messages take their
// time on the stage, and meet what the world has in store for them. What is sent is read when it
// departs and not when the transfer starts, so that a buffer that is touched too early shows.
//
// What is delivered is in order and once, as TCP does. A message that comes twice is a fault of who
// sends: it is told from what is due by its numbers alone, as tcp_communicator.cpp does it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/recovery/stage.h"
#include "worker/comm/message.h"

namespace muster::sim {

/// What becomes of a message.
struct Journey {
  nanoseconds under_way{};
  bool is_cut = false;      ///< its connection breaks, and it is lost
  bool is_flipped = false;  ///< its checksum is wrong when it arrives
  bool is_twice = false;    ///< another comes behind it that is the same
};

/// The world as the connections see it. Members are known by their trainers' numbers.
class WireWorld {
 public:
  virtual ~WireWorld() = default;
  virtual int host_of(int trainer) = 0;
  /// What a message of `from` that starts now is for, as a number.
  virtual std::size_t kind_of_next(int from) = 0;
  virtual Journey depart(int from, int to, std::size_t kind) = 0;
  /// Before it is received.
  virtual void arrive(int from, int to, std::size_t kind) = 0;
  virtual nanoseconds short_time() = 0;
  /// A rule is broken.
  virtual void wrong(const std::string& what) = 0;
};

/// Shared by the ends of all members.
class Wire : public std::enable_shared_from_this<Wire> {
 public:
  /// `members`: trainers by rank. `stage` and `world` outlive it.
  Wire(Stage& stage, WireWorld& world, std::vector<int> members);

  /// The communicator of one rank, to be called once for each.
  std::unique_ptr<comm::Communicator> end_of(int rank);
  /// The member's process is gone. `is_silent`: its machine is, too, and nobody is told.
  void lose(int trainer, bool is_silent);

 private:
  class Work;
  class EndCommunicator;
  struct Group {
    std::size_t transfers_left = 0;
  };
  struct Posted {
    std::shared_ptr<Group> group;
    std::uint64_t step = 0, sequence = 0;
    comm::Message message;
    std::size_t kind = 0;
  };
  struct Arrived {
    std::uint64_t step = 0, sequence = 0;
    std::vector<std::byte> bytes;
    bool is_flipped = false;
    bool is_again = false;  ///< the second of two
  };
  /// From one rank to another.
  struct Lane {
    std::deque<Posted> sends, receives;
    std::deque<Arrived> arrived;
    MonoTime clear{};        ///< when all that departed has arrived
    bool is_closed = false;  ///< the receiver has seen that nothing comes any more
    bool is_cut = false;     ///< nothing arrives any more
  };
  struct End {
    comm::GroupNumbers numbers;
    std::uint64_t sent_bytes = 0;
    std::optional<Error> failure;
  };

  std::size_t size() const { return members_.size(); }
  Lane& lane(std::size_t from, std::size_t to) { return lanes_[from * size() + to]; }
  Result<std::shared_ptr<Group>> start(std::size_t rank, int channel, std::uint64_t step,
                                       comm::MessagesByPeer messages);
  Status wait(std::size_t rank, const Group& group, MonoTime deadline,
              const std::span<const int>* ranks = nullptr);
  void depart(std::size_t from, std::size_t to);
  void let_arrive(std::size_t from, std::size_t to, const Arrived& message, std::size_t kind);
  void arrive(std::size_t from, std::size_t to, Arrived message, std::size_t kind);
  void match(std::size_t from, std::size_t to);
  void cut(std::size_t from, std::size_t to);
  void close(std::size_t at, std::size_t peer);
  void look_for_lost(std::size_t rank);
  void fail(std::size_t rank, ErrorCode code, const std::string& why, bool is_told = true);

  Stage& stage_;
  WireWorld& world_;
  const std::vector<int> members_;
  std::vector<int> hosts_;  ///< likewise
  std::vector<End> ends_;
  std::vector<Lane> lanes_;
};

}  // namespace muster::sim
