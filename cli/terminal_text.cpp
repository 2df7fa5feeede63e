#include "cli/terminal_text.h"

#include <sys/ioctl.h>

#include <algorithm>

#include "common/utf8.h"

namespace muster::cli {
namespace {

/// Whether a valid UTF-8 character may move the cursor, hide text or turn its direction.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1)
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
  const auto second = static_cast<unsigned char>(character[1]);
  if (character.size() == 2) return first == 0xc2 && second < 0xa0;  // U+0080 to U+009F
  if (character.size() != 3 || first != 0xe2) return false;
  const auto third = static_cast<unsigned char>(character[2]);
  // U+200B to U+200F, U+2028 to U+202E, U+2060 to U+206F.
  return (second == 0x80 &&
          ((third >= 0x8b && third <= 0x8f) || (third >= 0xa8 && third <= 0xae))) ||
         (second == 0x81 && third >= 0xa0 && third <= 0xaf);
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
