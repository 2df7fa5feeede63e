#include "cli/progress_view.h"

#include <algorithm>
#include <cmath>

#include "cli/terminal_text.h"

namespace muster::cli {
namespace {
constexpr milliseconds kLineInterval{2'000};
constexpr double kLongestSeconds = 1e9;
}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(std::ceil(std::clamp(seconds, 0.0, kLongestSeconds)));
  char text[64];
  if (whole < 60) {
    std::snprintf(text, sizeof text, "%ld s", whole);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%ld min %02ld s", whole / 60, whole % 60);
  } else {
    std::snprintf(text, sizeof text, "%ld h %02ld min", whole / 3600, whole % 3600 / 60);
  }
  return text;
}

std::string progress_text(const ProgressReport& report, const ProgressContext& context) {
  std::string text = "step " + std::to_string(report.step);
  if (report.total_steps > 0) text += "/" + std::to_string(report.total_steps);
  text += "  epoch " + std::to_string(report.epoch);
  if (!report.loss.empty()) text += "  loss " + report.loss;
  if (!report.accuracy.empty()) text += "  accuracy " + report.accuracy;
  if (report.samples_per_second > 0) {
    const bool is_text = context.tokens_per_sample > 0;
    const double per_sample = is_text ? static_cast<double>(context.tokens_per_sample) : 1.0;
    char rate[64];
    std::snprintf(rate, sizeof rate, "  %.0f %s/s", report.samples_per_second * per_sample,
                  is_text ? "tokens" : "samples");
    text += rate;
  }
  if (report.eta_seconds >= 0) text += "  ETA " + duration_text(report.eta_seconds);
  if (!context.workers.empty()) text += "  workers " + context.workers;
  return printable(text);
}

void ProgressView::progress(const std::string& text) {
  if (mode_ == ViewMode::kQuiet || !stream_.has_room()) return;
  if (mode_ == ViewMode::kTerminal) {
    // A row that is full to its end goes on in the next one, which "\r" does not lead back from.
    const std::size_t room = terminal_columns(::fileno(file_)) - 1;
    const std::string row(front_of(text, room));
    if (row == live_) return;
    // Spaces over what a longer line left.
    const std::size_t left = std::min(columns_of(live_), room), taken = columns_of(row);
    const std::string padding(left > taken ? left - taken : 0, ' ');
    write("\r" + row + padding);
    live_ = row;
    return;
  }
  const MonoTime now = clock_.mono_now();
  if (text == last_text_ || (last_line_ && now - *last_line_ < kLineInterval)) return;
  last_line_ = now;
  last_text_ = text;
  write(text + "\n");
}

void ProgressView::say(const std::string& text) {
  if (mode_ == ViewMode::kQuiet) return;
  end_line();
  write(printable(text) + "\n");
}

void ProgressView::end_line() {
  if (live_.empty()) return;
  write("\n");
  live_.clear();
}

void ProgressView::write(std::string_view text) {
  while (!text.empty()) {
    const std::string_view piece = text.substr(0, PatientStream::kPieceBytes);
    if (!stream_.write(piece)) return;
    text.remove_prefix(piece.size());
  }
}

}  // namespace muster::cli
