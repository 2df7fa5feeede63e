#include "worker/comm/memory_lane.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "worker/comm/socket.h"

namespace muster::comm {
namespace {

constexpr char kLaneName[] = "muster-lane";
constexpr int kLaneSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// The other side begins to read while the next part is written.
constexpr std::size_t kCopyBytes = std::size_t{128} * 1024;

constexpr std::size_t kRingBytesMin = std::size_t{64} * 1024;
constexpr std::size_t kRingBytesMax = std::size_t{1024} * 1024;
constexpr std::size_t kRingBytesOfAll = 4 * kRingBytesMax;

// A page for the counts, then one ring after the other.
constexpr std::size_t kHeadBytes = 4096;
std::size_t file_bytes(std::size_t ring_bytes) { return kHeadBytes + 2 * ring_bytes; }

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free);

/// Calls copy(of a piece, place in the ring, bytes) for up to `bytes` bytes of `pieces`, which go
/// to or come from place `at` of the ring, and on across its end. Returns how many those are.
template <typename Copy>
std::size_t walk(std::span<const iovec> pieces, std::size_t bytes, std::uint64_t at,
                 std::size_t ring_bytes, const Copy& copy) {
  std::size_t done = 0;
  for (const iovec& piece : pieces) {
    for (std::size_t of_piece = 0; of_piece < piece.iov_len && done < bytes;) {
      const std::size_t place = (at + done) % ring_bytes;
      const std::size_t part =
          std::min({piece.iov_len - of_piece, bytes - done, ring_bytes - place});
      copy(static_cast<std::byte*>(piece.iov_base) + of_piece, place, part);
      of_piece += part;
      done += part;
    }
  }
  return done;
}

Error nonsense() {
  return Error(ErrorCode::kCorrupt, "the memory shared with it says what cannot be");
}

}  // namespace

/// What stands before the bytes of both rings.
struct MemoryLane::Shared {
  Proof proof{};
  std::array<Ring, 2> rings;
};

std::size_t MemoryLane::ring_bytes(std::size_t lanes) {
  return std::clamp(std::bit_floor(kRingBytesOfAll / std::max<std::size_t>(lanes, 1)),
                    kRingBytesMin, kRingBytesMax);
}

MemoryLane::~MemoryLane() { munmap(mapped_.shared, file_bytes(mapped_.ring_bytes)); }

Result<MemoryLane::Mapped> MemoryLane::map(int fd, std::size_t ring_bytes) {
  static_assert(sizeof(Shared) <= kHeadBytes);
  void* const at = mmap(nullptr, file_bytes(ring_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return Error(ErrorCode::kIo, errno_text("mmap", errno));
  return Mapped{static_cast<Shared*>(at), ring_bytes};
}

std::byte* MemoryLane::bytes_of(int ring) const {
  return reinterpret_cast<std::byte*>(mapped_.shared) + kHeadBytes +
         static_cast<std::size_t>(ring) * mapped_.ring_bytes;
}

Result<std::unique_ptr<MemoryLane>> MemoryLane::make(const Proof& proof, std::size_t ring_bytes) {
  UniqueFd fd(memfd_create(kLaneName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed, so that nobody can take the memory away under the other's feet.
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(file_bytes(ring_bytes))) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kLaneSeals) != 0) {
    return Error(ErrorCode::kIo, errno_text("memfd_create", errno));
  }
  MUSTER_ASSIGN_OR_RETURN(const Mapped mapped, map(fd.get(), ring_bytes));
  (new (mapped.shared) Shared)->proof = proof;
  return std::unique_ptr<MemoryLane>(new MemoryLane(mapped, std::move(fd), 0));
}

Result<std::unique_ptr<MemoryLane>> MemoryLane::open(const LaneOffer& offer, const Proof& proof) {
  const std::string path = "/proc/" + std::to_string(offer.pid) + "/fd/" + std::to_string(offer.fd);
  // Looked at before it is opened: behind a number may be anything.
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  const std::string_view name(target.data(),
                              static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
  if (!name.starts_with("/memfd:" + std::string(kLaneName) + " ")) {
    return Error(ErrorCode::kNotFound, path + " is not shared memory that may be seen here");
  }
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  struct stat found{};
  if (!fd || fstat(fd.get(), &found) != 0) {
    return Error(ErrorCode::kNotFound, errno_text("open", errno));
  }
  const std::size_t ring_bytes =
      (static_cast<std::size_t>(std::max<off_t>(found.st_size, kHeadBytes)) - kHeadBytes) / 2;
  if (ring_bytes < kRingBytesMin || ring_bytes > kRingBytesMax ||
      !std::has_single_bit(ring_bytes) ||
      static_cast<std::size_t>(found.st_size) != file_bytes(ring_bytes) ||
      (fcntl(fd.get(), F_GET_SEALS) & kLaneSeals) != kLaneSeals) {
    return Error(ErrorCode::kNotFound, path + " is not a lane of this version");
  }
  MUSTER_ASSIGN_OR_RETURN(const Mapped mapped, map(fd.get(), ring_bytes));
  std::unique_ptr<MemoryLane> lane(new MemoryLane(mapped, {}, 1));
  if (!equal(mapped.shared->proof, proof)) {
    return Error(ErrorCode::kUnauthorized, path + " is a lane of others");
  }
  return lane;
}

LaneOffer MemoryLane::offer() const {
  MUSTER_CHECK(static_cast<bool>(offered_));
  return {static_cast<std::uint32_t>(getpid()), static_cast<std::uint32_t>(offered_.get())};
}

// Who sleeps says so and looks once more; who moves bytes does so first and looks then whether the
// other sleeps. All four in one order, so that at least one of the two sees the other.

Result<MemoryLane::Moved> MemoryLane::write(std::span<const iovec> pieces) {
  Ring& ring = mapped_.shared->rings[static_cast<std::size_t>(own_)];
  const std::size_t size = mapped_.ring_bytes;
  std::uint64_t used = written_ - ring.read.load();
  if (used == size) {
    ring.writer_sleeps.store(1);
    used = written_ - ring.read.load();
    if (used == size) return Moved{};
    ring.writer_sleeps.store(0);
  }
  if (used > size) return nonsense();
  std::byte* const bytes = bytes_of(own_);
  const auto copy = [bytes](const std::byte* piece, std::size_t at, std::size_t n) {
    std::memcpy(bytes + at, piece, n);
  };
  const std::size_t most = std::min<std::size_t>(kCopyBytes, size - used);
  const std::size_t moved = walk(pieces, most, written_, size, copy);
  written_ += moved;
  ring.written.store(written_);
  return Moved{moved, ring.reader_sleeps.load() != 0 && ring.reader_sleeps.exchange(0) != 0};
}

Result<MemoryLane::Moved> MemoryLane::read(std::span<const iovec> pieces) {
  Ring& ring = mapped_.shared->rings[static_cast<std::size_t>(1 - own_)];
  const std::size_t size = mapped_.ring_bytes;
  std::uint64_t there = ring.written.load() - read_;
  if (there == 0) {
    ring.reader_sleeps.store(1);
    there = ring.written.load() - read_;
    if (there == 0) return Moved{};
    ring.reader_sleeps.store(0);
  }
  if (there > size) return nonsense();
  const std::byte* const bytes = bytes_of(1 - own_);
  const auto copy = [bytes](std::byte* piece, std::size_t at, std::size_t n) {
    std::memcpy(piece, bytes + at, n);
  };
  const std::size_t most = std::min<std::size_t>(kCopyBytes, there);
  const std::size_t moved = walk(pieces, most, read_, size, copy);
  read_ += moved;
  ring.read.store(read_);
  // Who sleeps before a full ring is woken at its half, when it is worth its while: all of it will
  // be read.
  const bool has_room = there - moved <= size / 2;
  return Moved{moved,
               has_room && ring.writer_sleeps.load() != 0 && ring.writer_sleeps.exchange(0) != 0};
}

}  // namespace muster::comm
