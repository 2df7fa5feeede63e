// What a process leaves behind in its directory that dies while it writes, and what must stand
// there in the end.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "tests/recovery/world.h"

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

/// What is wrong with the record of a training that is complete, in which every step stands once,
/// in order, with the right hash. Empty: nothing.
std::string wrong_in_record(const std::string& directory, const Lesson& lesson);

}  // namespace muster::sim
