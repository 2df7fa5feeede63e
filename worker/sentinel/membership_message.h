// What sentinels say to each other about membership.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "common/result.h"
#include "worker/sentinel/pace.h"
#include "worker/sentinel/view.h"

namespace muster::sentinel {

/// Who tries to decide, and the how manieth time. Unique within one decision.
struct Ballot {
  std::int64_t round = 0;  ///< 0 = none
  int slot = 0;
  auto operator<=>(const Ballot&) const = default;
};

/// Sent all the time, and at once when something in it changes.
struct Beat {
  Seat self;                 ///< with the trainers that are ready
  std::uint64_t digest = 0;  ///< of what its trainers are about
  bool is_leaving = false;
  bool is_done = false;             ///< its trainers have finished the job
  std::int64_t broken_epoch = 0;    ///< newest epoch whose communicator broke; 0 = none
  std::vector<int> unheard;         ///< slots of its view, or that left it, not heard; ascending
  std::vector<WorkerId> dead;       ///< of its view, certainly
  std::vector<WorkerId> newcomers;  ///< outside its view, heard
  std::vector<Pace> paces{};        ///< of its trainers that have one
};

struct Prepare {
  Ballot ballot;
};
struct Promise {
  Ballot ballot;
  std::int64_t epoch_max = 0;  ///< newest number the sender has seen anywhere
  Ballot accepted_ballot;      ///< round 0 = nothing accepted yet
  View accepted;
};
/// The ballot is too old; `promised` was given to somebody.
struct Nack {
  Ballot promised;
};
struct Accept {
  Ballot ballot;
  View view;
};
struct Accepted {
  Ballot ballot;
};
struct Commit {
  View view;
};
/// The sender ends now.
struct Bye {};
/// To one who wants in and does not fit.
struct Refusal {
  std::string reason;  ///< at most 256 bytes
};

using MessageBody =
    std::variant<Beat, Prepare, Promise, Nack, Accept, Accepted, Commit, Bye, Refusal>;

inline constexpr std::uint64_t kTakesPieces = std::uint64_t{1} << 63;

struct Message {
  WorkerId from;
  /// Grows with every message of the sender. A build that takes long messages in pieces counts from
  /// kTakesPieces on; older ones count from 0, and take a message in one datagram alone.
  std::uint64_t sequence = 0;
  /// Of the sender's newest view; those about a decision are about what follows that view.
  std::int64_t epoch = 0;
  MessageBody body;
};

/// "Beat", "Prepare" ...
const char* name_of(const MessageBody& body);

inline constexpr std::size_t kMessageKinds = std::variant_size_v<MessageBody>;
/// Largest encoded message: what one datagram takes with room for its frame, as older builds want
/// it.
inline constexpr std::size_t kMaxMessageBytes = 60'000;
inline constexpr std::size_t kMaxReasonBytes = 256;

/// Empty when it would be longer than kMaxMessageBytes. Domains are in it only where one is known,
/// so that a gang without them talks as older builds do.
std::vector<std::byte> encode(const Message& message);
/// Errors: kCorrupt.
Result<Message> decode_message(std::span<const std::byte> bytes);

}  // namespace muster::sentinel
