#include "cli/sample.h"

#include <filesystem>
#include <fstream>

#include "cli/terminal_text.h"

namespace muster::cli {
std::string shown_sample(std::string_view written) {
  return printable(written.substr(0, kSampleBytesShown));
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
