// Has what stands on the disk read before it is wanted; nothing of what is in memory. What goes
// wrong is told by who reads it.
#pragma once

#include <cstdint>
#include <span>

#include "worker/data/dataset.h"
#include "worker/data/loader.h"

namespace muster::data {

/// The samples of `ranks` at `step`, or a part of them, in the order in which Loader::samples tells
/// them.  Threads: as reading.
void prefetch(const Dataset& samples, const Loader& loader, std::int64_t step, RankRange ranks,
              SamplePart part = {});

/// The samples with these indices.  Threads: as reading.
void prefetch(const Dataset& samples, std::span<const std::uint64_t> indices);

}  // namespace muster::data
