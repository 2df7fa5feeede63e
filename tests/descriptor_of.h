// A file that the code under test has open, for tests that put another one in its place.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace muster::test {

/// The one that this process has a file open by.
inline int descriptor_of(const std::string& path) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // The listing's own.
    if (std::filesystem::read_symlink(entry.path(), gone) == path) {
      return std::stoi(entry.path().filename());
    }
  }
  FAIL("not open: " << path);
  return -1;
}

}  // namespace muster::test
