#include "common/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "common/contract.h"

namespace muster {
namespace {

TEST_CASE("a descriptor has one owner, who closes it") {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
  const UniqueFd reader(ends[0]);
  {
    UniqueFd writer(ends[1]);
    const UniqueFd heir = std::move(writer);
    CHECK_FALSE(writer);
    CHECK(heir.get() == ends[1]);
  }
  char byte = 0;
  CHECK(read(reader.get(), &byte, 1) == 0);  // closed: the end of the pipe, not a wait
}

TEST_CASE("a file over the bound, absent or a directory is refused by name") {
  CHECK(read_file("/proc/self/cmdline", 4096)->size() > 0);
  auto large = read_file("/proc/self/cmdline", 2);
  REQUIRE_FALSE(large);
  CHECK(large.error().code() == ErrorCode::kTooLarge);
  auto absent = read_file("/nowhere/f", 2);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().code() == ErrorCode::kNotFound);
  CHECK(absent.error().message() == "/nowhere/f: cannot open: No such file or directory");
  auto directory = read_file("/", 2);
  REQUIRE_FALSE(directory);
  CHECK(directory.error().message() == "/: cannot read: Is a directory");
}

TEST_CASE("a directory whose file system knows no flush is as one that was flushed") {
  const UniqueFd proc(::open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::fsync(proc.get()) != 0);  // such a one
  CHECK(flush_directory("/proc/self") == 0);
  CHECK(flush_directory("/tmp") == 0);
  CHECK(flush_directory("/nowhere") == ENOENT);
}

TEST_CASE("only a full disk has the exit code of a full disk") {
  CHECK(os_error("f", "write", ENOSPC).exit_code() == contract::exit_code::kDisk);
  CHECK(os_error("f", "write", EACCES).exit_code() == 0);
}

}  // namespace
}  // namespace muster
