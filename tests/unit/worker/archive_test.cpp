// What `muster fetch` reads, seen by another program: the machine's own tar.
#include "worker/archive.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "common/contract.h"
#include "tests/process.h"

using namespace muster;
using test::Process;
using test::read_file;
namespace fs = std::filesystem;
namespace exit_code = contract::exit_code;

namespace {

struct Directory {
  fs::path path;
  fs::path source;
  Directory() {
    std::string name = "/tmp/muster-archive-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
    source = path / "source";
    fs::create_directories(source);
  }
  ~Directory() { fs::remove_all(path); }

  void put(const std::string& name, const std::string& bytes) const {
    fs::create_directories((source / name).parent_path());
    std::ofstream(source / name, std::ios::binary) << bytes;
  }

  Status archive(const worker::ArchiveLimits& limits = {},
                 const std::vector<std::string>& names = {}) const {
    const int out =
        open((path / "out.tar").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    REQUIRE(out >= 0);
    const Status status = worker::write_archive(source, out, names, limits);
    close(out);
    return status;
  }

  /// What tar prints of `arguments` and the archive; its exit code goes into `code`.
  std::string tar(std::vector<std::string> arguments, int& code) const {
    const fs::path log = path / "tar.log";
    fs::remove(log);
    arguments.insert(arguments.end(), {"-f", (path / "out.tar").string()});
    Process program("/bin/tar", arguments, {"PATH=/bin", "LC_ALL=C"}, log);
    code = program.wait().value_or(-1);
    return read_file(log);
  }
};

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

}  // namespace

TEST_CASE("tar unpacks what was archived, byte for byte, names sorted") {
  const Directory directory;
  const std::string large = repeat("0123456789", 40'000);  // several reads, no whole block
  directory.put("model.safetensors", large);
  directory.put("empty", "");
  directory.put("block", std::string(512, 'b'));
  directory.put("step-100/state", std::string("\0\1\2", 3));
  const std::string deep = repeat("d", 90) + "/" + repeat("f", 100);
  directory.put(deep, "deep");
  REQUIRE(directory.archive());
  CHECK(fs::file_size(directory.path / "out.tar") % 512 == 0);
  int code = -1;
  CHECK(directory.tar({"-t"}, code) ==
        "block\n" + deep + "\nempty\nmodel.safetensors\nstep-100/state\n");
  CHECK(code == 0);
  fs::create_directories(directory.path / "unpacked");
  CHECK(directory.tar({"-x", "-C", (directory.path / "unpacked").string()}, code) == "");
  CHECK(code == 0);
  CHECK(read_file(directory.path / "unpacked/model.safetensors") == large);
  CHECK(read_file(directory.path / "unpacked/step-100/state") == std::string("\0\1\2", 3));
  CHECK(read_file(directory.path / "unpacked" / deep) == "deep");
  CHECK(fs::file_size(directory.path / "unpacked/empty") == 0);
}

TEST_CASE("tar reads the size of a file that ustar has no digits for") {
  for (const std::int64_t bytes :
       {(std::int64_t{1} << 33) - 1, std::int64_t{1} << 33, (std::int64_t{1} << 42) - 3}) {
    const Directory directory;
    const auto header = worker::archive_header("model", bytes, 0);
    REQUIRE(header);
    std::ofstream(directory.path / "out.tar", std::ios::binary)
        .write(header->data(), static_cast<std::streamsize>(header->size()));
    int code = -1;
    const std::string said = directory.tar({"-t", "-v"}, code);
    CHECK_MESSAGE(said.find(" " + std::to_string(bytes) + " ") != std::string::npos, said);
  }
}

TEST_CASE("an empty directory gives an archive that tar takes for empty") {
  const Directory directory;
  REQUIRE(directory.archive());
  int code = -1;
  CHECK(directory.tar({"-t"}, code) == "");
  CHECK(code == 0);
  CHECK(fs::file_size(directory.path / "out.tar") == 1024);
}

TEST_CASE("links, pipes and sockets are neither followed nor waited for") {
  const Directory directory;
  directory.put("kept", "kept");
  std::ofstream(directory.path / "secret") << "secret";
  fs::create_symlink(directory.path / "secret", directory.source / "link");
  fs::create_directory_symlink(directory.path, directory.source / "up");
  REQUIRE(mkfifo((directory.source / "pipe").c_str(), 0600) == 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string where = (directory.source / "socket").string();
  REQUIRE(where.size() < sizeof address.sun_path);
  where.copy(address.sun_path, where.size());
  REQUIRE(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(directory.archive());
  close(listener);
  int code = -1;
  CHECK(directory.tar({"-t"}, code) == "kept\n");
  CHECK(code == 0);
}

TEST_CASE("what is beyond the limits is refused with a sentence that names it") {
  const Directory directory;
  directory.put("a/b/c", "12345");
  directory.put("d", "1");
  const auto sentence = [&](const worker::ArchiveLimits& limits) {
    const Status status = directory.archive(limits);
    REQUIRE_FALSE(status);
    CHECK(status.error().code() == ErrorCode::kTooLarge);
    return status.error().message();
  };
  const std::string source = directory.source.string();
  CHECK(sentence({.files_max = 3}) == source + ": more than 3 files");
  CHECK(sentence({.depth_max = 1}) == source + "/a/b/: more than 1 directories deep");
  CHECK(sentence({.file_bytes_max = 4}) == source + "/a/b/c: larger than 4 bytes");
  CHECK(directory.archive({.files_max = 4, .depth_max = 2, .file_bytes_max = 5}));
  directory.put(repeat("n", 101), "");
  CHECK(sentence({}).find("too long for a ustar archive") != std::string::npos);
}

TEST_CASE("what is asked for by name comes, however much else is there") {
  const Directory directory;
  directory.put("model", "bits");
  directory.put("record", "line");
  directory.put("step-100/model", "old");
  directory.put("named/deep", "deep");
  for (int i = 0; i <= 10'000; ++i) directory.put("foreign-" + std::to_string(i), "");
  const Status all = directory.archive();
  REQUIRE_FALSE(all);
  CHECK(all.error().code() == ErrorCode::kTooLarge);
  REQUIRE(directory.archive({}, {"record", "absent", "named", "model"}));
  int code = -1;
  CHECK(directory.tar({"-t"}, code) == "model\nnamed/deep\nrecord\n");
  CHECK(code == 0);
  REQUIRE(directory.archive({}, {"absent"}));
  CHECK(directory.tar({"-t"}, code) == "");
  for (const char* wrong : {"", ".", "..", "../out.tar", "step-100/model", "/etc/passwd"}) {
    CAPTURE(wrong);
    const Status refused = directory.archive({}, {"model", wrong});
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == ErrorCode::kInvalid);
  }
}

TEST_CASE("the program archives for kubectl exec, and says what it cannot") {
  const Directory directory;
  directory.put("model", "bits");
  const auto run = [&](const std::vector<std::string>& arguments, const std::string& out) {
    Process program(MUSTER_WORKER, arguments, {}, directory.path / out);
    return program.wait().value_or(-1);
  };
  CHECK(run({"--archive", directory.source.string()}, "out.tar") == exit_code::kComplete);
  int code = -1;
  CHECK(directory.tar({"-t"}, code) == "model\n");
  directory.put("other", "bits");
  CHECK(run({"--archive", directory.source.string(), "model", "none"}, "out.tar") ==
        exit_code::kComplete);
  CHECK(directory.tar({"-t"}, code) == "model\n");
  CHECK(run({"--archive", directory.source.string(), "../up"}, "usage") == exit_code::kUsage);
  CHECK(run({"--archive", "/nowhere/at/all"}, "log") == exit_code::kData);
  CHECK(read_file(directory.path / "log") ==
        "muster-worker: --archive: /nowhere/at/all: is not a directory; name one\n");
  CHECK(run({"--archive"}, "usage") == exit_code::kUsage);
  for (const char* wrong : {"0", "-1", "86401", "ten", "1s", ""}) {
    CAPTURE(wrong);
    CHECK(run({"--wait", wrong}, "usage") == exit_code::kUsage);
  }
}

TEST_CASE("waiting ends by itself, and at once when asked to") {
  const Directory directory;
  Process short_one(MUSTER_WORKER, {"--wait", "1"}, {}, directory.path / "log");
  CHECK(short_one.wait() == exit_code::kComplete);
  // Blocked from the start in this child, so that it is pending however early it comes.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigset_t before;
  REQUIRE(sigprocmask(SIG_BLOCK, &signals, &before) == 0);
  Process long_one(MUSTER_WORKER, {"--wait", "86400"}, {}, directory.path / "log");
  REQUIRE(sigprocmask(SIG_SETMASK, &before, nullptr) == 0);
  long_one.kill(SIGTERM);
  CHECK(long_one.wait() == exit_code::kComplete);
}
