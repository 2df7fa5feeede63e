#include "cli/logs_command.h"

#include <algorithm>
#include <array>
#include <set>

#include "cli/kube_query.h"
#include "cli/log_reader.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

constexpr milliseconds kRefresh{2'000};
constexpr milliseconds kTurn{60'000};
constexpr std::array kSlotColours{"\033[36m", "\033[33m", "\033[32m",
                                  "\033[35m", "\033[34m", "\033[31m"};

std::string label_of(const PodView& pod) {
  std::string label = "worker-" + (pod.slot < 0 ? pod.name : std::to_string(pod.slot));
  if (pod.attempt > 0) label += "." + std::to_string(pod.attempt);
  const bool is_worker = pod.log_container() == contract::kContainerName;
  return is_worker ? label : label + "/" + pod.log_container();
}

/// Of a pod that is over, the API server is asked even if nothing says that it ever ran.
bool may_have_log(const PodView& pod) {
  return pod.has_log() || (pod.is_over() && pod.chosen.empty());
}

class Logs {
 public:
  Logs(Kubectl& kubectl, const LogsOptions& options, const Display& display)
      : kubectl_(kubectl), options_(options), display_(display) {}

  Status run();
  /// Whether the log of a worker that is there could not be read to its end.
  bool lacks_logs() const { return lacks_logs_; }

 private:
  bool is_wanted(const PodView& pod) const;
  bool show(const PodView& pod, const LogLine& line);
  Status look();
  Status look_again();
  Status check_container() const;
  Status show_failed_first();
  Status show_ended();
  Status follow();
  Status start_new(LogReader& reader);
  void complain(LogReader& reader);
  Status finish(LogReader& reader);
  void tell_waiting();
  void tell_once(const std::string& text);
  void tell_too_many();
  LogReaderOptions reader_options(bool follows) const {
    return {follows, options_.tail, options_.since};
  }

  Kubectl& kubectl_;
  const LogsOptions& options_;
  const Display& display_;
  JobView view_;
  bool is_gone_ = false;        ///< the job was deleted while its logs were followed
  std::vector<PodView> pods_;   ///< those that are wanted
  std::set<std::string> done_;  ///< logs of pods that are over, read to their end
  std::size_t label_width_ = 0;
  std::string told_;
  bool lacks_logs_ = false;
  bool told_too_many_ = false;
};

bool Logs::is_wanted(const PodView& pod) const {
  return options_.slots.empty() ||
         std::find(options_.slots.begin(), options_.slots.end(), pod.slot) != options_.slots.end();
}

bool Logs::show(const PodView& pod, const LogLine& line) {
  std::string label = label_of(pod);
  label_width_ = std::max(label_width_, label.size());
  label.resize(label_width_, ' ');
  std::string text = label + " | ";
  if (display_.has_colour) {
    const auto slot = static_cast<std::size_t>(std::max(0, pod.slot));
    text = kSlotColours[slot % kSlotColours.size()] + text + "\033[0m";
  }
  if (options_.has_stamps) text += line.stamp + " ";
  // What a worker writes must not move the cursor of a terminal.
  text += display_.width > 0 ? printable(line.text) : line.text;
  return print(text + "\n");
}

Status Logs::look() {
  MUSTER_ASSIGN_OR_RETURN(view_, get_job(kubectl_, options_.job));
  MUSTER_ASSIGN_OR_RETURN(pods_, get_pods(kubectl_, view_.job));
  std::erase_if(pods_, [this](const PodView& pod) { return !is_wanted(pod); });
  for (PodView& pod : pods_) pod.chosen = options_.container;
  for (const PodView& pod : pods_) label_width_ = std::max(label_width_, label_of(pod).size());
  return {};
}

/// As look(), while following: a deleted job and a moment without an answer end nothing.
Status Logs::look_again() {
  const Status seen = look();
  if (seen || seen.error().code() == ErrorCode::kAborted) return seen;
  if (seen.error().code() == ErrorCode::kNotFound) {
    is_gone_ = true;
    pods_.clear();
    return {};
  }
  if (!is_momentary(seen.error())) return seen;
  tell_once(seen.error().message());
  return {};
}

void Logs::tell_once(const std::string& text) {
  if (text == told_) return;
  told_ = text;
  tell("muster: " + text);
}

void Logs::complain(LogReader& reader) {
  for (const auto& complaint : reader.take_complaints()) tell("muster: " + complaint);
}

/// Hands on what is left. The log of a pod that went away meanwhile may have gone with it.
Status Logs::finish(LogReader& reader) {
  MUSTER_RETURN_IF_ERROR(reader.finish());
  complain(reader);
  lacks_logs_ |= std::any_of(pods_.begin(), pods_.end(), [&](const PodView& pod) {
    return !pod.is_deleting && reader.has_failed(pod);
  });
  return {};
}

Status Logs::show_failed_first() {
  const auto& failure = view_.job.status.failure;
  if (!view_.job.status.is_true("Failed") || !failure) return {};
  if (!options_.slots.empty() || !options_.container.empty()) return {};
  std::string heading = "==> worker " + std::to_string(failure->slot) + " failed first";
  if (!failure->container.empty()) heading += " in init container " + failure->container;
  if (failure->exit_code != 0) heading += " with exit code " + std::to_string(failure->exit_code);
  print(
      coloured(printable(heading + " (" + failure->reason + ")") + " <==", Colour::kBad, display_) +
      "\n");
  // The last attempt of that slot; pods are sorted by attempt.
  const PodView* pod = nullptr;
  for (const PodView& candidate : pods_) {
    if (candidate.slot == failure->slot && candidate.has_log()) pod = &candidate;
  }
  if (pod != nullptr) {
    LogReader reader(kubectl_, reader_options(false),
                     [this](const PodView& of, const LogLine& line) { return show(of, line); });
    MUSTER_RETURN_IF_ERROR(reader.add(*pod));
    while (reader.is_reading()) {
      MUSTER_RETURN_IF_ERROR(reader.turn(kubectl_.clock().mono_now() + kTurn));
    }
    MUSTER_RETURN_IF_ERROR(finish(reader));
  } else {
    print(printable(failure->log_tail) + "\n");
    tell("muster: its pod is gone; these are its last words as the job's status has them");
  }
  print("\n" + coloured("==> all workers, in the order of time <==", Colour::kHead, display_) +
        "\n");
  return {};
}

Status Logs::show_ended() {
  LogReader reader(kubectl_, reader_options(false),
                   [this](const PodView& pod, const LogLine& line) { return show(pod, line); });
  for (const PodView& pod : pods_) {
    if (may_have_log(pod)) {
      MUSTER_RETURN_IF_ERROR(reader.add(pod));
    } else {
      tell("muster: " + (pod.chosen.empty() ? "" : "container " + pod.chosen + " of ") + "worker " +
           std::to_string(pod.slot) + " has not started" +
           (pod.trouble.empty() ? "" : ": " + pod.trouble + ": " + pod.trouble_text));
    }
  }
  while (reader.is_reading()) {
    MUSTER_RETURN_IF_ERROR(reader.turn(kubectl_.clock().mono_now() + kTurn));
  }
  return finish(reader);
}

void Logs::tell_too_many() {
  if (told_too_many_) return;
  told_too_many_ = true;
  tell("muster: more than " + std::to_string(kMostLogs) +
       " logs; the others are read when one of these has ended; choose with --slot");
}

Status Logs::start_new(LogReader& reader) {
  for (const PodView& pod : pods_) {
    const bool is_readable = pod.has_log() || (pod.is_over() && pod.end && pod.chosen.empty());
    if (!is_readable || done_.contains(log_name(pod)) || reader.is_reading(pod)) continue;
    // Its turn comes when another has ended.
    if (reader.count() >= kMostLogs) {
      tell_too_many();
      break;
    }
    MUSTER_RETURN_IF_ERROR(reader.add(pod));
    // Once over, a log that was opened is read to its end; before, its reader may lose it.
    if (pod.end || pod.is_over()) done_.insert(log_name(pod));
  }
  return {};
}

void Logs::tell_waiting() {
  const api::TrainingJobStatus& status = view_.job.status;
  if (is_gone_ || status.finished()) return;
  if (status.is_true("Suspended")) return tell_once("the job is suspended; waiting");
  if (pods_.empty()) return tell_once("no worker is there yet; waiting");
}

Status Logs::follow() {
  LogReader reader(kubectl_, reader_options(true),
                   [this](const PodView& pod, const LogLine& line) { return show(pod, line); });
  for (;;) {
    MUSTER_RETURN_IF_ERROR(start_new(reader));
    if (!reader.is_reading()) {
      if (is_gone_ || view_.job.status.finished()) break;
      tell_waiting();
    }
    const MonoTime again = kubectl_.clock().mono_now() + kRefresh;
    while (kubectl_.clock().mono_now() < again) {
      MUSTER_RETURN_IF_ERROR(reader.turn(again));
      if (!flush()) return interrupted();
    }
    complain(reader);
    MUSTER_RETURN_IF_ERROR(look_again());
  }
  return finish(reader);
}

/// Of a container that the job does not have, and that no webhook has put into a pod.
Status Logs::check_container() const {
  const std::string& wanted = options_.container;
  std::vector<std::string> known{std::string(contract::kContainerName)};
  for (const auto& one : view_.job.spec.worker.init_containers) known.push_back(one.name);
  for (const PodView& pod : pods_) {
    known.insert(known.end(), pod.started.begin(), pod.started.end());
  }
  if (wanted.empty() || std::find(known.begin(), known.end(), wanted) != known.end()) return {};
  std::string names;
  for (const std::string& name : std::set<std::string>(known.begin(), known.end())) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return Error(ErrorCode::kNotFound, "--container: no container " + printable(wanted) +
                                         " in the workers' pods of " + options_.job +
                                         "; there are " + printable(names))
      .with_exit_code(codes::kUsage);
}

Status Logs::run() {
  MUSTER_RETURN_IF_ERROR(look());
  MUSTER_RETURN_IF_ERROR(check_container());
  const auto readable =
      static_cast<std::size_t>(std::count_if(pods_.begin(), pods_.end(), may_have_log));
  if (readable > kMostLogs) {
    return Error(ErrorCode::kTooLarge, "the job has " + std::to_string(readable) +
                                           " logs; at most " + std::to_string(kMostLogs) +
                                           " are read at once: choose with --slot")
        .with_exit_code(codes::kUsage);
  }
  if (pods_.empty() && !options_.follows) {
    return Error(ErrorCode::kNotFound,
                 options_.slots.empty()
                     ? "no worker of the job " + options_.job + " is there; muster describe " +
                           options_.job + " tells why"
                     : "no worker with such a --slot is there; muster describe " + options_.job +
                           " lists those that are")
        .with_exit_code(codes::kCluster);
  }
  if (options_.follows && !view_.job.status.finished()) return follow();
  MUSTER_RETURN_IF_ERROR(show_failed_first());
  return show_ended();
}

}  // namespace

int logs_command(Kubectl& kubectl, const LogsOptions& options, const Display& display) {
  Logs logs(kubectl, options, display);
  const Status status = logs.run();
  if (!status) {
    // A signal, or a reader that has seen enough, is how following ends.
    const bool is_asked = status.error().code() == ErrorCode::kAborted;
    const bool was_signal = is_asked && kubectl.take_signal();
    return is_asked && (options.follows || !was_signal) ? 0 : tell_error(status.error());
  }
  return logs.lacks_logs() ? codes::kCluster : 0;
}

}  // namespace muster::cli
