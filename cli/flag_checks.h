// What the values of flags must be, and the sentence for one that is not so: CLI11's own name
// neither what would be right nor, where nothing stands, that it is missing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

/// In decimal, as it is printed: "010" and "0x10" would be read as other numbers than they look.
CLI::Validator whole_number(std::int64_t least, std::uint64_t most);
/// Described as "{a,b}", by which completion knows them.
CLI::Validator one_of(const std::vector<std::string>& words);
/// Has what no other check of `app`'s commands looks at refused: empty values, of which most would
/// be taken for none given, and what is no yes or no behind a flag without a value.
void check_all_values(CLI::App& app);
/// A sentence about a "--name=" among `arguments`, which would take the next one for its value;
/// empty where there is none.
std::string about_cut_flag(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace muster::cli
