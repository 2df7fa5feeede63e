// Text for a terminal: tables, wrapped sentences, colours. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

/// What a stream can show.
struct Display {
  std::size_t width = 0;  ///< columns; 0: no limit
  bool has_colour = false;
};

enum class Colour { kNone, kGood, kBad, kBusy, kDim, kHead };

/// `text` between the codes of `colour`, where the display has colours.
std::string coloured(const std::string& text, Colour colour, const Display& display);

/// Of a job's phase.
Colour colour_of_phase(std::string_view phase);

struct Cell {
  std::string text;
  Colour colour = Colour::kNone;
};

/// Columns as wide as their widest cell, two spaces apart, nothing after the last one. Widths only
/// grow, so that rows may be printed as they come. Control characters become spaces.
class Table {
 public:
  /// A column's name; one that begins with '>' is aligned to the right.
  explicit Table(const std::vector<std::string>& columns);
  void add(std::vector<Cell> row);
  /// All rows since the last call, at first with the header in front.
  std::string take(const Display& display);

 private:
  std::string line(const std::vector<Cell>& row, const Display& display) const;
  std::vector<std::string> names_;
  std::vector<bool> is_right_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<Cell>> rows_;
  bool has_header_ = false;
};

/// `text` in lines of at most `width` columns (0: no limit), cut at spaces; its own lines are kept
/// apart and lines after the first start with `indent`. No newline at the end.
std::string wrapped(std::string_view text, std::size_t width, const std::string& indent);

}  // namespace muster::cli
