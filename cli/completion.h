// `muster completion bash|zsh|fish`: a script by which a shell completes what stands behind
// `muster`.
#pragma once

#include <array>
#include <string>

namespace muster::cli {

inline constexpr std::array kCompletionShells{"bash", "zsh", "fish"};

/// The script for one of kCompletionShells. For each word it asks the program that the line begins
/// with (cli/complete_words); a program that does not answer leaves it files. Pure.
std::string completion_script(const std::string& shell);

}  // namespace muster::cli
