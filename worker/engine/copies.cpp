#include "worker/engine/copies.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/check.h"
#include "worker/engine/in_pieces.h"

namespace muster::engine {
namespace {

/// So many sums side by side that their vectors fill the processor's registers, and no more.
constexpr std::size_t kLanes = 32;

/// Processors make NaNs of different bits from the same operation; that is no flipped bit.
std::uint32_t canonical_bits(float value) {
  return value != value ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value);
}

/// Per lane the sum of all values and the sum of these sums, which tells their order.
struct Lanes {
  std::array<std::uint32_t, kLanes> sums{}, sums_of_sums{};

  void add(const float* values) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      sums[l] += canonical_bits(values[l]);
      sums_of_sums[l] += sums[l];
    }
  }
};

bool all_equal(const std::vector<CopySums>& sums, std::size_t which) {
  return std::all_of(sums.begin(), sums.end(),
                     [&](const CopySums& one) { return one[which] == sums[0][which]; });
}

}  // namespace

/// One to one in the word for a given value and the other way round, so a change cannot be lost.
void BitSum::mix(std::uint64_t word) {
  value_ = (value_ ^ word) * 0x9e3779b97f4a7c15u;
  value_ ^= value_ >> 29;
}

void BitSum::add(std::span<const float> values, const std::function<void()>& on_alive) {
  Lanes lanes;
  std::size_t i = 0;
  in_pieces(values.size() / kLanes * kLanes, on_alive, [&](std::size_t begin, std::size_t end) {
    for (i = begin; i < end; i += kLanes) lanes.add(values.data() + i);
  });
  std::array<float, kLanes> rest{};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(i), values.end(), rest.begin());
  lanes.add(rest.data());
  mix(values.size());
  for (std::size_t l = 0; l < kLanes; ++l) {
    mix((std::uint64_t{lanes.sums_of_sums[l]} << 32) | lanes.sums[l]);
  }
}

void BitSum::add(double value) { mix(std::bit_cast<std::uint64_t>(value)); }

std::uint64_t bit_sum(std::span<const float> parameters, const OptimizerState& optimizer,
                      const std::function<void()>& on_alive) {
  BitSum sum;
  sum.add(parameters, on_alive);
  for (const auto& scalar : optimizer.scalars) sum.add(scalar.value);
  for (const auto& buffer : optimizer.buffers) sum.add(buffer.values, on_alive);
  return sum.value();
}

CopyVerdict judge_copies(const std::vector<CopySums>& sums, const std::vector<Stretch>& stretches) {
  CopyVerdict verdict;
  const auto processes = static_cast<int>(sums.size());
  bool are_shards_alike = true;
  for (std::size_t s = 0; s < stretches.size(); ++s) {
    const auto sum_at = [&](int rank) { return sums[static_cast<std::size_t>(rank)].at(1 + s); };
    for (const int keeper : stretches[s].keepers) {
      const bool is_alike = sum_at(keeper) == sum_at(stretches[s].keepers[0]);
      are_shards_alike = are_shards_alike && is_alike;
    }
  }
  verdict.are_alike = are_shards_alike && all_equal(sums, 0);
  if (verdict.are_alike || !are_shards_alike) return verdict;
  for (const CopySums& right : sums) {
    std::vector<int> wrong;
    for (int rank = 0; rank < processes; ++rank) {
      if (sums[static_cast<std::size_t>(rank)][0] != right[0]) wrong.push_back(rank);
    }
    if (2 * wrong.size() < sums.size()) verdict.wrong = std::move(wrong);
  }
  return verdict;
}

}  // namespace muster::engine
