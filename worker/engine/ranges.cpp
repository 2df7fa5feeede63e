#include "worker/engine/ranges.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/ops.h"

namespace muster::engine {

std::size_t blocks_of(std::size_t elements) {
  return (elements + kernels::kBlockElements - 1) / kernels::kBlockElements;
}

ElementRange intersection(ElementRange a, ElementRange b) {
  const ElementRange both{std::max(a.begin, b.begin), std::min(a.end, b.end)};
  return both.begin < both.end ? both : ElementRange{a.begin, a.begin};
}

Ranges united(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](ElementRange a, ElementRange b) { return a.begin < b.begin; });
  Ranges all;
  for (const ElementRange range : ranges) {
    if (range.size() == 0) continue;
    if (!all.empty() && range.begin <= all.back().end) {
      all.back().end = std::max(all.back().end, range.end);
    } else {
      all.push_back(range);
    }
  }
  return all;
}

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all = a;
  all.insert(all.end(), b.begin(), b.end());
  return united(std::move(all));
}

Ranges without(const Ranges& a, const Ranges& b) {
  Ranges left;
  for (ElementRange range : a) {
    for (const ElementRange hole : b) {
      const ElementRange both = intersection(range, hole);
      if (both.size() == 0) continue;
      if (range.begin < both.begin) left.push_back({range.begin, both.begin});
      range.begin = both.end;
    }
    if (range.size() > 0) left.push_back(range);
  }
  return left;
}

Ranges intersection(const Ranges& a, const Ranges& b) {
  Ranges both;
  for (const ElementRange part : b) {
    for (const ElementRange range : within(a, part)) both.push_back(range);
  }
  return both;
}

Ranges within(const Ranges& ranges, ElementRange part) {
  Ranges inside;
  for (const ElementRange range : ranges) {
    const ElementRange both = intersection(range, part);
    if (both.size() > 0) inside.push_back(both);
  }
  return inside;
}

std::size_t size_of(const Ranges& ranges) {
  std::size_t size = 0;
  for (const ElementRange range : ranges) size += range.size();
  return size;
}

bool are_ranges(const Ranges& ranges, std::size_t elements) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin >= ranges[i].end || ranges[i].end > elements) return false;
    if (i > 0 && ranges[i].begin <= ranges[i - 1].end) return false;
  }
  return true;
}

std::size_t offset_of(const Ranges& ranges, ElementRange part) {
  std::size_t offset = 0;
  for (const ElementRange range : ranges) {
    if (range.begin <= part.begin && part.end <= range.end) {
      return offset + (part.begin - range.begin);
    }
    offset += range.size();
  }
  MUSTER_CHECK_MSG(false, "values are looked for that are kept elsewhere");
  return 0;
}

}  // namespace muster::engine
