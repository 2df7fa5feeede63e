#include "worker/engine/tensor_team.h"

#include <algorithm>
#include <optional>

namespace muster::engine {
namespace {

/// Tiles for each hop that a row makes: while the first are on their way to the last process and
/// the last ones have left the first, not all compute.
constexpr std::size_t kTilesOfHop = 4;
/// Fewer rows than that are not worth a transfer.
constexpr std::size_t kTileRowsLeast = 8;

/// Rows of the tile that makes `hop` in `tick`.
struct Rows {
  std::size_t first = 0, count = 0;
};
std::optional<Rows> rows_at(std::size_t rows, std::size_t tile_rows, std::size_t tick,
                            std::size_t hop) {
  if (tick < hop || (tick - hop) * tile_rows >= rows) return std::nullopt;
  const std::size_t first = (tick - hop) * tile_rows;
  return Rows{first, std::min(tile_rows, rows - first)};
}

}  // namespace

void TensorTeam::make(const Product& product, const std::function<void(const Part&)>& compute) {
  const auto size = static_cast<std::size_t>(processes_.size());
  const auto rank = static_cast<std::size_t>(processes_.rank());
  const std::size_t hops = product.rounds * size;
  const std::size_t wanted = kTilesOfHop * hops;
  const std::size_t tile_rows = std::max(kTileRowsLeast, (product.rows + wanted - 1) / wanted);
  const std::size_t tiles = (product.rows + tile_rows - 1) / tile_rows;
  for (std::size_t tick = 0; status_ && tick + 1 < tiles + hops; ++tick) {
    for (std::size_t hop = rank; hop < hops; hop += size) {
      const auto rows = rows_at(product.rows, tile_rows, tick, hop);
      if (rows) compute({rows->first, rows->count, hop / size, hop > 0, hop + 1 == hops});
    }
    status_ = hand_on(product, tile_rows, tick);
  }
}

/// What was computed in the tick goes to who goes on from it, or to all.
Status TensorTeam::hand_on(const Product& product, std::size_t tile_rows, std::size_t tick) {
  const int size = processes_.size(), own = processes_.rank();
  const std::size_t hops = product.rounds * static_cast<std::size_t>(size);
  sends_.clear();
  receives_.clear();
  for (std::size_t hop = 0; hop < hops; ++hop) {
    const auto rows = rows_at(product.rows, tile_rows, tick, hop);
    if (!rows) continue;
    float* const values = product.values + rows->first * product.columns;
    const std::size_t bytes = rows->count * product.columns * sizeof(float);
    const int from = static_cast<int>(hop % static_cast<std::size_t>(size));
    for (int to = 0; to < size; ++to) {
      const bool is_wanted = hop + 1 == hops || to == (from + 1) % size;
      if (!is_wanted || to == from) continue;
      if (own == from) sends_.push_back({to, values, bytes});
      if (own == to) receives_.push_back({from, values, bytes});
    }
  }
  MUSTER_ASSIGN_OR_RETURN(const auto work,
                          processes_.start(stamp_, comm::Memory::kHost, sends_, receives_));
  return work->wait(clock_.mono_now() + wait_max_);
}

}  // namespace muster::engine
