#include "worker/archive.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <span>
#include <utility>
#include <vector>

#include "common/file.h"

namespace muster::worker {
namespace {

constexpr std::size_t kBlock = kArchiveBlock;
constexpr std::size_t kChunk = 64 * 1024;
constexpr std::size_t kNameMax = 100;
constexpr std::size_t kPrefixMax = 155;

Status write_all(int out, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(out, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return os_error("standard output", "write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

/// `value` as octal digits filling `field` but for a closing NUL.
void put_octal(std::span<char> field, std::uint64_t value) {
  field.back() = '\0';
  for (std::size_t i = field.size() - 1; i-- > 0; value >>= 3) {
    field[i] = static_cast<char>('0' + (value & 7));
  }
}

void put_size(std::span<char> field, std::uint64_t value) {
  if (value >> (3 * (field.size() - 1)) == 0) return put_octal(field, value);
  for (std::size_t i = field.size(); i-- > 1; value >>= 8) field[i] = static_cast<char>(value);
  field.front() = '\x80';
}

void put_text(std::span<char> field, std::string_view text) {
  std::copy(text.begin(), text.end(), field.begin());
}

/// Where `path` is cut into prefix and name so that both fit; npos when there is no such '/'.
std::size_t cut_of(std::string_view path) {
  const std::size_t first = path.size() - kNameMax - 1;
  const std::size_t cut = path.find('/', first);
  return cut == std::string_view::npos || cut > kPrefixMax || cut == 0 ? std::string_view::npos
                                                                       : cut;
}

/// Keeps errno when it is none.
bool is_directory(int parent, const std::string& name) {
  const int number = errno;
  struct stat info{};
  const bool is =
      fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
  errno = number;
  return is;
}

class Archive {
 public:
  Archive(std::string root, int out, const ArchiveLimits& limits)
      : root_(std::move(root)), out_(out), limits_(limits), buffer_(kChunk) {}

  Status add_directory(UniqueFd directory, const std::string& prefix, int depth) {
    if (depth > limits_.depth_max) {
      return Error(ErrorCode::kTooLarge, root_ + "/" + prefix + ": more than " +
                                             std::to_string(limits_.depth_max) +
                                             " directories deep");
    }
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            list_names(directory.get(), prefix));
    return add_entries(directory.get(), prefix, names, depth);
  }

  /// `names`, sorted, in the root; those that are not there are passed over.
  Status add_named(int root, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos) {
        continue;
      }
      return Error(ErrorCode::kInvalid,
                   "\"" + name + "\": must be the name of something in " + root_ + " itself");
    }
    return add_entries(root, "", names, 0);
  }

  /// Two blocks of zeros end an archive.
  Status finish() {
    const std::array<char, 2 * kBlock> end{};
    return write_all(out_, end);
  }

 private:
  Result<std::vector<std::string>> list_names(int directory, const std::string& prefix) {
    UniqueFd copy(fcntl(directory, F_DUPFD_CLOEXEC, 0));
    DIR* stream = copy ? fdopendir(copy.get()) : nullptr;
    if (stream == nullptr) return os_error(root_ + "/" + prefix, "list", errno);
    copy.release();
    std::vector<std::string> names;
    Status status;
    while (true) {
      errno = 0;
      const dirent* entry = readdir(stream);
      if (entry == nullptr) {
        if (errno != 0) status = os_error(root_ + "/" + prefix, "list", errno);
        break;
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++entries_ > limits_.files_max) {
        status = Error(ErrorCode::kTooLarge,
                       root_ + ": more than " + std::to_string(limits_.files_max) + " files");
        break;
      }
      names.emplace_back(name);
    }
    closedir(stream);
    if (!status) return status.error();
    std::sort(names.begin(), names.end());
    return names;
  }

  Status add_entries(int parent, const std::string& prefix, const std::vector<std::string>& names,
                     int depth) {
    for (const std::string& name : names) {
      MUSTER_RETURN_IF_ERROR(add_entry(parent, name, prefix + name, depth));
    }
    return {};
  }

  Status add_entry(int parent, const std::string& name, const std::string& path, int depth) {
    // Without O_NONBLOCK a pipe somebody put here would be waited for.
    UniqueFd file(
        openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    // ELOOP: a symbolic link. ENXIO: a socket. ENOENT: gone since it was listed.
    if (!file && (errno == ELOOP || errno == ENXIO || errno == ENOENT)) return {};
    // A file system's own directory (lost+found) is root's alone, and nothing of ours is in it.
    if (!file && errno == EACCES && is_directory(parent, name)) return {};
    if (!file) return os_error(root_ + "/" + path, "open", errno);
    struct stat info{};
    if (fstat(file.get(), &info) != 0) return os_error(root_ + "/" + path, "look at", errno);
    if (S_ISDIR(info.st_mode)) return add_directory(std::move(file), path + "/", depth + 1);
    if (!S_ISREG(info.st_mode)) return {};
    return add_file(file.get(), path, info);
  }

  Status add_file(int file, const std::string& path, const struct stat& info) {
    if (info.st_size > limits_.file_bytes_max) {
      return Error(ErrorCode::kTooLarge, root_ + "/" + path + ": larger than " +
                                             std::to_string(limits_.file_bytes_max) + " bytes");
    }
    MUSTER_ASSIGN_OR_RETURN(const auto header,
                            archive_header(path, info.st_size, info.st_mtim.tv_sec));
    MUSTER_RETURN_IF_ERROR(write_all(out_, header));
    std::uint64_t left = static_cast<std::uint64_t>(info.st_size);
    while (left > 0) {
      const ssize_t got = read(file, buffer_.data(), std::min<std::uint64_t>(left, kChunk));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return os_error(root_ + "/" + path, "read", errno);
      if (got == 0) {
        return Error(ErrorCode::kIo, root_ + "/" + path + ": became shorter while it was read");
      }
      const auto count = static_cast<std::size_t>(got);
      MUSTER_RETURN_IF_ERROR(write_all(out_, std::span(buffer_).first(count)));
      left -= count;
    }
    const std::array<char, kBlock> zeros{};
    const std::size_t tail = static_cast<std::size_t>(info.st_size) % kBlock;
    return write_all(out_, std::span(zeros).first(tail == 0 ? 0 : kBlock - tail));
  }

  std::string root_;
  int out_;
  ArchiveLimits limits_;
  std::vector<char> buffer_;
  int entries_ = 0;
};

}  // namespace

Result<std::array<char, kArchiveBlock>> archive_header(std::string_view path, std::int64_t bytes,
                                                       std::int64_t modified_at) {
  std::array<char, kBlock> block{};
  const std::span<char> all(block);
  std::string_view name = path;
  if (path.size() > kNameMax) {
    const std::size_t cut = cut_of(path);
    if (cut == std::string_view::npos) {
      return Error(ErrorCode::kTooLarge, std::string(path) + ": the name is too long for a ustar " +
                                             "archive; use names of at most 100 characters");
    }
    put_text(all.subspan(345, kPrefixMax), path.substr(0, cut));
    name = path.substr(cut + 1);
  }
  put_text(all.subspan(0, kNameMax), name);
  put_octal(all.subspan(100, 8), 0644);
  put_octal(all.subspan(108, 8), 0);
  put_octal(all.subspan(116, 8), 0);
  put_size(all.subspan(124, 12), static_cast<std::uint64_t>(bytes));
  constexpr std::int64_t kTimeMax = (std::int64_t{1} << 33) - 1;
  put_octal(all.subspan(136, 12),
            static_cast<std::uint64_t>(std::clamp<std::int64_t>(modified_at, 0, kTimeMax)));
  put_text(all.subspan(148, 8), "        ");
  block[156] = '0';
  put_text(all.subspan(257, 8), std::string_view("ustar\00000", 8));
  std::uint64_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put_octal(all.subspan(148, 7), sum);
  return block;
}

Status write_archive(const std::string& directory, int out, std::vector<std::string> names,
                     const ArchiveLimits& limits) {
  UniqueFd root(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root && (errno == ENOENT || errno == ENOTDIR)) {
    return Error(ErrorCode::kNotFound, directory + ": is not a directory; name one");
  }
  if (!root) return os_error(directory, "open", errno);
  Archive archive(directory, out, limits);
  std::sort(names.begin(), names.end());
  MUSTER_RETURN_IF_ERROR(names.empty() ? archive.add_directory(std::move(root), "", 0)
                                       : archive.add_named(root.get(), names));
  return archive.finish();
}

void wait_for_signal(seconds duration, const Clock& clock) {
  // Process 1 of a container gets no signal it does not ask for, and every orphan.
  std::signal(SIGCHLD, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const MonoTime deadline = clock.mono_now() + duration;
  while (true) {
    const nanoseconds left = std::max(deadline - clock.mono_now(), nanoseconds(0));
    const auto whole = std::chrono::duration_cast<seconds>(left);
    const timespec timeout{whole.count(), (left - whole).count()};
    if (sigtimedwait(&signals, nullptr, &timeout) >= 0 || errno != EINTR) return;
  }
}

}  // namespace muster::worker
