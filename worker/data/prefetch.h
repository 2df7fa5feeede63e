// Has what stands on the disk read before it is wanted; nothing of what is in memory. What goes
// wrong is told by who reads it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/data/dataset.h"
#include "worker/data/loader.h"

namespace muster::data {

/// The samples of `ranks` at `step`, in the order in which Loader::samples tells them.  Threads: as
/// reading.
void prefetch(const Dataset& samples, const Loader& loader, std::int64_t step, RankRange ranks);

/// The samples from `first` to `last`.  Threads: as reading.
void prefetch(const Dataset& samples, std::size_t first, std::size_t last);

}  // namespace muster::data
