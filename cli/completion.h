// `muster completion bash|zsh|fish`: a script by which a shell completes commands and flags.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

namespace muster::cli {

inline constexpr std::array kCompletionShells{"bash", "zsh", "fish"};

/// The script for one of kCompletionShells, made of what `app` parses: every command with its line
/// and every flag. What is no flag is completed with files. Pure.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace muster::cli
