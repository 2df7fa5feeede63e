#include "cli/complete_words.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

namespace muster::cli {
namespace {

struct Flag {
  std::string name;  ///< "--set", "-o"
  const CLI::Option* option;
};

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back({"--" + name, option});
    for (const std::string& name : option->get_snames()) flags.push_back({"-" + name, option});
  }
  return flags;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// The words that `option` takes, where it takes no others: its check is described as "{a,b}".
std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  const std::size_t begin = text.find('{');
  const std::size_t end = text.find('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return {};
  return CLI::detail::split(text.substr(begin + 1, end - begin - 1), ',');
}

ClusterNames::Kind names_of(const CLI::Option& option) {
  if (option.get_positional()) {
    return option.get_name(true) == "JOB" ? ClusterNames::Kind::kJobs : ClusterNames::Kind::kNone;
  }
  if (option.check_lname("namespace")) return ClusterNames::Kind::kNamespaces;
  return option.check_lname("context") ? ClusterNames::Kind::kContexts : ClusterNames::Kind::kNone;
}

bool takes_file(const CLI::Option& option) {
  if (option.get_positional()) return true;
  const std::string type = option.get_type_name();
  return type == "FILE" || type == "DIR";
}

/// What of a word is a flag, and what its value.
struct FlagWord {
  const CLI::Option* option = nullptr;  ///< null: none that there is
  std::string_view before;              ///< "--output="; where there is no value all of it
  std::string_view value;
  bool has_value = false;
};

/// Of one command's line, word by word.
class LineReader {
 public:
  explicit LineReader(const CLI::App& command) : flags_(flags_of(command)) {
    for (const CLI::Option* option : command.get_options()) {
      if (option->get_positional()) arguments_.push_back(option);
    }
  }

  /// A word before the one that is completed.
  void take(const std::string& word);
  /// The one that is completed.
  void complete(const std::string& word, Completion& completion) const;
  KubectlFlags cluster() const { return cluster_; }

 private:
  bool is_flag(std::string_view word) const {
    return !only_arguments_ && word.size() > 1 && word.front() == '-';
  }
  FlagWord flag_in(std::string_view word) const;
  void keep(const CLI::Option& option, std::string_view value);

  std::vector<Flag> flags_;
  std::vector<const CLI::Option*> arguments_;
  const CLI::Option* open_ = nullptr;  ///< the flag whose value comes next
  int taken_ = 0;                      ///< words that arguments_.front() has
  bool only_arguments_ = false;        ///< behind "--"
  KubectlFlags cluster_;
};

FlagWord LineReader::flag_in(std::string_view word) const {
  const std::size_t name_size = word.starts_with("--") ? word.find('=') : 2;
  const std::string_view name = word.substr(0, name_size);
  for (const Flag& flag : flags_) {
    if (flag.name != name) continue;
    if (word.size() == name.size()) return {flag.option, word, {}, false};
    const std::size_t begin = name.starts_with("--") ? name.size() + 1 : name.size();
    return {flag.option, word.substr(0, begin), word.substr(begin), true};
  }
  return {};
}

void LineReader::keep(const CLI::Option& option, std::string_view value) {
  if (option.check_lname("namespace")) cluster_.namespace_name = value;
  if (option.check_lname("context")) cluster_.context = value;
  if (option.check_lname("kubeconfig")) cluster_.kubeconfig = value;
}

void LineReader::take(const std::string& word) {
  if (open_ != nullptr) {
    keep(*std::exchange(open_, nullptr), word);
  } else if (!only_arguments_ && word == "--") {
    only_arguments_ = true;
  } else if (is_flag(word)) {
    const FlagWord flag = flag_in(word);
    if (flag.option == nullptr || !takes_value(*flag.option)) return;
    if (flag.has_value) {
      keep(*flag.option, flag.value);
    } else {
      open_ = flag.option;
    }
  } else if (!arguments_.empty() && ++taken_ >= arguments_.front()->get_items_expected_max()) {
    arguments_.erase(arguments_.begin());
    taken_ = 0;
  }
}

/// Of what `option` takes, that which begins with `value`.
void complete_value(const CLI::Option& option, std::string_view before, std::string_view value,
                    Completion& completion) {
  for (const std::string& word : words_of(option)) {
    if (word.starts_with(value)) completion.candidates.push_back({std::string(before) + word, ""});
  }
  completion.names = {names_of(option), std::string(value)};
  completion.before_name = before;
  completion.takes_files = takes_file(option) && words_of(option).empty() &&
                           completion.names.kind == ClusterNames::Kind::kNone;
}

void LineReader::complete(const std::string& word, Completion& completion) const {
  if (open_ != nullptr) {
    complete_value(*open_, "", word, completion);
    return;
  }
  if (!only_arguments_ && word.starts_with('-')) {
    const FlagWord flag = flag_in(word);
    if (flag.has_value && takes_value(*flag.option)) {
      complete_value(*flag.option, flag.before, flag.value, completion);
      return;
    }
    for (const Flag& known : flags_) {
      if (!known.name.starts_with(word)) continue;
      completion.candidates.push_back({known.name, known.option->get_description()});
    }
    return;
  }
  if (!arguments_.empty()) complete_value(*arguments_.front(), "", word, completion);
}

/// Puts words together again that a bash has cut at '=' and ':'. Returns how much of the last one
/// stood in words before it.
std::size_t join_cut_words(std::vector<std::string>& words) {
  std::vector<std::string> joined;
  std::size_t cut = 0;
  bool goes_on = false;
  for (const std::string& word : words) {
    const bool is_separator =
        !word.empty() && word.find_first_not_of("=:") == std::string::npos && !joined.empty();
    if (!goes_on && !is_separator) {
      joined.emplace_back();
      cut = 0;
    } else {
      cut = joined.back().size() + (is_separator ? word.size() : 0);
    }
    joined.back() += word;
    goes_on = is_separator;
  }
  words = std::move(joined);
  return cut;
}

}  // namespace

Completion complete_words(const CLI::App& app, std::vector<std::string> words) {
  Completion completion;
  completion.cut = join_cut_words(words);
  const std::string last = words.empty() ? "" : words.back();
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (words.size() < 2) {
    LineReader(app).complete(last, completion);
    for (const CLI::App* command : commands) {
      if (!command->get_name().starts_with(last)) continue;
      completion.candidates.push_back({command->get_name(), command->get_description()});
    }
    return completion;
  }
  const auto command = std::ranges::find(commands, words.front(),
                                         [](const CLI::App* one) { return one->get_name(); });
  if (command == commands.end()) return completion;
  LineReader line(**command);
  for (std::size_t i = 1; i + 1 < words.size(); ++i) line.take(words[i]);
  line.complete(last, completion);
  completion.flags = line.cluster();
  return completion;
}

int complete_command(const CLI::App& app, const std::vector<std::string>& words,
                     const std::map<std::string, std::string>& environment, const Clock& clock) {
  Completion completion = complete_words(app, words);
  if (completion.names.kind != ClusterNames::Kind::kNone) {
    // kubectl's words would stand in the middle of the line that is being typed.
    (void)std::freopen("/dev/null", "w", stderr);
    Kubectl::Setting setting;
    setting.environment = environment;
    setting.flags = completion.flags;
    setting.clock = &clock;
    auto kubectl = Kubectl::find(setting);
    if (kubectl) {
      for (const std::string& name : cluster_names(*kubectl, completion.names)) {
        completion.candidates.push_back({completion.before_name + name, ""});
      }
    }
  }
  for (const auto& [word, help] : completion.candidates) {
    std::printf("%s%s%s\n", word.substr(std::min(completion.cut, word.size())).c_str(),
                help.empty() ? "" : "\t", help.c_str());
  }
  std::puts(completion.takes_files ? ":0" : ":4");
  return 0;
}

}  // namespace muster::cli
