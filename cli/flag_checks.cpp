#include "cli/flag_checks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

#include "cli/terminal_text.h"

namespace muster::cli {
namespace {

/// An empty one means to kubectl that none is given.
constexpr std::array<const char*, 4> kKubectlReads{"namespace", "context", "kubeconfig",
                                                   "selector"};
constexpr const char* kEmpty = "must not be empty";

template <typename Number>
bool is_between(const std::string& text, Number least, Number most) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  return failed == std::errc() && stop == end && std::to_string(value) == text && value >= least &&
         value <= most;
}

bool is_whole_number(const std::string& text, std::int64_t least, std::uint64_t most) {
  if (text.starts_with('-')) return is_between<std::int64_t>(text, least, -1);
  return is_between<std::uint64_t>(
      text, static_cast<std::uint64_t>(std::max<std::int64_t>(least, 0)), most);
}

std::string and_not(const std::string& value) { return ", and not \"" + printable(value) + "\""; }

std::string joined_words(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

bool is_read_by_kubectl(const CLI::Option& option) {
  return std::any_of(kKubectlReads.begin(), kKubectlReads.end(),
                     [&](const char* name) { return option.check_lname(name); });
}

/// CLI11's "NAME: 1 required TYPE missing", said as a sentence; another text as it is.
std::string about_missing_value(const std::string& text) {
  constexpr std::string_view kMiddle = ": 1 required ", kEnd = " missing";
  const std::size_t middle = text.find(kMiddle);
  if (middle == std::string::npos || !text.ends_with(kEnd)) return text;
  std::string type = text.substr(middle + kMiddle.size());
  type.resize(type.size() - kEnd.size());
  const std::size_t colon = type.find(':');
  if (colon != std::string::npos) type = type.substr(0, colon) + ", " + type.substr(colon + 1);
  return text.substr(0, middle) + ": needs a value (" + type + "), and none is given";
}

std::string usage_sentence(const CLI::App* app, const CLI::Error& error) {
  return app->get_name() + ": " + about_missing_value(error.what()) +
         "\nRun with --help for more information.\n";
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::uint64_t most) {
  const std::string lowest = std::to_string(least), highest = std::to_string(most);
  return {[=](std::string& value) {
            if (is_whole_number(value, least, most)) return std::string();
            return "must be a whole number from " + lowest + " to " + highest + and_not(value);
          },
          lowest + " to " + highest};
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return {[words](std::string& value) {
            if (std::find(words.begin(), words.end(), value) != words.end()) return std::string();
            return (words.size() == 1 ? "must be " : "must be one of ") +
                   joined_words(words, ", ") + and_not(value);
          },
          "{" + joined_words(words, ",") + "}"};
}

void check_all_values(CLI::App& app) {
  const CLI::Validator filled(
      [](std::string& value) { return std::string(value.empty() ? kEmpty : ""); }, "");
  const CLI::Validator yes_or_no(
      [](std::string& value) {
        const bool is_read = value == "true" || value == "false";
        return is_read ? std::string() : "must be true or false" + and_not(value);
      },
      "");
  app.failure_message(usage_sentence);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      if (option == command->get_help_ptr() || is_read_by_kubectl(*option)) continue;
      option->check(option->get_items_expected_max() == 0 ? yes_or_no : filled);
    }
  }
}

std::string about_cut_flag(const CLI::App& app, const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with("--") || argument.find('=') + 1 != argument.size()) continue;
    const std::string name = printable(argument.substr(0, argument.size() - 1));
    return app.get_name() + ": " + name + ": " + kEmpty + " behind =\n";
  }
  return "";
}

}  // namespace muster::cli
