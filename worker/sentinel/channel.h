// What a trainer process and its sentinel tell each other, over a socket pair the trainer inherits:
// steps, ends and troubles one way, memberships the other. Binary, one message a packet (a long
// view takes several), so that neither side parses text on the training path. Both ends are the
// same binary.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/split.h"
#include "worker/sentinel/pace.h"

namespace muster::sentinel {

/// One finished step of one process.
struct StepRecord {
  std::int64_t step = 0, total_steps = 0, epoch = 0;
  std::int64_t samples = 0;  ///< of this step, all workers
  std::int64_t checkpoint_step = -1;
  std::uint64_t sent_bytes = 0;                 ///< since the start of the process
  std::uint64_t logical_rank_computations = 0;  ///< since the start of the process
  double loss = 0;
  double accuracy = -1;
  double step_seconds = 0, data_seconds = 0, compute_seconds = 0, communicate_seconds = 0,
         update_seconds = 0;
  double record_seconds = 0, evaluate_seconds = 0, checkpoint_seconds = 0;
  std::int64_t membership_epoch = 0;  ///< that it was made in
  /// How much longer than a usual step it took, where a change of membership came in it; negative
  /// where none did, or nothing is known of usual ones.
  double change_delay_seconds = -1;
  /// Of sharded state: received of copies while it was made, and blocks that had too few before it.
  std::uint64_t copied_bytes = 0;
  std::int64_t blocks_short = 0;
  PartCounts part;  ///< of a model that is split
  double turn_seconds = 0;
};

/// CPU and memory of the process when it sent a group of steps.
struct Usage {
  double cpu_seconds = 0;
  std::uint64_t resident_bytes = 0;
};

struct StepsMessage {
  static constexpr std::size_t kMaxSteps = 64;
  Usage usage;
  std::vector<StepRecord> steps;
};

/// Before the first step (data and checkpoint are loaded) and at the end (`is_final`).
struct SummaryMessage {
  bool is_final = false;
  bool complete = false;  ///< false: stopped on request, or the others go on without it
  std::int64_t step = 0;  ///< -1: it has no state, and knows nothing of how far training is
  std::int64_t total_steps = 0, restored_step = -1, model_parameters = 0;
  std::int64_t checkpoint_step = -1;  ///< newest complete one; -1: it knows of none
  double loss = 0, accuracy = -1;
  std::uint64_t sent_bytes = 0, logical_rank_computations = 0;
  bool checkpoint_durable = false;
  std::string model_sha256, data_sha256;  ///< at most 64 bytes
  std::string checkpoint_path;            ///< at most kMaxPathBytes
};

struct FailureMessage {
  int exit_code = 0;
  std::string sentence;  ///< at most kMaxSentenceBytes
};

/// Data and checkpoint are looked at and the model's state is made: this process may be let in.
/// Again when it knows more of its data.
struct ReadyMessage {
  /// Of the job's spec and data as far as they are known before pictures are decoded, and of all of
  /// it; empty while it is not known. At most 64 bytes. Others are refused.
  std::string outline, contents;
};

/// The communicator of `epoch` cannot go on.
struct BrokenMessage {
  std::int64_t epoch = 0;
};

/// In place of a step: the process makes none until the rest of its copy of the model is there.
inline constexpr std::int64_t kWaits = -1;
/// Likewise, or until worker 0 is there, which keeps the files; and nobody has a state without it.
inline constexpr std::int64_t kWaitsForFiles = -2, kWaitsForState = -3;

/// The process trains in `epoch` from `step` on.
struct EnteredMessage {
  std::int64_t epoch = 0;
  std::int64_t step = 0;                      ///< first step made, or made again; or one of these
  std::int64_t recomputed_logical_ranks = 0;  ///< of this process, because their holder was lost
  std::uint64_t state_bytes = 0;              ///< of parameters and optimiser, received to get in
  double stall_seconds = 0;                   ///< without progress before; 0 at the start
  std::string returned = {};  ///< why all went back to a checkpoint; empty where they did not
};

/// How fast the process is in its membership.
struct PaceMessage {
  Pace pace;
};

/// The process has been busy with files for long; sent again each time that it takes twice as long,
/// and once more when it is over.
struct FilesMessage {
  std::int64_t seconds = 0;  ///< so far, 0: it is over
  /// A checkpoint that is written while training goes on; else the training thread stands.
  bool is_checkpoint = false;
  std::string path = {};  ///< at most kMaxPathBytes
};

/// The process trains in `epoch`: who is asked to leave of these workers takes no part of a sharded
/// state along that those who stay have not got, or has what it can save, as all have agreed.
struct SparedMessage {
  static constexpr std::size_t kMaxSlots = 1024;
  std::int64_t epoch = 0;
  std::vector<int> slots = {};  ///< ascending
};

inline constexpr std::size_t kMaxReturnedBytes = 160;
inline constexpr std::size_t kMaxPathBytes = 1024;
inline constexpr std::size_t kMaxSentenceBytes = 2048;

using TrainerMessage =
    std::variant<StepsMessage, SummaryMessage, FailureMessage, ReadyMessage, BrokenMessage,
                 EnteredMessage, PaceMessage, FilesMessage, SparedMessage>;

/// One trainer process of a view. `incarnation` counts the processes that this place has had.
struct ViewPeer {
  std::string host;  ///< at most kMaxHostBytes
  int port = 0;
  int slot = 0;
  int local_rank = 0;
  std::int64_t incarnation = 0;
  std::uint64_t domain = 0;  ///< view.h
  bool operator==(const ViewPeer&) const = default;
};

/// From the sentinel: who trains together. A trainer that has seen a view never goes back to an
/// older one; of several unread ones only the newest matters.
struct ViewMessage {
  std::int64_t epoch = 0;
  /// Leave the step under way (somebody of the view before is gone); else enter at the next step
  /// boundary.
  bool urgent = false;
  /// Everybody stops at that boundary, with a checkpoint.
  bool stop = false;
  int rank = -1;                ///< own index in `peers`; -1 = not a member (any more)
  std::vector<ViewPeer> peers;  ///< by slot, then local rank
  /// The worker was asked to leave; the same view is told again then.
  bool leaves = false;
  bool operator==(const ViewMessage&) const = default;
};

/// Whether those who train in `present`, and were told `before` last, must leave the step under way
/// because of `next`, which is urgent: one of them is lost, or their own connections are to be made
/// anew. What became of newcomers who have been told of since, and never trained, can wait.
bool concerns(const ViewMessage& next, const ViewMessage& present, const ViewMessage& before);

inline constexpr std::size_t kMaxHostBytes = 253;
/// Of one view: 4,096 processes, and what they need at most.
inline constexpr std::size_t kMaxViewPeers = 4096;

/// Bytes of one message; longer texts are cut.
std::vector<std::byte> encode(const TrainerMessage& message);
/// Errors: kCorrupt.
Result<TrainerMessage> decode(const std::byte* bytes, std::size_t size);
/// Bytes of one view, before it is cut into packets.
std::vector<std::byte> encode(const ViewMessage& view);
/// Errors: kCorrupt.
Result<ViewMessage> decode_view(std::span<const std::byte> bytes);

/// The trainer's end. Owns the descriptor. Never blocks training: what the sentinel does not take
/// is dropped, except the last word, which waits a second at most.
class ChannelWriter {
 public:
  explicit ChannelWriter(int fd);
  ~ChannelWriter();
  ChannelWriter(const ChannelWriter&) = delete;
  ChannelWriter& operator=(const ChannelWriter&) = delete;

  /// Sends at once the first step, then in groups of kMaxSteps or a tenth of a second.
  void add_step(const StepRecord& step);
  /// What the sentinel does not take at once is dropped: the next one says the same anew.
  void send_pace(const PaceMessage& message) const { send(message, 0); }
  void send_summary(const SummaryMessage& message);
  void send_failure(int exit_code, std::string_view sentence);
  /// These five from any thread; each waits a second at most for room.
  void send_ready(const ReadyMessage& message) const { send(message, kRoomMs); }
  void send_broken(const BrokenMessage& message) const { send(message, kRoomMs); }
  void send_entered(const EnteredMessage& message) const { send(message, kRoomMs); }
  void send_files(const FilesMessage& message) const { send(message, kRoomMs); }
  void send_spared(const SparedMessage& message) const { send(message, kRoomMs); }

 private:
  static constexpr int kRoomMs = 1000;
  void flush();
  void send(const TrainerMessage& message, int timeout_ms) const;

  int fd_;
  std::vector<StepRecord> steps_;
  double unsent_seconds_ = 1;  ///< so that the first step goes out at once
};

/// The trainer's ear. Borrows the descriptor that the ChannelWriter owns. Threads: one.
class ViewReader {
 public:
  explicit ViewReader(int fd) : fd_(fd) {}
  /// The next view, or nothing within `timeout`. Blocks: up to `timeout`. Errors: kUnavailable (the
  /// sentinel is gone; nothing more will come), kCorrupt.
  Result<std::optional<ViewMessage>> wait(milliseconds timeout);

 private:
  /// One packet there is; a view when it was the last of one.
  Result<std::optional<ViewMessage>> take_packet();

  int fd_;
  std::uint32_t serial_ = 0;  ///< of the view being put together
  std::vector<std::byte> bytes_;
};

/// The sentinel's mouth to one trainer. Borrows the descriptor. Never blocks: what does not fit now
/// goes out with a later pump(), and a newer view replaces one that is unsent. Threads: one.
class ViewSender {
 public:
  explicit ViewSender(int fd) : fd_(fd) {}
  /// It is urgent, too, where it replaces one that was: the trainer has not heard of that.
  void set(ViewMessage view);
  /// Whether pump() should be called once the descriptor is writable.
  bool has_unsent() const { return sent_ < bytes_.size(); }
  void pump();

 private:
  int fd_;
  std::uint32_t serial_ = 0;
  std::vector<std::byte> bytes_;
  std::size_t sent_ = 0;
  bool is_urgent_ = false;  ///< the view that is being sent
};

/// Two connected ends, close-on-exec; `reader` does not block. Errors: kIo.
struct ChannelPair {
  int reader = -1, writer = -1;
};
Result<ChannelPair> make_channel();
/// The next message; nothing when none is there now or the other side is gone. Errors: kCorrupt.
Result<std::optional<TrainerMessage>> receive(int fd);

}  // namespace muster::sentinel
