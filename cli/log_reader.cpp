#include "cli/log_reader.h"

#include <poll.h>

#include <algorithm>

#include "common/contract.h"

namespace muster::cli {
namespace {

/// While logs are followed, a line waits so long for an earlier one of another worker.
constexpr milliseconds kMergePatience{300};
constexpr milliseconds kLogSilence{60'000};
constexpr std::size_t kMaxComplaints = 64;

}  // namespace

std::string log_name(const PodView& pod) { return pod.name + "/" + pod.log_container(); }

LogReader::LogReader(Kubectl& kubectl, const LogReaderOptions& options, Emit emit)
    : kubectl_(kubectl),
      options_(options),
      emit_(std::move(emit)),
      merger_(options.follows ? std::optional(kMergePatience) : std::nullopt) {}

bool LogReader::is_reading(const PodView& pod) const {
  return std::any_of(sources_.begin(), sources_.end(), [&](const auto& entry) {
    return log_name(entry.second.pod) == log_name(pod);
  });
}

Status LogReader::add(const PodView& pod) {
  KubectlCall call;
  call.arguments = {"logs", pod.name, "--container=" + pod.log_container(), "--timestamps"};
  if (options_.follows) call.arguments.emplace_back("--follow");
  if (!has_begun_) first_.insert(log_name(pod));
  const auto last = last_lines_.find(log_name(pod));
  if (last != last_lines_.end() && !last->second.stamp.empty()) {
    call.arguments.push_back("--since-time=" + last->second.stamp);
    skip_until_[log_name(pod)] = last->second.time_ns;
  } else if (first_.contains(log_name(pod))) {
    if (options_.tail >= 0) call.arguments.push_back("--tail=" + std::to_string(options_.tail));
    if (!options_.since.empty()) call.arguments.push_back("--since=" + options_.since);
  }
  auto process = kubectl_.start(call);
  if (!process) return process.error();
  const int id = next_id_++;
  merger_.open(id);
  pods_.emplace(id, pod);
  sources_.emplace(id, Source{pod, std::move(*process)});
  return {};
}

void LogReader::hear(int id, Source& source, const Moment& moment) {
  // A pipe that is not read holds its kubectl back, and that the API server.
  const std::span<char> room = merger_.is_full(id) ? std::span<char>() : std::span(buffer_);
  const KubeProcess::Words words = source.process.hear(moment.now, room);
  merger_.feed(id, words.output, moment.now);
  // Only what was listened for counts, not while a reader of the lines stood still.
  source.silence =
      room.empty() || !words.is_silent() ? nanoseconds(0) : source.silence + moment.waited;
  if (const auto code = source.process.exit_code()) {
    end(id, source,
        *code == 0 ? Status() : explain_kubectl({"logs"}, *code, source.process.errors()));
  } else if (!options_.follows && source.silence >= kLogSilence) {
    end(id, source, no_answer({"logs"}, kLogSilence));
  }
}

void LogReader::end(int id, const Source& source, const Status& read) {
  if (read) {
    failed_.erase(log_name(source.pod));
  } else {
    const bool is_gone = options_.follows && read.error().code() == ErrorCode::kNotFound;
    const std::string complaint =
        "worker " + std::to_string(source.pod.slot) + ": " +
        (is_gone ? "its pod is gone, and its log with it" : read.error().message());
    std::string& said = failed_[log_name(source.pod)];
    if (said != complaint && complaints_.size() < kMaxComplaints) complaints_.push_back(complaint);
    said = complaint;
  }
  merger_.close(id, kubectl_.clock().mono_now());
  sources_.erase(id);
}

Status LogReader::hand_on() {
  bool is_heard = true;
  merger_.take(kubectl_.clock().mono_now(), [&](const LogLine& line) {
    const PodView& pod = pods_.at(line.stream);
    const auto skip = skip_until_.find(log_name(pod));
    if (skip != skip_until_.end()) {
      if (line.time_ns <= skip->second) return;
      skip_until_.erase(skip);
    }
    if (options_.follows) last_lines_[log_name(pod)] = {line.stream, line.time_ns, line.stamp, ""};
    is_heard = is_heard && emit_(pod, line);
  });
  std::erase_if(pods_, [this](const auto& entry) { return !merger_.has(entry.first); });
  return is_heard ? Status() : interrupted();
}

Status LogReader::turn(MonoTime until) {
  has_begun_ = true;
  std::vector<pollfd> polled{{kubectl_.signal_fd(), POLLIN, 0}};
  const MonoTime started = kubectl_.clock().mono_now();
  MonoTime next = std::min(merger_.due().value_or(until), until);
  for (const auto& [id, source] : sources_) {
    auto waits = source.process.waits();
    if (merger_.is_full(id)) waits[0].fd = -1;
    polled.insert(polled.end(), waits.begin(), waits.end());
    next = std::min(next, source.process.due().value_or(next));
    if (!options_.follows) next = std::min(next, started + kLogSilence - source.silence);
  }
  const auto left = std::max(nanoseconds(0), next - started);
  ::poll(polled.data(), polled.size(),
         static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  if (polled[0].revents != 0 && kubectl_.take_signal()) return interrupted();
  const MonoTime now = kubectl_.clock().mono_now();
  for (auto next_source = sources_.begin(); next_source != sources_.end();) {
    auto& [id, source] = *next_source++;  // the end of one takes it out
    hear(id, source, {now, now - started});
  }
  return hand_on();
}

Status LogReader::finish() {
  // Every stream is closed, so no line waits for another.
  sources_.clear();
  for (const auto& [id, pod] : pods_) merger_.close(id, kubectl_.clock().mono_now());
  return hand_on();
}

}  // namespace muster::cli
