#include "cli/log_reader.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/contract.h"

namespace muster::cli {
namespace {

/// While logs are followed, a line waits so long for an earlier one of another worker.
constexpr milliseconds kMergePatience{300};
constexpr milliseconds kEndWait{2'000};
constexpr std::size_t kMaxErrorBytes = 8192;
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
  const auto last = last_lines_.find(log_name(pod));
  if (last != last_lines_.end() && !last->second.stamp.empty()) {
    call.arguments.push_back("--since-time=" + last->second.stamp);
    skip_until_[log_name(pod)] = last->second.time_ns;
  } else {
    if (options_.tail >= 0) call.arguments.push_back("--tail=" + std::to_string(options_.tail));
    if (!options_.since.empty()) call.arguments.push_back("--since=" + options_.since);
  }
  auto process = kubectl_.start(call);
  if (!process) return process.error();
  const int id = next_id_++;
  merger_.open(id);
  pods_.emplace(id, pod);
  sources_.emplace(id, Source{pod, std::move(*process), ""});
  return {};
}

void LogReader::read_output(int id, Source& source) {
  const ssize_t got = ::read(source.process.output(), buffer_.data(), buffer_.size());
  if (got > 0) {
    merger_.feed(id, {buffer_.data(), static_cast<std::size_t>(got)}, kubectl_.clock().mono_now());
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    source.process.close_output();
  }
}

void LogReader::read_errors(Source& source) {
  const ssize_t got = ::read(source.process.errors(), buffer_.data(), buffer_.size());
  if (got > 0) {
    const std::size_t room = kMaxErrorBytes - std::min(kMaxErrorBytes, source.errors.size());
    source.errors.append(buffer_.data(), std::min(room, static_cast<std::size_t>(got)));
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    source.process.close_errors();
  }
}

/// A kubectl that has closed both its pipes.
void LogReader::end(int id) {
  const auto found = sources_.find(id);
  Source& source = found->second;
  pollfd ended{source.process.pidfd(), POLLIN, 0};
  const bool has_ended = ::poll(&ended, 1, static_cast<int>(kEndWait.count())) == 1;
  const int code = has_ended ? source.process.reap() : 0;
  if (code == 0) {
    failed_.erase(log_name(source.pod));
  } else {
    const Error error = explain_kubectl({"logs"}, code, source.errors);
    const bool is_gone = options_.follows && error.code() == ErrorCode::kNotFound;
    const std::string complaint =
        "worker " + std::to_string(source.pod.slot) + ": " +
        (is_gone ? "its pod is gone, and its log with it" : error.message());
    std::string& said = failed_[log_name(source.pod)];
    if (said != complaint && complaints_.size() < kMaxComplaints) complaints_.push_back(complaint);
    said = complaint;
  }
  merger_.close(id, kubectl_.clock().mono_now());
  sources_.erase(found);
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
  std::vector<pollfd> polled{{kubectl_.signal_fd(), POLLIN, 0}};
  std::vector<int> ids;
  for (const auto& [id, source] : sources_) {
    // A pipe that is not read holds its kubectl back, and that the API server.
    polled.push_back({merger_.is_full(id) ? -1 : source.process.output(), POLLIN, 0});
    polled.push_back({source.process.errors(), POLLIN, 0});
    ids.push_back(id);
  }
  const auto due = merger_.due();
  const MonoTime next = due ? std::min(*due, until) : until;
  const auto left = std::max(nanoseconds(0), next - kubectl_.clock().mono_now());
  ::poll(polled.data(), polled.size(),
         static_cast<int>(std::chrono::ceil<milliseconds>(left).count()));
  if (polled[0].revents != 0 && kubectl_.take_signal()) return interrupted();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Source& source = sources_.at(ids[i]);
    if (polled[1 + 2 * i].revents != 0) read_output(ids[i], source);
    if (polled[2 + 2 * i].revents != 0) read_errors(source);
    if (source.process.output() < 0 && source.process.errors() < 0) end(ids[i]);
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
