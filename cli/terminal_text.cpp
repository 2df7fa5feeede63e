#include "cli/terminal_text.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "common/utf8.h"

namespace muster::cli {
namespace {

/// Whether a valid UTF-8 character may move the cursor, hide text or turn its direction.
bool is_control(std::string_view character) {
  const char32_t c = utf8_code_point(character);
  const bool is_movement = (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0);
  const bool is_turn = c == 0x061c || (c >= 0x202a && c <= 0x202e);
  const bool is_unseen = (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
                         (c >= 0xe0000 && c <= 0xe007f);
  return is_movement || is_turn || is_unseen;
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = utf8_length(text);
    const std::size_t length = std::max<std::size_t>(valid, 1);
    const std::string_view character = text.substr(0, length);
    if (valid == 0 || is_control(character)) {
      out.append(length, ' ');
    } else {
      out += character;
    }
    text.remove_prefix(length);
  }
  return out;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string_view front_of(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    if (begins_character(text[end]) && columns-- == 0) break;
  }
  return text.substr(0, end);
}

std::size_t terminal_columns(int fd) {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

}  // namespace muster::cli
