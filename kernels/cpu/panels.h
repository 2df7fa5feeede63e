// How the columns of a matrix product are cut into panels as wide as a register tile.
#pragma once

#include <cstddef>

#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

struct Panel {
  std::size_t first;    // column
  std::size_t columns;  // that exist
  std::size_t vectors;  // that hold them
};

/// Widest tiles first. A rest of one vector would run at the pace of a tile that is too narrow to
/// hide the latency of its own sums, so the last two panels share it where tiles have three.
class Panels {
 public:
  /// Table: TileTable or one like it.
  template <typename Table>
  Panels(std::size_t columns, const Table& tiles)
      : columns_(columns), lanes_(tiles.lanes), full_(tiles.lanes * tiles.vectors_max) {
    count_ = (columns + full_ - 1) / full_;
    const std::size_t rest = columns - (count_ - 1) * full_;
    shared_ = tiles.vectors_max == 3 && count_ >= 2 && rest <= lanes_;
  }

  std::size_t count() const { return count_; }

  Panel operator[](std::size_t index) const {
    std::size_t first = index * full_;
    std::size_t end = first + full_;
    if (shared_ && index + 2 == count_) end -= lanes_;
    if (shared_ && index + 1 == count_) first -= lanes_;
    if (end > columns_) end = columns_;
    return {first, end - first, (end - first + lanes_ - 1) / lanes_};
  }

  /// Floats of the packed panels [0, index) for `steps` steps: none but the last has padding.
  std::size_t packed_size(std::size_t index, std::size_t steps) const {
    const std::size_t columns =
        index < count_ ? (*this)[index].first : (columns_ + lanes_ - 1) / lanes_ * lanes_;
    return columns * steps;
  }

 private:
  std::size_t columns_;
  std::size_t lanes_;
  std::size_t full_;
  std::size_t count_;
  bool shared_;
};

/// Floats of packed panels that are kept at once: with the rows they meet, a share of the last
/// cache.
inline constexpr std::size_t kPackedFloats = std::size_t{1} << 20;

inline std::size_t round_up(std::size_t value, std::size_t to) {
  return (value + to - 1) / to * to;
}
inline std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

/// A part of a matrix that is wanted soon: rows of `floats` floats that lie `stride` apart. The
/// tiles computed before that fetch it, each a share: one after the other, its lines come from the
/// last cache or from memory in the time that sums take anyway.
struct Ahead {
  const float* from = nullptr;
  std::size_t rows = 0, floats = 0, stride = 0;

  void share(std::size_t index, std::size_t tiles, Tile& tile) const {
    const std::size_t each = (rows + tiles - 1) / tiles;
    const std::size_t first = least(rows, index * each);
    tile.ahead = from + first * stride;
    tile.ahead_rows = least(rows, first + each) - first;
    tile.ahead_floats = floats;
    tile.ahead_stride = stride;
  }
};

/// Rows of C that one task computes against all panels: whole tiles, and of A about `floats`.
inline std::size_t rows_of_task(std::size_t floats, std::size_t steps, std::size_t tile_rows) {
  const std::size_t rows = floats / (steps == 0 ? 1 : steps);
  const std::size_t bounded = rows < 64 ? 64 : least(rows, 512);
  return bounded / tile_rows * tile_rows;
}

/// A part of one row or column of steps.
struct Range {
  std::size_t begin, end;
};

/// What of a product one task computes.
struct Share {
  Range rows, panels;
};

/// The tasks into which the threads cut a product: rows and, when these are few, panels.
class Shares {
 public:
  /// rows_max: of one task, whole tiles.
  Shares(std::size_t threads, std::size_t rows, std::size_t tile_rows, std::size_t rows_max,
         Range panels)
      : rows_(rows), panels_(panels), rows_task_(rows_max) {
    panels_task_ = panels.end - panels.begin;
    if (threads > 1) {
      const std::size_t share = round_up((rows + threads * 2 - 1) / (threads * 2), tile_rows);
      rows_task_ = least(rows_task_, share);
      const std::size_t row_tasks = (rows + rows_task_ - 1) / rows_task_;
      if (row_tasks < 2 * threads) {
        const std::size_t cuts = (2 * threads + row_tasks - 1) / row_tasks;
        panels_task_ = (panels_task_ + cuts - 1) / cuts;
      }
    }
    panel_tasks_ = (panels.end - panels.begin + panels_task_ - 1) / panels_task_;
  }
  std::size_t count() const { return (rows_ + rows_task_ - 1) / rows_task_ * panel_tasks_; }
  Share operator[](std::size_t index) const {
    const std::size_t panel = panels_.begin + index % panel_tasks_ * panels_task_;
    const std::size_t row = index / panel_tasks_ * rows_task_;
    return {{row, least(rows_, row + rows_task_)},
            {panel, least(panels_.end, panel + panels_task_)}};
  }

 private:
  std::size_t rows_;
  Range panels_;
  std::size_t rows_task_;
  std::size_t panels_task_;
  std::size_t panel_tasks_;
};

/// The cut of a chain into blocks of nearly equal length: a short last one would cost as much
/// loading and storing as a long one. All but the last are multiples of 4.
class StepBlocks {
 public:
  StepBlocks(std::size_t steps, std::size_t block_max) : steps_(steps) {
    count_ = steps == 0 ? 1 : (steps + block_max - 1) / block_max;
    length_ = round_up((steps + count_ - 1) / count_, 4);
  }
  std::size_t count() const { return count_; }
  Range range(std::size_t block) const {
    return {least(steps_, block * length_), least(steps_, (block + 1) * length_)};
  }

 private:
  std::size_t steps_;
  std::size_t count_;
  std::size_t length_;
};

}  // namespace muster::kernels::cpu
