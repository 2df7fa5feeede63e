#include "worker/engine/tensor_team.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace muster::engine {
namespace {

/// A tile is sent while the next one is computed, and gone on from in the tick after that.
constexpr std::size_t kTicksOfHop = 2;
/// Tiles for each hop that a row makes: while the first are on their way to the last process and
/// the last ones have left the first, not all compute.
constexpr std::size_t kTilesOfHop = 4 * kTicksOfHop;
/// Fewer rows than that are not worth a transfer.
constexpr std::size_t kTileRowsLeast = 8;

/// Rows of the tile that makes `hop` in `tick`.
struct Rows {
  std::size_t first = 0, count = 0;
};
std::optional<Rows> rows_at(std::size_t rows, std::size_t tile_rows, std::size_t tick,
                            std::size_t hop) {
  const std::size_t begin = hop * kTicksOfHop;
  if (tick < begin || (tick - begin) * tile_rows >= rows) return std::nullopt;
  const std::size_t first = (tick - begin) * tile_rows;
  return Rows{first, std::min(tile_rows, rows - first)};
}

}  // namespace

void TensorTeam::make(const Product& product, const std::function<void(const Part&)>& compute) {
  const std::size_t hops = product.rounds * size();
  const std::size_t wanted = kTilesOfHop * hops;
  const std::size_t tile_rows = std::max(kTileRowsLeast, (product.rows + wanted - 1) / wanted);
  const std::size_t tiles = (product.rows + tile_rows - 1) / tile_rows;
  const std::size_t ticks = tiles == 0 ? 0 : tiles + (hops - 1) * kTicksOfHop;
  std::unique_ptr<comm::Work> under_way;
  ++counts_.sums;
  for (std::size_t tick = 0; status_ && tick < ticks; ++tick) {
    const MonoTime began = clock_.mono_now();
    bool is_busy = false;
    for (std::size_t hop = rank(); hop < hops; hop += size()) {
      const auto rows = rows_at(product.rows, tile_rows, tick, hop);
      if (!rows) continue;
      compute({rows->first, rows->count, hop / size(), hop > 0, hop + 1 == hops});
      is_busy = true;
    }
    if (is_busy) in_turns_ += clock_.mono_now() - began;
    ++counts_.turns;
    counts_.busy_turns += is_busy ? 1 : 0;
    status_ = hand_on(product, tile_rows, tick, under_way);
  }
  if (status_ && under_way) status_ = wait_for(*under_way);
}

Status TensorTeam::wait_for(comm::Work& work) {
  const MonoTime began = clock_.mono_now();
  const Status done = work.wait(began + wait_max_);
  waited_ += clock_.mono_now() - began;
  return done;
}

void TensorTeam::gather(std::span<float> values, std::span<const std::size_t> offsets) {
  if (!status_) return;
  std::vector<std::size_t> bytes;
  for (const std::size_t offset : offsets) bytes.push_back(offset * sizeof(float));
  ++counts_.sums;
  ++counts_.turns;
  ++counts_.busy_turns;
  counts_.turn_bytes +=
      static_cast<std::int64_t>((bytes[rank() + 1] - bytes[rank()]) * (size() - 1));
  const MonoTime began = clock_.mono_now();
  status_ = comm::all_gather(processes_, stamp_, std::as_writable_bytes(values), bytes,
                             began + wait_max_);
  waited_ += clock_.mono_now() - began;
}

/// Where in so many values each process's rows begin.
std::vector<std::size_t> TensorTeam::offsets_of_rows(std::size_t values,
                                                     std::size_t columns) const {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i <= size(); ++i) {
    offsets.push_back(values / columns * i / size() * columns);
  }
  return offsets;
}

std::span<float> TensorTeam::own_rows(std::span<float> values, std::size_t columns) const {
  const auto offsets = offsets_of_rows(values.size(), columns);
  return values.subspan(offsets[rank()], offsets[rank() + 1] - offsets[rank()]);
}

void TensorTeam::gather_rows(std::span<float> values, std::size_t columns) {
  gather(values, offsets_of_rows(values.size(), columns));
}

/// What was computed in the tick goes to who goes on from it, or to all; of the tick before,
/// `under_way`, all has arrived then.
Status TensorTeam::hand_on(const Product& product, std::size_t tile_rows, std::size_t tick,
                           std::unique_ptr<comm::Work>& under_way) {
  const int all = processes_.size(), own = processes_.rank();
  const std::size_t hops = product.rounds * size();
  sends_.clear();
  receives_.clear();
  for (std::size_t hop = 0; hop < hops; ++hop) {
    const auto rows = rows_at(product.rows, tile_rows, tick, hop);
    if (!rows) continue;
    float* const values = product.values + rows->first * product.columns;
    const std::size_t bytes = rows->count * product.columns * sizeof(float);
    const int from = static_cast<int>(hop % size());
    for (int to = 0; to < all; ++to) {
      const bool is_wanted = hop + 1 == hops || to == (from + 1) % all;
      if (!is_wanted || to == from) continue;
      if (own == from) {
        sends_.push_back({to, values, bytes});
        counts_.turn_bytes += static_cast<std::int64_t>(bytes);
      }
      if (own == to) receives_.push_back({from, values, bytes});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(auto work,
                          processes_.start(stamp_, comm::Memory::kHost, sends_, receives_));
  // Between processes of one machine moving bytes is work, for which they need no wire.
  if (!processes_.shares_memory()) work->proceed_alone();
  std::swap(work, under_way);
  return work ? wait_for(*work) : Status();
}

}  // namespace muster::engine
