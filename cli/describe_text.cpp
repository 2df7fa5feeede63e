#include "cli/describe_text.h"

#include <algorithm>

#include "cli/cost_words.h"
#include "cli/job_story.h"
#include "cli/job_table.h"
#include "cli/progress_view.h"
#include "cli/terminal_text.h"
#include "common/contract.h"
#include "operator/api/pod.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMaxEvents = 25;
constexpr std::size_t kMaxLogLines = 20;
constexpr std::size_t kMaxToldWorkers = 64;
const std::string kIndent = "  ";
constexpr std::size_t kLabelWidth = 13;
constexpr std::size_t kAgeWidth = 9;
constexpr std::size_t kMaxNote = 1024;

/// `text` with spaces up to `width`, and one at least.
std::string padded(const std::string& text, std::size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 1, ' ');
}

class Page {
 public:
  Page(const Description& about, const Display& display, WallTime now)
      : about_(about), job_(about.job), display_(display), now_(now) {}

  std::string write();

 private:
  void heading(const std::string& text) {
    out_ += "\n" + coloured(text, Colour::kHead, display_) + "\n";
  }
  /// An indented paragraph; `indent` is that of its further lines.
  void paragraph(const std::string& text, const std::string& indent = kIndent) {
    out_ += kIndent + wrapped(printable(text), display_.width, indent) + "\n";
  }
  void fact(const std::string& label, const std::string& text) {
    if (text.empty()) return;
    const std::string head = kIndent + padded(label, kLabelWidth);
    out_ += head + wrapped(printable(text), display_.width, std::string(head.size(), ' ')) + "\n";
  }
  void indented_table(Table& table);

  void write_story();
  void write_facts();
  void write_workers();
  void write_conditions();
  void write_last_words();
  void write_events();
  std::string progress_words() const;
  std::string checkpoint_words() const;
  std::string workers_words() const;
  std::string model_words() const;

  const Description& about_;
  const api::TrainingJob& job_;
  const Display& display_;
  WallTime now_;
  std::string out_;
};

void Page::indented_table(Table& table) {
  const std::string text = table.take(display_);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out_ += kIndent + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
}

void Page::write_story() {
  const JobStory story = tell_story(job_, about_.pods, now_);
  const std::string word = status_word(job_, now_);
  out_ += coloured(job_.meta.name, Colour::kHead, display_) + " in namespace " +
          job_.meta.namespace_name + ": " +
          coloured(story.headline, colour_of_phase(word), display_) + "\n";
  for (const std::string& text : story.happened) paragraph(text);
  if (!about_.expected_start.empty()) paragraph(about_.expected_start);
  if (story.help.empty()) return;
  heading(job_.status.is_true("Complete") || job_.status.is_true("Suspended") ? "What next"
                                                                              : "What would help");
  for (const std::string& text : story.help) paragraph(text);
}

std::string Page::progress_words() const {
  if (!job_.status.progress) return "";
  const api::Progress& progress = *job_.status.progress;
  const bool runs = job_.status.is_true("Running");
  std::string text = "step " + grouped(progress.step);
  if (progress.total_steps > 0) {
    text +=
        " of " + grouped(progress.total_steps) + " (" + std::to_string(percent_done(job_)) + "%)";
  }
  text += ", epoch " + grouped(progress.epoch);
  if (!progress.loss.empty()) text += ", loss " + progress.loss;
  if (!progress.accuracy.empty()) text += ", accuracy " + progress.accuracy;
  if (const std::string speed = speed_text(job_); runs && !speed.empty()) {
    text += ", " + speed;
  }
  if (runs && !progress.step_milliseconds.empty()) {
    text += ", " + progress.step_milliseconds + " ms a step";
    if (!progress.exchange_milliseconds.empty()) {
      text += " (" + progress.exchange_milliseconds + " of it exchange)";
    }
    if (!progress.predicted_step_milliseconds.empty()) {
      text += ", predicted " + progress.predicted_step_milliseconds + " ms";
    }
  }
  if (runs && progress.eta_seconds >= 0) {
    text += ", about " + duration_text(static_cast<double>(progress.eta_seconds)) + " to go";
  }
  if (runs && progress.updated_at)
    text += " (as of " + age_text(progress.updated_at, now_) + " ago)";
  return text;
}

std::string Page::checkpoint_words() const {
  if (!job_.spec.training) return "";
  const auto& spec = job_.spec.training->checkpoint;
  const auto& status = job_.status.checkpoint;
  const bool has_claim = spec && !spec->volume_claim_name.empty();
  std::string text;
  if (status && status->step >= 0) {
    text = "step " + grouped(status->step);
    if (status->time) text += ", " + age_text(status->time, now_) + " ago";
    text += ", ";
  } else if (job_.status.finished()) {
    return "";
  } else if (spec) {
    text = "none yet, every " + grouped(spec->every_steps) + " steps, ";
  } else {
    return "never: spec.training.checkpoint is not set";
  }
  return has_claim ? text + "on the claim " + spec->volume_claim_name
                   : text +
                         "on the own disk of slot 0's node, and lost with its pod (no "
                         "spec.training.checkpoint.volumeClaimName)";
}

std::string Page::workers_words() const {
  const api::WorkerSpec& worker = job_.spec.worker;
  const bool tells_running = !job_.status.workers.empty() && !job_.status.finished();
  std::string text = tells_running ? job_.status.workers + " run; " : "";
  text += std::to_string(worker.count) + " wished";
  if (worker.min != worker.max) {
    text += ", " + std::to_string(worker.min) + " to " + std::to_string(worker.max) + " allowed";
  }
  if (worker.processes > 1) text += "; " + std::to_string(worker.processes) + " processes each";
  if (worker.size > 1) {
    text += "; each is " + std::to_string(worker.size) + " of the " +
            std::to_string(worker.count * worker.size) + " in spec.worker.count";
  }
  return text;
}

std::string Page::model_words() const {
  if (job_.status.model_parameters <= 0) return "";
  std::string text = grouped(job_.status.model_parameters) + " parameters";
  if (!job_.status.model_sha256.empty()) text += ", SHA-256 " + job_.status.model_sha256;
  return text;
}

void Page::write_facts() {
  out_ += "\n";
  fact("Progress", progress_words());
  fact("Checkpoint", checkpoint_words());
  fact("Model", model_words());
  fact("Workers", workers_words());
  if (job_.spec.restart.policy == "Never") {
    fact("Restarts", "never (spec.restart.policy)");
  } else {
    fact("Restarts", std::to_string(job_.status.restarts) + " of at most " +
                         std::to_string(job_.spec.restart.max_restarts));
  }
  if (job_.status.cost) fact("Cost", cost_words(*job_.status.cost, now_));
  fact("Queue", job_.spec.queue_name);
  fact("Priority", job_.spec.priority_class_name);
  std::string image = job_.spec.worker.image;
  if (image.empty() && !about_.pods.empty()) image = about_.pods.back().image;
  fact("Image", image);
  fact("Made", age_text(job_.meta.creation_time, now_) + " ago");
  fact("Note", api::about_gpus(job_.spec));
  for (const std::string& note : about_.notes) fact("Note", note);
}

std::string state_of(const PodView& pod) {
  if (pod.is_deleting) return "Leaving";
  if (pod.end) {
    return pod.end->exit_code == 0 ? "Done" : "Ended with " + std::to_string(pod.end->exit_code);
  }
  if (!pod.trouble.empty()) return pod.trouble;
  if (pod.phase == "Pending" && !pod.first_container.empty()) return "Init:" + pod.first_container;
  if (pod.phase == "Pending" && !pod.node.empty()) return "Starting";
  return pod.phase;
}

Colour colour_of(const PodView& pod) {
  const std::string state = state_of(pod);
  if (state == "Done" || state == "Running") return Colour::kGood;
  return pod.end || !pod.trouble.empty() || pod.phase == "Failed" ? Colour::kBad : Colour::kBusy;
}

void Page::write_workers() {
  heading("Workers");
  Table table({">SLOT", ">ATTEMPT", "STATE", "NODE", "DOMAIN", "POD", ">AGE"});
  std::size_t rows = 0;
  const auto domain_of = [this](int slot) {
    for (const auto& placement : job_.status.placement) {
      if (placement.slot == slot) return placement.domain;
    }
    return std::string();
  };
  std::vector<int> seen;
  for (const PodView& pod : about_.pods) {
    if (rows++ >= kMaxToldWorkers) break;
    seen.push_back(pod.slot);
    table.add({{pod.slot < 0 ? "" : std::to_string(pod.slot)},
               {std::to_string(pod.attempt)},
               {state_of(pod), colour_of(pod)},
               {pod.node},
               {domain_of(pod.slot)},
               {pod.name},
               {age_text(pod.created, now_)}});
  }
  for (const auto& placement : job_.status.placement) {
    if (std::find(seen.begin(), seen.end(), placement.slot) != seen.end()) continue;
    if (rows++ >= kMaxToldWorkers) break;
    table.add({{std::to_string(placement.slot)},
               {std::to_string(placement.attempt)},
               {"No pod", Colour::kDim},
               {placement.node},
               {placement.domain},
               {},
               {}});
  }
  if (rows == 0) return paragraph("none: no pod of this job is there");
  indented_table(table);
  if (about_.pods.size() > kMaxToldWorkers) {
    paragraph("and " + std::to_string(about_.pods.size() - kMaxToldWorkers) + " more pods");
  }
}

void Page::write_conditions() {
  if (job_.status.conditions.empty()) return;
  heading("Conditions");
  for (const char* type :
       {"Admitted", "Running", "Restarting", "Suspended", "Complete", "Failed"}) {
    const api::Condition* condition = job_.status.condition(type);
    if (condition == nullptr) continue;
    const std::string text = padded(type, 12) + padded(condition->status, 9) +
                             padded(age_text(condition->last_transition_time, now_), kAgeWidth);
    const std::string indent(kIndent.size() + text.size(), ' ');
    const std::string words =
        condition->reason + (condition->message.empty() ? "" : ": " + condition->message);
    out_ += kIndent + text + wrapped(printable(words), display_.width, indent) + "\n";
  }
}

void Page::write_last_words() {
  if (!job_.status.failure) return;
  const api::FailureStatus& failure = *job_.status.failure;
  heading("Last failure");
  std::string text = "worker " + std::to_string(failure.slot);
  if (failure.attempt >= 0) {
    // By which its log is found where logs are kept: in the table above its replacement may stand.
    text += " (attempt " + std::to_string(failure.attempt) + ", pod " +
            api::pod_name(job_, failure.slot, failure.attempt) + ")";
  }
  if (!failure.node.empty()) text += " on " + failure.node;
  if (!failure.container.empty()) text += ", in init container " + failure.container;
  text += failure.exit_code != 0 ? ", exit code " + std::to_string(failure.exit_code) : "";
  paragraph(text + " (" + failure.reason + ")" +
            (failure.log_tail.empty() ? "" : "; its last words:"));
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < failure.log_tail.size();) {
    const std::size_t end = std::min(failure.log_tail.find('\n', begin), failure.log_tail.size());
    if (end > begin) lines.push_back(failure.log_tail.substr(begin, end - begin));
    begin = end + 1;
  }
  const std::size_t first = lines.size() > kMaxLogLines ? lines.size() - kMaxLogLines : 0;
  for (std::size_t i = first; i < lines.size(); ++i) {
    out_ += kIndent + coloured("| ", Colour::kDim, display_) + printable(lines[i]) + "\n";
  }
}

void Page::write_events() {
  if (!about_.has_events && about_.events.empty()) return;
  heading("Events");
  if (about_.events.empty()) return paragraph("none in the cluster's memory (an hour, as a rule)");
  const std::size_t first =
      about_.events.size() > kMaxEvents ? about_.events.size() - kMaxEvents : 0;
  const std::string own = std::string(contract::kKindTrainingJob) + " " + job_.meta.name;
  for (std::size_t i = first; i < about_.events.size(); ++i) {
    const EventView& event = about_.events[i];
    const std::string age = age_text(event.time, now_);
    std::string words = event.about == own ? "" : event.about + ": ";
    words += event.reason + ": " + event.note.substr(0, kMaxNote);
    if (event.count > 1) words += " (" + std::to_string(event.count) + " times)";
    out_ += kIndent + padded(age, kAgeWidth) +
            coloured(padded(event.is_warning ? "Warning" : "Normal", kAgeWidth),
                     event.is_warning ? Colour::kBusy : Colour::kNone, display_) +
            wrapped(printable(words), display_.width,
                    std::string(kIndent.size() + 2 * kAgeWidth, ' ')) +
            "\n";
  }
}

std::string Page::write() {
  write_story();
  write_facts();
  write_last_words();
  write_workers();
  write_conditions();
  write_events();
  return std::move(out_);
}

}  // namespace

std::string describe_text(const Description& about, const Display& display, WallTime now) {
  return Page(about, display, now).write();
}

}  // namespace muster::cli
