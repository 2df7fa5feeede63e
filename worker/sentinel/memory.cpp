#include "worker/sentinel/memory.h"

#include <algorithm>
#include <fstream>
#include <vector>

namespace muster::sentinel {
namespace {

/// The number behind `key` in a file of lines that begin "key number"; -1 without it.
std::int64_t read_counter(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string name, rest;
  std::int64_t value = 0;
  while (file >> name >> value) {
    if (name == key) return value;
    std::getline(file, rest);
  }
  return -1;
}

/// A directory of the memory controller that may be this process' group.
struct Group {
  bool is_unified;
  std::string mount, path;  // below the mount, "" or "/..."
};

/// "0::/path" is version 2, "7:memory:/path" version 1.
std::vector<Group> memory_groups(const std::string& root) {
  std::ifstream lines(root + "/proc/self/cgroup");
  std::vector<Group> groups;
  for (std::string line; std::getline(lines, line);) {
    const bool is_unified = line.starts_with("0::");
    const std::size_t memory = line.find(":memory:");
    if (!is_unified && memory == std::string::npos) continue;
    groups.push_back({is_unified, root + (is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory"),
                      is_unified ? line.substr(3) : line.substr(memory + 8)});
  }
  return groups;
}

/// A number of bytes; -1 without the file, or where it says "max".
std::int64_t read_bytes(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value && value >= 0 ? value : -1;
}

}  // namespace

std::int64_t count_memory_kills(const std::string& root) {
  for (const Group& group : memory_groups(root)) {
    const std::string file = group.is_unified ? "/memory.events" : "/memory.oom_control";
    // Inside a container the group's own directory is mounted in place of the path, so the mount
    // itself is tried as well.
    for (const std::string& directory : {group.mount + group.path, group.mount}) {
      const std::int64_t kills = read_counter(directory + file, "oom_kill");
      if (kills >= 0) return kills;
    }
  }
  return -1;
}

std::int64_t memory_limit(const std::string& root) {
  std::int64_t least = read_counter(root + "/proc/meminfo", "MemTotal:");
  if (least > 0) least *= 1024;
  for (const Group& group : memory_groups(root)) {
    const std::string file = group.is_unified ? "/memory.max" : "/memory.limit_in_bytes";
    std::string path = group.path;
    for (;;) {
      const std::int64_t limit = read_bytes(group.mount + path + file);
      if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
      const std::size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.erase(slash);
    }
  }
  return least;
}

}  // namespace muster::sentinel
