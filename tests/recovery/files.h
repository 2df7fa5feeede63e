// What a process leaves behind in its directory that dies while it writes.
#pragma once

#include <cstdint>
#include <set>
#include <string>

namespace muster::sim {

struct FilesBefore {
  std::set<std::string> checkpoints;  ///< that are whole
  std::uintmax_t record_bytes = 0;
};
FilesBefore look_at(const std::string& directory);
/// Makes of what was written since `before` what a death in the middle of it leaves: a checkpoint
/// without its manifest, which is written last, and half of a file; a record whose last line is
/// cut.
void tear(const std::string& directory, const FilesBefore& before);

}  // namespace muster::sim
