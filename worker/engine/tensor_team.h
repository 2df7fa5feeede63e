// The processes between which the layers of a stage are divided, as they make products together
// whose chains run through all of them. Each sum is one chain in ascending order, so it is handed
// on: a process goes on from what the one before it has come to, and the last one gives the result
// to all. Rows go through in tiles, one behind the other, so that all compute at once and a tile is
// on its way while the next one is computed; what is sent is as much as for adding up in any order,
// and the bits are those of one process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/split.h"
#include "worker/comm/communicator.h"

namespace muster::engine {

/// Of one step or evaluation. Threads: one.
class TensorTeam {
 public:
  /// All outlive it. Each transfer may take `wait_max`.
  TensorTeam(comm::Communicator& processes, const Clock& clock, milliseconds wait_max,
             std::uint64_t stamp)
      : processes_(processes), clock_(clock), wait_max_(wait_max), stamp_(stamp) {}

  /// What becomes of the product; the same on all processes but for the place.
  /// Shape: values (rows, columns).
  struct Product {
    float* values = nullptr;
    std::size_t rows = 0, columns = 0;
    /// How often the chains run through all processes.
    std::size_t rounds = 1;
  };
  /// The part of the chains that this process makes of some rows in one of the rounds.
  struct Part {
    std::size_t first_row = 0, rows = 0;
    std::size_t round = 0;
    bool goes_on = false;  ///< from what values holds, else from +0
    bool is_last = false;  ///< what comes after the chain is due
  };
  /// Blocks: on the other processes, for each transfer.  Errors: in status(); then the values are
  /// undefined.
  void make(const Product& product, const std::function<void(const Part&)>& compute);

  /// Each process has filled its part of `values`, [offsets[rank], offsets[rank + 1]); afterwards
  /// all have all.  Shape: offsets (size() + 1), ascending.  Blocks, errors: as make().
  void gather(std::span<float> values, std::span<const std::size_t> offsets);
  /// Rows are dealt out evenly and in order. Of `values`, rows of so many columns, this process's.
  std::span<float> own_rows(std::span<float> values, std::size_t columns) const;
  /// As gather(), where each has filled its rows.
  void gather_rows(std::span<float> values, std::size_t columns);

  std::size_t size() const { return static_cast<std::size_t>(processes_.size()); }
  std::size_t rank() const { return static_cast<std::size_t>(processes_.rank()); }
  /// How long it has waited for the others so far.
  nanoseconds waited() const { return waited_; }
  /// Of what it has made so far; the rest of the counts is not known here.
  const PartCounts& counts() const { return counts_; }
  nanoseconds in_turns() const { return in_turns_; }
  /// The first error there was, as of comm::Work::wait; after it nothing is computed.
  const Status& status() const { return status_; }

 private:
  Status wait_for(comm::Work& work);
  std::vector<std::size_t> offsets_of_rows(std::size_t values, std::size_t columns) const;
  Status hand_on(const Product& product, std::size_t tile_rows, std::size_t tick,
                 std::unique_ptr<comm::Work>& under_way);

  comm::Communicator& processes_;
  const Clock& clock_;
  const milliseconds wait_max_;
  const std::uint64_t stamp_;
  Status status_;
  nanoseconds waited_{}, in_turns_{};
  PartCounts counts_;
  std::vector<comm::SendBuffer> sends_;  ///< of one tick
  std::vector<comm::ReceiveBuffer> receives_;
};

}  // namespace muster::engine
