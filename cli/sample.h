// What a finished model wrote, for the terminal of who trained it. It is a model's output and may
// be anything, so nothing of it is trusted.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::cli {

/// Most bytes of a sample that are shown.
inline constexpr std::size_t kSampleBytesShown = 1024;

/// The front of `written`, at most kSampleBytesShown bytes of it, as text that is safe to print.
std::string shown_sample(std::string_view written);

/// A line that names the file at `path`, and its text; "" when there is no such file.
/// Blocks: on the disk.
std::string sample_lines(const std::string& path);

}  // namespace muster::cli
