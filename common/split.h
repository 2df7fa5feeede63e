// How one copy of a model is divided between processes, and the sentence by which a worker tells
// the operator which divisions would fit its memory.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// What a step is for a process with a part of a model, by its own count. No micro-batches: it has
/// all of the model, or has computed nothing.
struct PartCounts {
  std::int64_t parameters = 0;  ///< that it has
  std::int64_t micro_batches = 0;
  /// That it hands on to the process with the next stage, or the last one to the first. Each gives
  /// as many bytes back.
  std::int64_t handed_on_bytes = 0;
  /// Sums that the slices of its stage make together, each in turns, one after the other; those in
  /// which it computes and sends, and what.
  std::int64_t sums = 0, turns = 0, busy_turns = 0, turn_bytes = 0;
  bool operator==(const PartCounts&) const = default;
};

/// Most processes in either direction.
inline constexpr int kMaxSplit = 64;

/// Of a model what says into how many stages it can be cut. Of a gpt blocks alone.
struct ModelDepth {
  int blocks = 0;
  int convolutions = 0, normalisations = 0;
  int hidden = 0;  ///< layers of all-to-all weights before the last one
};

/// Stages at most, each with parameters of its own: no branch of a gpt's block is cut, and its last
/// normalisation stays with the head; of other models a stage has one layer or more.
constexpr int stages_at_most(const ModelDepth& model) {
  if (model.blocks > 0) return 2 * model.blocks + 1;
  return model.convolutions + model.normalisations + model.hidden + 1;
}

/// Most that are told.
inline constexpr std::size_t kMaxSplitsTold = 16;

/// A worker's last words where its memory is too small for the whole model: `why`, and what fits,
/// the best first, at most kMaxSplitsTold: "1x2, 2x1", tensor x pipeline each.
std::string needs_split_sentence(const std::string& why, std::span<const Split> fits);

/// What fits, of such a sentence that anybody may have written: all that can be read before the
/// first thing that cannot, each within kMaxSplit, at most kMaxSplitsTold.
std::vector<Split> read_needs_split(std::string_view sentence);

}  // namespace muster
