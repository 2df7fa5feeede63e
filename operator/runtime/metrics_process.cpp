#include "operator/runtime/metrics_process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace muster::runtime {
namespace {

std::string read_whole(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// When the machine was started, since the epoch.
double boot_seconds() {
  std::istringstream stat(read_whole("/proc/stat"));
  std::string line;
  while (std::getline(stat, line)) {
    if (line.rfind("btime ", 0) == 0) return std::strtod(line.c_str() + 6, nullptr);
  }
  return 0;
}

double count_fds() {
  DIR* directory = ::opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int entries = 0;
  while (::readdir(directory) != nullptr) ++entries;
  ::closedir(directory);
  return entries - 3;  // ".", ".." and the directory itself
}

}  // namespace

ProcessFacts read_process_facts() {
  ProcessFacts facts;
  const std::string stat = read_whole("/proc/self/stat");
  // The name of the program stands in parentheses and may hold anything.
  const std::size_t behind_name = stat.rfind(')');
  if (behind_name != std::string::npos) {
    std::istringstream fields(stat.substr(behind_name + 1));
    std::string skipped;
    double user = 0, system = 0, started = 0, pages = 0;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    fields >> user >> system;
    for (int field = 16; field < 22; ++field) fields >> skipped;
    fields >> started >> facts.virtual_bytes >> pages;
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    facts.cpu_seconds = (user + system) / ticks;
    facts.resident_bytes = pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
    facts.start_time_seconds = boot_seconds() + started / ticks;
  }
  facts.open_fds = count_fds();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.max_fds = static_cast<double>(limit.rlim_cur);
  return facts;
}

}  // namespace muster::runtime
