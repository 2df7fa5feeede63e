// Stretches of the flat buffer, in whole blocks of 4,096 elements: who owns, holds and moves what.
#pragma once

#include <cstddef>
#include <vector>

namespace muster::engine {

/// Elements [begin, end) of the flat buffer.
struct ElementRange {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const ElementRange&) const = default;
};

/// Blocks of 4,096 elements, the last one counted although it may be short.
std::size_t blocks_of(std::size_t elements);

/// What two have in common; empty at `a.begin` where that is nothing.
ElementRange intersection(ElementRange a, ElementRange b);

/// Ascending, none empty, none touching another.
using Ranges = std::vector<ElementRange>;

/// Any ranges, in any order.
Ranges united(Ranges ranges);
Ranges united(const Ranges& a, const Ranges& b);
Ranges without(const Ranges& a, const Ranges& b);
Ranges intersection(const Ranges& a, const Ranges& b);
/// What of `ranges` lies in `part`.
Ranges within(const Ranges& ranges, ElementRange part);
std::size_t size_of(const Ranges& ranges);
/// Whether `ranges` are as Ranges are to be, and end at `elements` at the latest.
bool are_ranges(const Ranges& ranges, std::size_t elements);

/// Where values that are kept for `ranges` alone, one range after the other, have those of `part`,
/// which lies in one of them.
std::size_t offset_of(const Ranges& ranges, ElementRange part);

}  // namespace muster::engine
