// The gradients of one step that this process holds, one buffer a node of the sum. They stay until
// the step is done everywhere: after a death the survivors keep what they have computed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/engine/assignment.h"

namespace muster::engine {

/// Owns the buffers and uses them again. Threads: one.
class NodeSums {
 public:
  /// `elements` floats a buffer.
  explicit NodeSums(std::size_t elements) : elements_(elements) {}

  /// From now on exactly `nodes`, in this order; those computed before stay computed.
  void hold(const std::vector<RankRange>& nodes);
  /// The step is over: nothing is computed any more.
  void forget();
  /// Of those that are computed, all but `nodes` are not any more.
  void forget_all_but(const std::vector<RankRange>& nodes);

  /// What is kept for being used again, the sums of parts of a node among it.
  std::size_t unused_bytes() const;
  void give_up_unused();

  std::size_t elements() const { return elements_; }
  std::size_t count() const { return entries_.size(); }
  RankRange node(std::size_t k) const { return entries_[k].node; }
  std::span<float> buffer(std::size_t k) { return entries_[k].values; }
  /// One more buffer, for the sum of a part of a node; kept from step to step.
  std::span<float> spare(std::size_t number);
  bool is_computed(std::size_t k) const { return entries_[k].is_computed; }
  void set_computed(std::size_t k) { entries_[k].is_computed = true; }
  std::vector<RankRange> computed() const;

 private:
  struct Entry {
    RankRange node;
    bool is_computed = false;
    std::vector<float> values;
  };
  std::vector<float> take_buffer();

  std::size_t elements_;
  std::vector<Entry> entries_;
  std::vector<std::vector<float>> free_, spares_;
};

}  // namespace muster::engine
