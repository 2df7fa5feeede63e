// How gradients are cut for their transfer, and which process adds what. Pure functions of the
// model and the members: every process computes them for itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/engine/ranges.h"

namespace muster::engine {

/// Stretches of whole blocks that are sent one after another, from the end of the flat buffer to
/// its beginning: the backward pass comes to the last layer first. They never depend on the
/// members.
class Buckets {
 public:
  /// All in one.
  explicit Buckets(std::size_t elements);
  /// A bucket begins where one of the layers does, which begin at `layers`, ascending, or in the
  /// next block. It has at least `blocks_min` blocks, but for the last one; there are at most
  /// kCountMax.
  Buckets(std::size_t elements, const std::vector<std::size_t>& layers, std::size_t blocks_min);

  /// Of each one group of transfers may be left to the end; a communicator takes 64 at once.
  static constexpr std::size_t kCountMax = 24;

  std::size_t elements() const { return cuts_.front(); }
  std::size_t count() const { return cuts_.size() - 1; }
  ElementRange operator[](std::size_t bucket) const { return {cuts_[bucket + 1], cuts_[bucket]}; }

 private:
  std::vector<std::size_t> cuts_;  ///< from the end of the buffer to 0
};

/// Of the process with most to add up, where not all have as much.
inline constexpr std::uint8_t kWeightMost = 8;

/// Who adds up what of each bucket: whole blocks, divided as evenly as they can be, or in
/// proportion to weights.
class Ownership {
 public:
  /// All processes own as much, where there are enough blocks.
  Ownership(Buckets buckets, int processes);
  /// `weights` by rank, of which one at least is above 0; the others own nothing.
  Ownership(Buckets buckets, const std::vector<std::uint8_t>& weights);

  const Buckets& buckets() const { return buckets_; }
  int processes() const { return static_cast<int>(places_.size()); }
  const std::vector<int>& owners() const { return owners_; }  ///< ascending

  /// May be empty.
  ElementRange of(std::size_t bucket, int rank) const;
  /// Of all buckets.
  Ranges of(int rank) const;

 private:
  Buckets buckets_;
  std::vector<int> owners_;
  std::vector<int> places_;  ///< by rank: its place among the owners; -1: none
  /// Of the owners before each place; the places are counted through twice.
  std::vector<std::size_t> weight_before_{0};
};

}  // namespace muster::engine
