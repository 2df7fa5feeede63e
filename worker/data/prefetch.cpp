#include "worker/data/prefetch.h"

#include "worker/data/picture_files.h"
#include "worker/data/table_file.h"
#include "worker/data/tokens.h"

namespace muster::data {
namespace {

bool is_in_memory(const Dataset& samples) {
  return !samples.shards && !samples.pictures && !samples.rows;
}

}  // namespace

void prefetch(const Dataset& samples, std::span<const std::uint64_t> indices) {
  if (samples.pictures) samples.pictures->want(indices);
  if (samples.rows) samples.rows->want(indices);
  if (!samples.shards) return;
  for (const std::uint64_t index : indices) {
    samples.shards->prefetch(index * samples.features, samples.features + 1);
  }
}

void prefetch(const Dataset& samples, const Loader& loader, std::int64_t step, RankRange ranks,
              SamplePart part) {
  if (is_in_memory(samples)) return;
  prefetch(samples, loader.samples(step, ranks, part));
}

}  // namespace muster::data
