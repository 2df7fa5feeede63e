// In which order a checkpoint reaches the disk. Where power is lost nobody can be asked afterwards,
// so the calls themselves are looked at: this program's fsync, fdatasync and rename note them and
// go on to the C library's.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "tests/unit/data/idx_bytes.h"
#include "worker/engine/checkpoint.h"
#include "worker/engine/files.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// What this thread does while it lives: "sync NAME" and "rename NAME", with a path's last part.
class FileCalls {
 public:
  FileCalls() { current_ = this; }
  ~FileCalls() { current_ = nullptr; }
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  static FileCalls* current() { return current_; }
  void note_sync(int fd) {
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
    struct stat status{};
    fstat(fd, &status);
    std::string name = path.filename();
    // Without what makes a temporary name one of this process.
    if (name.ends_with(".tmp")) name.erase(name.size() - 21, 17);
    bytes_synced_[name] = status.st_size;
    calls_.push_back("sync " + name);
  }
  void note_rename(const char* to) {
    calls_.push_back("rename " + std::filesystem::path(to).filename().string());
  }

  const std::vector<std::string>& calls() const { return calls_; }
  /// Size of a file when it was last synced.
  std::int64_t bytes_synced(const std::string& name) const {
    const auto found = bytes_synced_.find(name);
    return found == bytes_synced_.end() ? -1 : found->second;
  }
  /// Whether these were called in this order, whatever stands between them.
  bool has_in_order(const std::vector<std::string>& wanted) const {
    auto at = calls_.begin();
    for (const std::string& one : wanted) {
      at = std::find(at, calls_.end(), one);
      if (at == calls_.end()) return false;
      ++at;
    }
    return true;
  }

 private:
  inline static thread_local FileCalls* current_ = nullptr;
  std::vector<std::string> calls_;
  std::map<std::string, std::int64_t> bytes_synced_;
};

}  // namespace

extern "C" int fsync(int fd) {
  static const auto next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"));
  if (FileCalls* calls = FileCalls::current()) calls->note_sync(fd);
  return next(fd);
}

extern "C" int fdatasync(int fd) {
  static const auto next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fdatasync"));
  if (FileCalls* calls = FileCalls::current()) calls->note_sync(fd);
  return next(fd);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  static const auto next =
      reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "rename"));
  if (FileCalls* calls = FileCalls::current()) calls->note_rename(to);
  return next(from, to);
}

namespace {

struct Saved {
  test::TempDirectory directory;
  ModelShape shape = ModelShape::mlp(std::vector<std::size_t>{30, 150, 10});
  std::vector<float> parameters = std::vector<float>(shape.parameters(), 0.5f);
  Optimizer optimizer = Optimizer(TrainingConfig(), shape.parameters());
  std::string path = directory / "checkpoints";
  CheckpointStore store = CheckpointStore({path, 2, shape, Json{{"spec.training.seed", 7}}, "uid"});
};

}  // namespace

TEST_CASE("a checkpoint's files are on the disk under their names before its manifest has one") {
  Saved saved;
  FileCalls calls;
  StateInMemory state(saved.parameters, &saved.optimizer.state());
  REQUIRE(saved.store.save(100, saved.optimizer.state(), state).has_value());
  const std::string step = "step-000000000100";
  for (const std::string file : {"model.safetensors", "optimizer.safetensors"}) {
    CAPTURE(file);
    CHECK(calls.has_in_order(
        {"sync " + file + ".tmp", "rename " + file, "sync " + step, "rename manifest.json"}));
  }
  CHECK(calls.has_in_order(
      {"sync manifest.json.tmp", "rename manifest.json", "sync " + step, "sync checkpoints"}));
  for (const std::string file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    CAPTURE(file);
    CHECK(std::count(calls.calls().begin(), calls.calls().end(), "rename " + file) == 1);
    const auto size = std::filesystem::file_size(saved.path + "/" + step + "/" + file);
    CHECK(calls.bytes_synced(file + ".tmp") == static_cast<std::int64_t>(size));
  }
}

TEST_CASE("a trained model is on the disk before it has its name, and its name before it is told") {
  Saved saved;
  FileCalls calls;
  StateInMemory model(saved.parameters);
  const auto path = saved.store.write_model(model);
  REQUIRE(path.has_value());
  CHECK(calls.has_in_order(
      {"sync model.safetensors.tmp", "rename model.safetensors", "sync checkpoints"}));
  const auto size = std::filesystem::file_size(*path);
  CHECK(calls.bytes_synced("model.safetensors.tmp") == static_cast<std::int64_t>(size));
}

TEST_CASE("a directory whose file system knows no flush stops no checkpoint") {
  CHECK(sync_directory("/proc/self"));
  CHECK_FALSE(sync_directory("/nowhere"));
}

TEST_CASE("what goes before a piece of a large file is on the disk, all but the last 64 MiB") {
  const test::TempDirectory directory;
  constexpr std::int64_t kPiece = std::int64_t{32} << 20;
  const std::vector<std::byte> piece(kPiece);
  FileCalls calls;
  std::vector<std::int64_t> on_disk;
  const auto next = [&]() -> Result<std::span<const std::byte>> {
    on_disk.push_back(calls.bytes_synced("large.tmp"));
    return std::span(piece).first(on_disk.size() <= 3 ? piece.size() : 0);
  };
  REQUIRE(write_file(directory / "large", next).has_value());
  CHECK(on_disk == std::vector<std::int64_t>{-1, -1, 2 * kPiece, 2 * kPiece});
  CHECK(calls.bytes_synced("large.tmp") == 3 * kPiece);
}
