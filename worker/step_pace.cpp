#include "worker/step_pace.h"

#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "common/contract.h"

namespace muster::worker {
namespace {

constexpr int kMostMs = 60'000;

std::optional<milliseconds> read_number(std::string_view text) {
  int number = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0 || number > kMostMs) {
    return std::nullopt;
  }
  return milliseconds(number);
}

}  // namespace

Result<StepPace> parse_step_pace(std::string_view text) {
  if (text.empty()) return StepPace();
  if (text.front() == '/') {
    return StepPace([path = std::string(text)] {
      std::string word;
      std::ifstream(path) >> word;
      return read_number(word).value_or(milliseconds{0});
    });
  }
  const auto fixed = read_number(text);
  if (!fixed) {
    return Error(ErrorCode::kInvalid,
                 std::string(contract::kEnvPaceMs) + ": is \"" + std::string(text.substr(0, 64)) +
                     "\"; must be milliseconds from 0 to 60000, or the absolute path of a file "
                     "that holds them")
        .with_exit_code(contract::exit_code::kUsage);
  }
  if (*fixed == milliseconds{0}) return StepPace();
  return StepPace([pace = *fixed] { return pace; });
}

}  // namespace muster::worker
