#include "common/split.h"

#include <algorithm>
#include <charconv>

namespace muster {
namespace {

constexpr std::string_view kFits = "; tensor x pipeline that fit: ";

/// Takes a number from 1 to kMaxSplit off the front; 0 where there is none.
int take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1 || number > kMaxSplit) return 0;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

}  // namespace

std::string needs_split_sentence(const std::string& why, std::span<const Split> fits) {
  std::string list;
  for (const Split& split : fits.first(std::min(fits.size(), kMaxSplitsTold))) {
    if (!list.empty()) list += ", ";
    list += std::to_string(split.tensor) + "x" + std::to_string(split.pipeline);
  }
  return why + std::string(kFits) + list;
}

std::vector<Split> read_needs_split(std::string_view sentence) {
  std::vector<Split> splits;
  const std::size_t at = sentence.rfind(kFits);
  if (at == std::string_view::npos) return splits;
  sentence.remove_prefix(at + kFits.size());
  while (splits.size() < kMaxSplitsTold) {
    Split split;
    split.tensor = take_number(sentence);
    if (split.tensor == 0 || !take(sentence, "x")) break;
    split.pipeline = take_number(sentence);
    if (split.pipeline == 0) break;
    splits.push_back(split);
    if (!take(sentence, ", ")) break;
  }
  return splits;
}

}  // namespace muster
