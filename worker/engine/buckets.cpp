#include "worker/engine/buckets.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kernels/ops.h"

namespace muster::engine {

Buckets::Buckets(std::size_t elements) : cuts_{elements, 0} {}

Buckets::Buckets(std::size_t elements, const std::vector<std::size_t>& layers,
                 std::size_t blocks_min)
    : cuts_{elements} {
  std::size_t last = blocks_of(elements);
  const std::size_t least = std::max(blocks_min, (last + kCountMax - 2) / (kCountMax - 1));
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    // A block with the end of the layer before is complete with that one.
    const std::size_t first = blocks_of(*layer);
    if (first == 0 || first + least > last) continue;
    cuts_.push_back(first * kernels::kBlockElements);
    last = first;
  }
  cuts_.push_back(0);
  MUSTER_CHECK(count() <= kCountMax);
}

Ownership::Ownership(Buckets buckets, int processes)
    : Ownership(std::move(buckets),
                std::vector<std::uint8_t>(static_cast<std::size_t>(processes), 1)) {}

Ownership::Ownership(Buckets buckets, const std::vector<std::uint8_t>& weights)
    : buckets_(std::move(buckets)) {
  for (const std::uint8_t one : weights) {
    if (one != 0) owners_.push_back(static_cast<int>(places_.size()));
    places_.push_back(one != 0 ? static_cast<int>(owners_.size()) - 1 : -1);
  }
  for (std::size_t place = 0; place < 2 * owners_.size(); ++place) {
    const int owner = owners_[place % owners_.size()];
    weight_before_.push_back(weight_before_.back() + weights[static_cast<std::size_t>(owner)]);
  }
  MUSTER_CHECK_MSG(!owners_.empty(), "somebody must add up the gradients");
}

ElementRange Ownership::of(std::size_t bucket, int rank) const {
  const int place = places_[static_cast<std::size_t>(rank)];
  if (place < 0) return {};
  const ElementRange all = buckets_[bucket];
  const std::size_t owners = owners_.size();
  // Another one begins each bucket, so that in each another one has what is left over.
  const std::size_t first = (owners - bucket % owners) % owners;
  const std::size_t own =
      static_cast<std::size_t>(place) + (static_cast<std::size_t>(place) < first ? owners : 0);
  const std::size_t blocks = blocks_of(all.size());
  const auto start = [&](std::size_t at) {
    const std::size_t weight = weight_before_[at] - weight_before_[first];
    return std::min(all.begin + blocks * weight / weight_before_[owners] * kernels::kBlockElements,
                    all.end);
  };
  return {start(own), start(own + 1)};
}

Ranges Ownership::of(int rank) const {
  Ranges all;
  for (std::size_t bucket = 0; bucket < buckets_.count(); ++bucket) {
    all.push_back(of(bucket, rank));
  }
  return united(std::move(all));
}

}  // namespace muster::engine
