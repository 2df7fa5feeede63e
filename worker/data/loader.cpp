#include "worker/data/loader.h"

#include <algorithm>

#include "common/check.h"
#include "worker/data/permutation.h"

namespace muster::data {

Loader::Loader(const LoaderOptions& options) : options_(options) {
  MUSTER_CHECK(options.logical_ranks >= 1 && options.batch_size % options.logical_ranks == 0);
  MUSTER_CHECK(options.batch_size >= 1 &&
               options.samples >= static_cast<std::uint64_t>(options.batch_size));
}

std::int64_t Loader::steps_per_epoch() const {
  return static_cast<std::int64_t>(options_.samples /
                                   static_cast<std::uint64_t>(options_.batch_size));
}

std::size_t Loader::rows_of(RankRange ranks) const {
  MUSTER_CHECK(ranks.first >= 0 && ranks.last <= options_.logical_ranks);
  return static_cast<std::size_t>(ranks.size()) * static_cast<std::size_t>(rows_per_rank());
}

void Loader::samples(std::int64_t step, RankRange ranks, std::span<std::uint64_t> indices) const {
  MUSTER_CHECK(indices.size() == rows_of(ranks));
  fill(step, std::int64_t{ranks.first} * rows_per_rank(), indices);
}

std::vector<std::uint64_t> Loader::samples(std::int64_t step, RankRange ranks,
                                           SamplePart part) const {
  const std::size_t rows = rows_of(ranks), skipped = std::min(part.skipped, rows);
  std::vector<std::uint64_t> indices(std::min(part.most, rows - skipped));
  const auto first = static_cast<std::int64_t>(skipped);
  fill(step, std::int64_t{ranks.first} * rows_per_rank() + first, indices);
  return indices;
}

/// From place `first` of the step's batch on.
void Loader::fill(std::int64_t step, std::int64_t first, std::span<std::uint64_t> indices) const {
  const Permutation order(options_.seed, static_cast<std::uint32_t>(step / steps_per_epoch()),
                          options_.samples);
  const auto begin =
      static_cast<std::uint64_t>(step % steps_per_epoch() * options_.batch_size + first);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = order(begin + i);
}

}  // namespace muster::data
