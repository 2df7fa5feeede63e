// What a trainer process tells its sentinel, over a socket pair it inherits: fixed structs, one a
// message, so that neither side parses text on the training path. Both ends are the same binary.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/result.h"

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
  bool complete = false;  ///< false: stopped on request after a checkpoint
  std::int64_t step = 0, total_steps = 0, restored_step = -1, model_parameters = 0;
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

inline constexpr std::size_t kMaxPathBytes = 1024;
inline constexpr std::size_t kMaxSentenceBytes = 2048;

using TrainerMessage = std::variant<StepsMessage, SummaryMessage, FailureMessage>;

/// Bytes of one message; longer texts are cut.
std::vector<std::byte> encode(const TrainerMessage& message);
/// Errors: kCorrupt.
Result<TrainerMessage> decode(const std::byte* bytes, std::size_t size);

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
  void send_summary(const SummaryMessage& message);
  void send_failure(int exit_code, std::string_view sentence);

 private:
  void flush();
  void send(const TrainerMessage& message, int timeout_ms) const;

  int fd_;
  std::vector<StepRecord> steps_;
  double unsent_seconds_ = 1;  ///< so that the first step goes out at once
};

/// Two connected ends, close-on-exec; `reader` does not block. Errors: kIo.
struct ChannelPair {
  int reader = -1, writer = -1;
};
Result<ChannelPair> make_channel();
/// The next message; nothing when none is there now or the other side is gone. Errors: kCorrupt.
Result<std::optional<TrainerMessage>> receive(int fd);

}  // namespace muster::sentinel
