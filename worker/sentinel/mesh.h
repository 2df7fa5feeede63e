// Datagrams between the sentinels of one job. Each is authenticated under the job's key and taken
// once; whatever else arrives is dropped and counted. Nothing is sent twice here: membership
// repeats what matters. Who has another key is told so, that it need not wait for ever: in the
// clear, because there is no key in common, but in words that only who saw its datagram can say.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/result.h"
#include "worker/sentinel/membership_message.h"
#include "worker/sentinel/socket_address.h"

namespace muster::sentinel {

/// Datagrams that were dropped, by reason.
struct MeshDrops {
  std::uint64_t garbage = 0;       ///< not a datagram of this protocol, or no message in it
  std::uint64_t unauthorized = 0;  ///< of another job, or without its key
  std::uint64_t misdirected = 0;   ///< to another worker, who may have been here before
  std::uint64_t repeated = 0;      ///< taken before, or too old to tell
};

/// Of how many attempts at one slot something is remembered, for workers are replaced as long as a
/// job lasts: the newest, and those before it that may still be about to die or to be answered.
inline constexpr std::ptrdiff_t kAttemptsKept = 3;

/// The first bytes of a sealed datagram's MAC. Nobody guesses them, so who knows them was sent it.
using Echo = std::array<std::byte, 16>;
/// Of a datagram that MeshSeal::seal has made, or has found to be of another key.
Echo echo_of(std::span<const std::byte> datagram);
/// What is answered to the latter. Layout: magic (4), its echo: shorter than whatever it answers,
/// so that a forged sender's address gains nothing by it.
inline constexpr std::size_t kRefusalBytes = 4 + sizeof(Echo);
std::array<std::byte, kRefusalBytes> make_refusal(const Echo& echo);
/// The echo of such an answer; nothing when it is none.
std::optional<Echo> read_refusal(std::span<const std::byte> datagram);

/// Longest datagram to a build that takes pieces: with the headers of IPv6 and UDP the 1,280 bytes
/// that every network of IPv6 passes as one packet. What is longer is cut on its way, and some
/// networks drop all that is cut.
inline constexpr std::size_t kUncutDatagramBytes = 1'232;

/// Seals and opens datagrams. Layout: magic (4), HMAC-SHA256 (32) over uid, receiver and message,
/// the receiver's slot (4) and attempt (4), message; numbers are little-endian. The receiver is in
/// it so that what was said to one worker cannot be played to another, who has not taken it yet.
///
/// A message too long for kUncutDatagramBytes goes in pieces. Each is such a datagram of its own,
/// with another magic, under another key, and in the message's place the sender's slot (4) and
/// attempt (4), the message's sequence (8), the piece's index (2), how many there are (2), and its
/// part of the message. Of each sender at most one message is kept until all of it is there: the
/// newest.
class MeshSeal {
 public:
  MeshSeal(const std::string& job_key, std::string job_uid, WorkerId self);
  /// What carries `message` (of that sequence, encoded) to `to`, at least one datagram. A build
  /// that was heard and takes no pieces gets it in one.
  std::vector<std::vector<std::byte>> seal(WorkerId to, std::uint64_t sequence,
                                           std::span<const std::byte> message) const;
  /// The message, whole and taken for the first time; nothing when a piece of it is missing, or
  /// (and then it is counted) when the datagram is to be dropped.
  std::optional<Message> open(std::span<const std::byte> datagram, MeshDrops& drops);

 private:
  /// Which of the newest 64 sequence numbers of a sender were taken.
  struct Window {
    std::uint64_t newest = 0;
    std::uint64_t taken = 0;  ///< bit i: newest - i
    /// Or it is too old to tell.
    bool has_taken(std::uint64_t sequence) const;
  };
  struct Unfinished {
    std::uint64_t sequence = 0;
    std::vector<std::vector<std::byte>> pieces;  ///< an empty one is missing
  };
  using Mac = std::array<unsigned char, 32>;
  /// What tells a whole message's datagram from a piece's.
  struct Form {
    const std::array<char, 4>& magic;
    const Mac& key;
  };
  Mac make_mac(const Mac& key, std::span<const std::byte> receiver_and_message) const;
  std::vector<std::byte> seal_one(const Form& form, WorkerId to,
                                  std::span<const std::byte> text) const;
  std::vector<std::byte> take_piece(std::span<const std::byte> in, MeshDrops& drops);
  Window* window_of(WorkerId from);
  bool take_once(WorkerId from, std::uint64_t sequence);

  Mac key_{}, piece_key_{};
  std::string job_uid_;
  WorkerId self_;
  std::map<WorkerId, Window> windows_;
  std::map<WorkerId, Unfinished> unfinished_;  ///< by sender; bounded
};

/// Threads: one owner.
class Mesh {
 public:
  /// Listens on `address`, any free port. Errors: kIo with exit code kPort.
  static Result<Mesh> open(const std::string& address);

  int port() const { return port_; }
  /// Readable when receive() has something.
  int event_fd() const { return epoll_.get(); }
  /// Before anything is sent or received.
  void set_seal(MeshSeal seal) { seal_.emplace(std::move(seal)); }

  /// To `to`, who listens at `host` (numeric) and `port`; one it had elsewhere before is forgotten.
  /// Blocks: no.
  void send(WorkerId to, const std::string& host, int port, const Message& message);

  struct Received {
    std::vector<Message> messages;
    bool is_more = false;  ///< than was looked at
    /// Nobody listens there any more, says the kernel of theirs, each once. What a firewall or a
    /// router on the way says is silence.
    std::vector<WorkerId> refused;
    std::vector<WorkerId> unauthorized;  ///< they say that their key is not this worker's
    /// Numeric addresses that datagrams under another key came from, each once, at most
    /// kMaxStrangers. They may be forged.
    std::vector<std::string> strangers;
  };
  static constexpr std::size_t kMaxStrangers = 8;
  /// What there is now, of at most 1,000 datagrams. Blocks: no.
  Received receive();
  const MeshDrops& drops() const { return drops_; }

 private:
  /// Of so many messages to one peer a refusal is understood; at a beat's pace a second's.
  static constexpr std::size_t kEchoesKept = 32;
  struct Peer {
    UniqueFd fd;
    std::string host;
    int port = 0;
    SocketAddress address;
    std::array<Echo, kEchoesKept> echoes{};
    std::size_t sent = 0;
  };
  Peer* find_or_connect(WorkerId to, const std::string& host, int port);
  /// Whether it has gone.
  bool send_one(WorkerId to, const Peer& peer, std::span<const std::byte> datagram);
  /// Of the socket to `of`, who is refused when its own kernel says so.
  void take_errors(WorkerId of, const Peer& peer);
  void refuse(std::span<const std::byte> datagram, SocketAddress from, Received& received) const;
  /// Whether the other side has another key. Takes what there is of its answers.
  static bool take_refusals(const Peer& peer);
  void forget_earlier(WorkerId than);

  UniqueFd socket_, epoll_;
  int port_ = 0;
  std::optional<MeshSeal> seal_;
  std::map<WorkerId, Peer> peers_;
  std::vector<WorkerId> refused_;
  MeshDrops drops_;
  std::vector<std::byte> buffer_;  ///< of receive(); it has room for the largest datagram
  bool is_size_told_ = false;      ///< that a message was too long to be sent
};

}  // namespace muster::sentinel
