// How one copy of a model is divided between processes, and the sentence by which a worker tells
// the operator which divisions would fit its memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Split {
  int tensor = 1;    ///< processes between which each layer is divided
  int pipeline = 1;  ///< stages, one after the other
  int processes() const { return tensor * pipeline; }  ///< that have a copy together
  bool operator==(const Split&) const = default;
};

/// Most processes in either direction.
inline constexpr int kMaxSplit = 64;
/// Most that are told.
inline constexpr std::size_t kMaxSplitsTold = 16;

/// A worker's last words where its memory is too small for the whole model: `why`, and what fits,
/// the best first, at most kMaxSplitsTold: "1x2, 2x1", tensor x pipeline each.
std::string needs_split_sentence(const std::string& why, std::span<const Split> fits);

/// What fits, of such a sentence that anybody may have written: all that can be read before the
/// first thing that cannot, each within kMaxSplit, at most kMaxSplitsTold.
std::vector<Split> read_needs_split(std::string_view sentence);

}  // namespace muster
