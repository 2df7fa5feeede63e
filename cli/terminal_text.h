// Text on its way to a terminal, where nothing of it may be anything but text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::cli {

/// `text` with spaces, byte for byte, in place of what is no UTF-8, of control characters but
/// newline and tab, and of characters that are not seen or turn the direction of writing.
std::string printable(std::string_view text);

/// Columns of `text`: UTF-8 counts a column a character.
std::size_t columns_of(std::string_view text);
/// The front of `text`, as much of it as `columns` hold.
std::string_view front_of(std::string_view text, std::size_t columns);

/// Columns of the terminal that `fd` is; 80 where it does not say.
std::size_t terminal_columns(int fd);

}  // namespace muster::cli
