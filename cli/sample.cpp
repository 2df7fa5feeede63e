#include "cli/sample.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

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

}  // namespace

std::string shown_sample(std::string_view written) {
  std::string_view rest = written.substr(0, kSampleBytesShown);
  std::string shown;
  while (!rest.empty()) {
    const std::size_t valid = utf8_length(rest);
    const std::size_t length = std::max<std::size_t>(valid, 1);
    const std::string_view character = rest.substr(0, length);
    if (valid == 0 || is_control(character)) {
      shown.append(length, ' ');
    } else {
      shown += character;
    }
    rest.remove_prefix(length);
  }
  return shown;
}

std::string sample_lines(const std::string& path) {
  std::error_code error;
  // Opening anything else, such as a named pipe, might wait for ever.
  if (!std::filesystem::is_regular_file(path, error)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string written(kSampleBytesShown + 1, '\0');
  file.read(written.data(), static_cast<std::streamsize>(written.size()));
  written.resize(static_cast<std::size_t>(file.gcount()));
  if (written.empty()) return "";
  const bool is_cut = written.size() > kSampleBytesShown;
  std::string lines = "sample " + path;
  if (is_cut) lines += " (its first " + std::to_string(kSampleBytesShown) + " bytes)";
  lines += "\n" + shown_sample(written);
  if (!lines.ends_with('\n')) lines += '\n';
  return lines;
}

}  // namespace muster::cli
