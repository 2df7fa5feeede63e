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

/// A directory of a controller that may be this process' group.
struct Group {
  bool is_unified;
  std::string mount, path;  // below the mount, "" or "/..."
};

/// "0::/path" is version 2, "7:memory:/path" or "4:cpu,cpuacct:/path" version 1.
std::vector<Group> groups_of(const std::string& root, const std::string& controller) {
  std::ifstream lines(root + "/proc/self/cgroup");
  std::vector<Group> groups;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const bool is_unified = line.starts_with("0::");
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (!is_unified && controllers.find("," + controller + ",") == std::string::npos) continue;
    const std::string mount = root + "/sys/fs/cgroup";
    groups.push_back(
        {is_unified, is_unified ? mount : mount + "/" + controller, line.substr(second + 1)});
  }
  return groups;
}

/// Calls look(directory, is_unified) for this process' group of the controller, and for all that it
/// is in.
template <typename Look>
void in_groups(const std::string& root, const std::string& controller, const Look& look) {
  for (const Group& group : groups_of(root, controller)) {
    std::string path = group.path;
    for (;;) {
      look(group.mount + path, group.is_unified);
      const std::size_t slash = path.rfind('/');
      if (path.empty() || slash == std::string::npos) break;
      path.erase(slash);
    }
  }
}

/// A number of bytes; -1 without the file, or where it says "max".
std::int64_t read_bytes(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value && value >= 0 ? value : -1;
}

}  // namespace

std::int64_t count_memory_kills(const std::string& root) {
  for (const Group& group : groups_of(root, "memory")) {
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
  in_groups(root, "memory", [&](const std::string& directory, bool is_unified) {
    const std::int64_t limit =
        read_bytes(directory + (is_unified ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit > 0) least = least > 0 ? std::min(least, limit) : limit;
  });
  return least;
}

double processor_limit(const std::string& root) {
  double least = -1;
  in_groups(root, "cpu", [&](const std::string& directory, bool is_unified) {
    double quota = -1, period = 0;  // microseconds; "max" or -1 where there is no quota
    if (is_unified) {
      std::ifstream(directory + "/cpu.max") >> quota >> period;
    } else {
      std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
      std::ifstream(directory + "/cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return;
    least = least > 0 ? std::min(least, quota / period) : quota / period;
  });
  return least;
}

}  // namespace muster::sentinel
