#include "cli/kube_table.h"

#include <algorithm>

#include "cli/terminal_text.h"

namespace muster::cli {
namespace {

/// Never narrower than this, or wrapping makes it worse.
constexpr std::size_t kLeastWidth = 40;

const char* code_of(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      return "";
    case Colour::kGood:
      return "\033[32m";
    case Colour::kBad:
      return "\033[31m";
    case Colour::kBusy:
      return "\033[33m";
    case Colour::kDim:
      return "\033[2m";
    case Colour::kHead:
      return "\033[1m";
  }
  return "";
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return printable(text);
}

}  // namespace

std::string coloured(const std::string& text, Colour colour, const Display& display) {
  if (!display.has_colour || colour == Colour::kNone || text.empty()) return text;
  return code_of(colour) + text + "\033[0m";
}

Colour colour_of_phase(std::string_view phase) {
  if (phase == "Complete" || phase == "Running") return Colour::kGood;
  if (phase == "Failed") return Colour::kBad;
  return Colour::kBusy;
}

Table::Table(const std::vector<std::string>& columns) {
  for (const std::string& column : columns) {
    const bool is_right = column.starts_with('>');
    names_.push_back(is_right ? column.substr(1) : column);
    is_right_.push_back(is_right);
    widths_.push_back(columns_of(names_.back()));
  }
}

void Table::add(std::vector<Cell> row) {
  row.resize(names_.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i].text = row[i].text.empty() ? "-" : one_line(row[i].text);
    widths_[i] = std::max(widths_[i], columns_of(row[i].text));
  }
  rows_.push_back(std::move(row));
}

std::string Table::line(const std::vector<Cell>& row, const Display& display) const {
  std::string text;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string padding(widths_[i] - std::min(widths_[i], columns_of(row[i].text)), ' ');
    const bool is_last = i + 1 == row.size();
    if (is_right_[i]) text += padding;
    text += coloured(row[i].text, row[i].colour, display);
    if (!is_right_[i] && !is_last) text += padding;
    if (!is_last) text += "  ";
  }
  return text + "\n";
}

std::string Table::take(const Display& display) {
  std::string text;
  if (!has_header_) {
    std::vector<Cell> header;
    for (const std::string& name : names_) header.push_back({name, Colour::kHead});
    text += line(header, display);
    has_header_ = true;
  }
  for (const auto& row : rows_) text += line(row, display);
  rows_.clear();
  return text;
}

std::string wrapped(std::string_view text, std::size_t width, const std::string& indent) {
  const std::size_t room =
      width == 0 ? 0 : std::max(kLeastWidth, width - std::min(width, columns_of(indent)));
  std::string out;
  std::size_t column = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t length = columns_of(word);
    if (column > 0 && room != 0 && column + 1 + length > room) {
      out += "\n" + indent;
      column = 0;
    }
    if (column > 0 && length > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += length;
    if (end < text.size() && text[end] == '\n') {
      out += "\n" + indent;
      column = 0;
    }
    begin = end + 1;
  }
  return out;
}

}  // namespace muster::cli
