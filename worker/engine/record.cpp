#include "worker/engine/record.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <map>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/file.h"
#include "common/json.h"
#include "worker/engine/files.h"

namespace muster::engine {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
/// Of a longer record the lines that are kept are not copied: others wait meanwhile.
constexpr std::int64_t kCopiedMost = std::int64_t{64} << 20;

/// Step of a line, -1 when it is none of ours.
std::int64_t step_of(const std::string& line) {
  const auto json = parse_json(line);
  if (!json || !json->is_object()) return -1;
  const auto evaluation = json->find("evaluation");
  const Json& object = evaluation != json->end() ? *evaluation : *json;
  if (!object.is_object()) return -1;
  const auto step = object.find("step");
  return step != object.end() && step->is_number_integer() ? step->get<std::int64_t>() : -1;
}

bool is_evaluation(std::string_view line) { return line.starts_with("{\"evaluation\""); }

/// What step_of() says of one of our lines, found without reading all of it; -1 where its front is
/// none of ours.
std::int64_t step_at_front(std::string_view line) {
  for (const std::string_view front : {R"({"evaluation":{"step":)", R"({"step":)"}) {
    if (!line.starts_with(front)) continue;
    std::int64_t step = -1;
    const char* const begin = line.data() + front.size();
    const auto end = std::from_chars(begin, line.data() + line.size(), step);
    return end.ec == std::errc() && step >= 0 ? step : -1;
  }
  return -1;
}

std::int64_t count_steps(std::string_view lines) {
  std::int64_t steps = 0;
  for (std::size_t to = 0; (to = lines.find('\n')) != std::string_view::npos;
       lines.remove_prefix(to + 1)) {
    steps += is_evaluation(lines) ? 0 : 1;
  }
  return steps;
}

/// The last of the whole lines in `text` that is one of ours of a step up to `restored_step`, or
/// nothing. It begins at `searched`; without it the first whole line does.
std::string_view last_kept(std::string_view text, bool is_front, std::int64_t restored_step,
                           std::size_t& searched) {
  for (searched = text.rfind('\n') + 1; searched > 0;) {
    const std::size_t end = searched - 1;
    const std::size_t before = end > 0 ? text.rfind('\n', end - 1) : std::string_view::npos;
    if (before == std::string_view::npos && !is_front) break;
    searched = before + 1;
    const std::string_view line = text.substr(searched, end - searched);
    const std::int64_t step = step_at_front(line);
    if (step < 0 || step > restored_step || line.size() > kMaxLineBytes) continue;
    if (step_of(std::string(line)) == step) return line;
  }
  return {};
}

/// Bytes of the lines of `fd` up to `restored_step`, or -errno; `last_line` is the last of them.
/// Looks from the end, because others wait: at no more than is cut off, and a piece.
std::int64_t kept_bytes(int fd, std::int64_t restored_step, std::string& last_line) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return -errno;
  std::vector<char> piece(std::size_t{1} << 16);
  for (std::int64_t to = status.st_size; to > 0;) {
    const std::int64_t from =
        std::max<std::int64_t>(0, to - static_cast<std::int64_t>(piece.size()));
    const ssize_t got = ::pread(fd, piece.data(), static_cast<std::size_t>(to - from), from);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    const std::string_view text(piece.data(), static_cast<std::size_t>(got));
    std::size_t searched = 0;
    last_line = last_kept(text, from == 0, restored_step, searched);
    if (!last_line.empty()) {
      return from + static_cast<std::int64_t>(searched + last_line.size()) + 1;
    }
    // A line that begins before this piece is looked at with the next, or is too long for one.
    const std::int64_t rest = from + static_cast<std::int64_t>(searched);
    to = rest < to ? rest : from;
  }
  return 0;
}

}  // namespace

std::string decimal(float value) {
  std::array<char, 64> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

LineNumbers line_numbers(std::string_view lines) {
  if (!lines.ends_with('\n')) return {};
  const auto number = [](std::string_view line) {
    const std::int64_t step = step_at_front(line);
    return step < 0 ? 0 : 2 * step + (is_evaluation(line) ? 1 : 0);
  };
  const std::string_view before = lines.substr(0, lines.size() - 1);
  return {number(lines), number(lines.substr(before.rfind('\n') + 1))};
}

Result<bool> lacks_evaluation(const std::string& path, std::int64_t step) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return false;
  if (!fd) return disk_error(path, "open", errno);
  std::string last_line;
  const std::int64_t kept = kept_bytes(fd.get(), step, last_line);
  if (kept < 0) return disk_error(path, "read", static_cast<int>(-kept));
  return step_of(last_line) == step && !is_evaluation(last_line);
}

struct Record::File {
  std::string path;
  UniqueFd fd;

  /// Errors: as open.
  Status write(std::string_view lines) const {
    while (!lines.empty()) {
      const ssize_t wrote = ::write(fd.get(), lines.data(), lines.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return disk_error(path, "write", errno);
      lines.remove_prefix(static_cast<std::size_t>(wrote));
    }
    return {};
  }
};

void Record::close() {
  if (is_open()) writer_->discard();
  writer_.reset();
  file_.reset();
  buffer_.clear();
  last_step_ = missing_ = 0;
  ends_with_evaluation_ = false;
}

void Record::give_up() {
  buffer_ = writer_->unwritten();
  writer_->discard();
  writer_.reset();
  file_.reset();
}

Status Record::open(const std::string& path, std::int64_t restored_step, RecordWriting writing) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return disk_error(path, "open", errno);
  std::string last_line;
  const std::int64_t kept = restored_step > 0 ? kept_bytes(fd.get(), restored_step, last_line) : 0;
  if (kept < 0) return disk_error(path, "read", static_cast<int>(-kept));
  if (kept <= kCopiedMost) {
    MUSTER_ASSIGN_OR_RETURN(fd, replace_file(path, fd.get(), kept));
  } else {
    if (::ftruncate(fd.get(), kept) != 0) return disk_error(path, "cut", errno);
    if (::lseek(fd.get(), kept, SEEK_SET) < 0) return disk_error(path, "seek", errno);
  }
  buffer_.clear();
  last_step_ = std::max<std::int64_t>(0, step_of(last_line));
  ends_with_evaluation_ = is_evaluation(last_line);
  file_ = std::make_shared<File>(path, std::move(fd));
  writer_ = std::make_shared<LineWriter>(
      LineWriter::Options{[file = file_, writing](std::string_view lines) {
                            if (writing.on_write) writing.on_write();
                            Status status = file->write(lines);
                            if (writing.on_written) writing.on_written();
                            return status;
                          },
                          writing.is_beside, writing.is_held});
  return {};
}

Status Record::add(const RecordedStep& step) {
  last_step_ = step.step;
  ends_with_evaluation_ = false;
  std::string line = "{\"step\":" + std::to_string(step.step) +
                     ",\"epoch\":" + std::to_string(step.epoch) + ",\"loss\":\"" +
                     decimal(step.loss) + "\",\"samples\":" + std::to_string(step.samples) +
                     ",\"workers\":" + std::to_string(step.workers);
  if (!step.sha256.empty()) line += ",\"sha256\":\"" + step.sha256 + "\"";
  return append(line + ",\"seconds\":" + std::to_string(step.seconds) + "}\n");
}

Status Record::add(const RecordedEvaluation& evaluation) {
  ends_with_evaluation_ = true;
  return append("{\"evaluation\":{\"step\":" + std::to_string(evaluation.step) +
                ",\"accuracy\":" + std::to_string(evaluation.accuracy) + ",\"loss\":\"" +
                decimal(evaluation.loss) + "\"}}\n");
}

Status Record::append(const std::string& line) {
  if (is_open()) {
    missing_ += count_steps(writer_->add(line));
    const auto written = writer_->wait(0, milliseconds(0));
    return written ? Status() : Status(written.error());
  }
  buffer_ += line;
  (void)take_surplus(buffer_);  // what is missing is found where lines are handed over
  return {};
}

Status Record::merge(const std::vector<std::string>& texts) {
  std::map<std::pair<std::int64_t, bool>, std::string> lines;  // by step; evaluations after steps
  for (const std::string& text : texts) {
    for (std::size_t from = 0, to = 0; (to = text.find('\n', from)) != std::string::npos;
         from = to + 1) {
      const std::string line = text.substr(from, to + 1 - from);
      const std::int64_t step = step_at_front(line);
      const bool is_new = step > (is_evaluation(line) ? last_evaluation() : last_step_);
      const std::pair key(step, is_evaluation(line));
      // Hundreds of members may have kept the same ones, and others wait: none is parsed twice.
      if (!is_new || lines.contains(key) || step_of(line) != step) continue;
      lines.emplace(key, line);
    }
  }
  std::string added;
  for (const auto& [key, line] : lines) {
    added += line;
    missing_ += std::max<std::int64_t>(0, key.first - last_step_ - 1);
    last_step_ = key.first;
    ends_with_evaluation_ = key.second;
  }
  if (added.empty()) return {};
  if (is_open()) return writer_->write(added);
  buffer_ += added;
  (void)take_surplus(buffer_);
  return {};
}

void Record::skip_to(std::int64_t step) {
  if (step <= last_step_) return;
  missing_ += step - last_step_;
  last_step_ = step;
  ends_with_evaluation_ = false;
}

Result<bool> Record::wait(milliseconds most) {
  return is_open() ? writer_->wait(writer_->added(), most) : Result<bool>(true);
}

std::function<Status()> Record::sync() {
  if (!is_open()) return [] { return Status(); };
  return [file = file_, writer = writer_, count = writer_->added()]() -> Status {
    MUSTER_RETURN_IF_ERROR(writer->wait(count));
    if (::fsync(file->fd.get()) != 0) return disk_error(file->path, "flush", errno);
    return {};
  };
}

}  // namespace muster::engine
