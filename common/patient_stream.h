// A stream whose reader may stand still: a pipe that nobody reads, a stopped terminal. Whoever
// writes here goes on all the same.
#pragma once

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include "common/file.h"

namespace muster {

class PatientStream {
 public:
  /// Most bytes of a piece: a pipe that takes anything takes so much at once.
  static constexpr std::size_t kPieceBytes = PIPE_BUF;

  /// `file` outlives it. One that has no descriptor is memory and takes all.
  explicit PatientStream(std::FILE* file);

  /// Whether a piece would be taken now; one that would fail counts as taken. Blocks: no.
  bool has_room() const;
  /// Whether `piece` was taken. A terminal may take the beginning alone. Threads: any. Blocks: a
  /// second for a reader that is late, and no more once it was waited for in vain, until it takes
  /// something again.
  bool write(std::string_view piece);

 private:
  std::FILE* const file_;
  /// Of `file_`, if that is a terminal: poll says that one takes something, but a write to it waits
  /// until it has taken all. This description of its own waits for nobody.
  const UniqueFd terminal_;
  std::atomic<bool> is_stuck_{false};
};

}  // namespace muster
