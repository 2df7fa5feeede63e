#include "worker/data/loader.h"

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

void Loader::samples(std::int64_t step, RankRange ranks, std::span<std::uint64_t> indices) const {
  const auto rows =
      static_cast<std::size_t>(ranks.size()) * static_cast<std::size_t>(rows_per_rank());
  MUSTER_CHECK(indices.size() == rows && ranks.first >= 0 && ranks.last <= options_.logical_ranks);
  const Permutation order(options_.seed, static_cast<std::uint32_t>(step / steps_per_epoch()),
                          options_.samples);
  const auto first = static_cast<std::uint64_t>(step % steps_per_epoch() * options_.batch_size +
                                                std::int64_t{ranks.first} * rows_per_rank());
  for (std::size_t i = 0; i < rows; ++i) indices[i] = order(first + i);
}

}  // namespace muster::data
