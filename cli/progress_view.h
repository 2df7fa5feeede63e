// What a person sees while a job runs: one live line, and a line for everything that happens.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/messages.h"
#include "common/patient_stream.h"

namespace muster::cli {

/// What a progress line tells beyond the report of a worker.
struct ProgressContext {
  std::string workers;                 ///< "2/2"
  std::int64_t tokens_per_sample = 0;  ///< 0: the samples are no texts
};

/// "step 220/440  epoch 10  loss 0.1234  accuracy 0.9611  51200 samples/s  ETA 3 s  workers 2/2";
/// of texts tokens/s in the place of samples/s; what is not known yet is left out.
std::string progress_text(const ProgressReport& report, const ProgressContext& context);

/// "3 s", "2 min 05 s", "1 h 02 min".
std::string duration_text(double seconds);

enum class ViewMode {
  kTerminal,  ///< the live line is rewritten in place, as much of it as a row holds
  kLines,     ///< a line every two seconds
  kQuiet,     ///< nothing
};

/// Threads: one.
class ProgressView {
 public:
  ProgressView(std::FILE* file, ViewMode mode, const Clock& clock)
      : file_(file), stream_(file), mode_(mode), clock_(clock) {}
  ~ProgressView() { end_line(); }
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  /// Left out where the reader of `file` stands still. Blocks: no.
  void progress(const std::string& text);
  /// A line of its own; control characters (they may come from a worker's log) become spaces.
  /// Blocks: a second for a reader that stands still, and then no more until it goes on, because
  /// who calls this also hears the signals. What is not taken by then is left out.
  void say(const std::string& text);
  /// Ends the live line, so that another stream may write on the same terminal.
  void end_line();

 private:
  void write(std::string_view text);

  std::FILE* file_;
  PatientStream stream_;  ///< on it
  ViewMode mode_;
  const Clock& clock_;
  std::string live_;  ///< what the live line shows
  std::optional<MonoTime> last_line_;
  std::string last_text_;
};

}  // namespace muster::cli
