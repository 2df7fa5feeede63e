// What stands on the wire between two trainer processes: the header of a data frame and the four
// messages of the handshake. Bytes in, structs out; no sockets here.
//
// Handshake, D dialing L, both in one job with key K:
//   D -> L  Hello   ranks, size, epoch, nonce of D
//   L -> D  Answer  rank, epoch, nonce of L, proof(K, "listener")
//   D -> L  Proof   proof(K, "dialer"), and memory to share where D takes L for a process of its
//   machine L -> D  Accept  and whether L has found that memory
// A proof is HMAC-SHA256 under K over the role, the job's uid, Hello and the unsigned part of
// Answer, so it fits one pair of nonces, one epoch and one pair of ranks. After Accept both sides
// send frames: a header, then its payload; through the memory, where there is one, else on the
// connection. All integers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster::comm {

/// The greatest payload of one frame; longer messages are several frames. Small enough that sum and
/// copy of a frame meet the same cache, large enough that headers cost nothing.
inline constexpr std::size_t kFramePayloadMax = std::size_t{256} * 1024;
inline constexpr std::size_t kFrameHeaderBytes = 56;
using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

struct FrameHeader {
  std::uint32_t session = 0;        ///< from the handshake: this job, epoch and pair of ranks
  std::uint64_t epoch = 0;          ///< membership epoch
  std::uint64_t step = 0;           ///< training step given to Communicator::start
  std::uint64_t sequence = 0;       ///< number of the group (GroupNumbers), the same at both ends
  std::uint64_t message_bytes = 0;  ///< of the whole message this frame belongs to
  std::uint32_t payload_bytes = 0;  ///< of this frame, 1 to kFramePayloadMax
  std::uint32_t payload_crc = 0;    ///< CRC32C of the payload; 0 in shared memory

  bool operator==(const FrameHeader&) const = default;
};

void encode(const FrameHeader& header, FrameHeaderBytes& out);
/// Errors: kCorrupt (not a frame, header checksum, lengths out of bounds).
Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes);

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;
using JobKey = std::array<std::byte, 32>;

struct Hello {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t size = 0;
  std::uint64_t epoch = 0;
  Nonce nonce{};
};
inline constexpr std::size_t kHelloBytes = 56;

struct Answer {
  std::uint32_t rank = 0;
  std::uint64_t epoch = 0;
  Nonce nonce{};
  Proof proof{};
};
inline constexpr std::size_t kAnswerBytes = 80;
/// Where the other process finds shared memory (memory_lane.h).
struct LaneOffer {
  std::uint32_t pid = 0;  ///< 0: nothing is offered
  std::uint32_t fd = 0;   ///< of that process
  bool operator==(const LaneOffer&) const = default;
};

struct Introduction {
  Proof proof{};
  LaneOffer lane;
};
inline constexpr std::size_t kProofBytes = 44;

struct Accept {
  bool lane_is_taken = false;
};
inline constexpr std::size_t kAcceptBytes = 8;

void encode(const Hello& hello, std::span<std::byte, kHelloBytes> out);
void encode(const Answer& answer, std::span<std::byte, kAnswerBytes> out);
void encode(const Introduction& introduction, std::span<std::byte, kProofBytes> out);
void encode(const Accept& accept, std::span<std::byte, kAcceptBytes> out);
/// Errors of all four: kCorrupt (another protocol).
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes);
Result<Answer> decode_answer(std::span<const std::byte, kAnswerBytes> bytes);
Result<Introduction> decode_introduction(std::span<const std::byte, kProofBytes> bytes);
Result<Accept> decode_accept(std::span<const std::byte, kAcceptBytes> bytes);

/// Errors: kInvalid (not 64 hexadecimal digits). The message does not repeat the key.
Result<JobKey> parse_job_key(std::string_view hex);

/// The proof of `role` ("listener", "dialer", "session" for the stamp of frames, "lane" for shared
/// memory) over one handshake; `answer.proof` is not covered.
Proof make_proof(const JobKey& key, std::string_view role, const std::string& job_uid,
                 const Hello& hello, const Answer& answer);
/// Equality in constant time.
bool equal(const Proof& a, const Proof& b);
/// What FrameHeader::session is on this connection.
std::uint32_t session_of(const JobKey& key, const std::string& job_uid, const Hello& hello,
                         const Answer& answer);

}  // namespace muster::comm
