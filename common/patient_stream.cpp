#include "common/patient_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace muster {
namespace {

constexpr int kPatienceMs = 1'000;

UniqueFd terminal_without_waiting(int fd) {
  if (::isatty(fd) != 1) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

bool takes_within(std::FILE* file, int milliseconds) {
  pollfd polled{::fileno(file), POLLOUT, 0};
  return polled.fd < 0 || ::poll(&polled, 1, milliseconds) == 1;
}

}  // namespace

PatientStream::PatientStream(std::FILE* file)
    : file_(file), terminal_(terminal_without_waiting(::fileno(file))) {}

bool PatientStream::has_room() const { return takes_within(file_, 0); }

bool PatientStream::write(std::string_view piece) {
  // Without the stream's lock; under it once more, for another thread may be about to fill a pipe.
  const bool had_room = takes_within(file_, is_stuck_ ? 0 : kPatienceMs);
  ::flockfile(file_);
  is_stuck_ = !had_room || !has_room();
  if (!is_stuck_ && terminal_) {
    is_stuck_ = ::write(terminal_.get(), piece.data(), piece.size()) < 0 && errno == EAGAIN;
  } else if (!is_stuck_) {
    std::fwrite(piece.data(), 1, piece.size(), file_);
    std::fflush(file_);
  }
  const bool is_taken = !is_stuck_;
  ::funlockfile(file_);
  return is_taken;
}

}  // namespace muster
