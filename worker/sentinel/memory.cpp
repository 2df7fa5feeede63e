#include "worker/sentinel/memory.h"

#include <fstream>

namespace muster::sentinel {
namespace {

/// The number behind `key` in a file of "key number" lines; -1 without it.
std::int64_t read_counter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
  }
  return -1;
}

}  // namespace

std::int64_t count_memory_kills(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // "0::/path" is version 2, "7:memory:/path" version 1. Inside a container the group's own
    // directory is mounted in place of the path, so the mount itself is tried as well.
    const bool is_unified = line.starts_with("0::");
    const std::size_t memory = line.find(":memory:");
    if (!is_unified && memory == std::string::npos) continue;
    const std::string mount = root + (is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    const std::string file = is_unified ? "/memory.events" : "/memory.oom_control";
    const std::string path = is_unified ? line.substr(3) : line.substr(memory + 8);
    for (const std::string& directory : {mount + path, mount}) {
      const std::int64_t kills = read_counter(directory + file, "oom_kill");
      if (kills >= 0) return kills;
    }
  }
  return -1;
}

}  // namespace muster::sentinel
