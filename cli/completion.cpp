#include "cli/completion.h"

#include <string_view>
#include <vector>

namespace muster::cli {
namespace {

struct Flag {
  std::string name;  ///< "--set", "-o"
  std::string help;  ///< one line
  bool has_value = false;
};

struct Command {
  std::string name, help;
  std::vector<Flag> flags;
  bool takes_shell = false;  ///< its argument is a shell's name
};

std::vector<Flag> flags_of(const CLI::App& app) {
  std::vector<Flag> flags;
  for (const CLI::Option* option : app.get_options()) {
    const bool has_value = option->get_items_expected_max() > 0;
    for (const std::string& name : option->get_lnames()) {
      flags.push_back({"--" + name, option->get_description(), has_value});
    }
    for (const std::string& name : option->get_snames()) {
      flags.push_back({"-" + name, option->get_description(), has_value});
    }
  }
  return flags;
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> commands;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back({one->get_name(), one->get_description(), flags_of(*one),
                        one->get_option_no_throw("SHELL") != nullptr});
  }
  return commands;
}

/// Of `text` between single quotes: each shell ends the quotes for one that is meant.
std::string quoted(std::string_view text, std::string_view quote) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote;
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string shells() {
  std::string text;
  for (const char* shell : kCompletionShells)
    text += (text.empty() ? "" : " ") + std::string(shell);
  return text;
}

std::string words(const std::vector<Flag>& flags) {
  std::string text;
  for (const Flag& flag : flags) text += (text.empty() ? "" : " ") + flag.name;
  return text;
}

std::string bash_script(const std::vector<Command>& commands, const std::vector<Flag>& flags) {
  std::string names;
  std::string cases;
  for (const Command& command : commands) {
    names += command.name + " ";
    cases += "    " + command.name + ") flags='" + words(command.flags) + "'" +
             (command.takes_shell ? " others='" + shells() + "'" : "") + " ;;\n";
  }
  return "# source <(muster completion bash)\n"
         "_muster() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} flags='" +
         words(flags) + "' others=\n" + "  if ((COMP_CWORD == 1)); then others='" + names +
         "'; fi\n" +
         "  if ((COMP_CWORD > 1)); then\n"
         "    flags=\n"
         "    case ${COMP_WORDS[1]} in\n" +
         cases +
         "    esac\n"
         "  fi\n"
         "  if [[ $word != -* ]]; then flags=$others; fi\n"
         "  COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _muster muster\n";
}

/// An item of zsh's _describe: a colon ends the name.
std::string zsh_item(const std::string& name, const std::string& help) {
  return quoted(name + ":" + help, "'\\''");
}

std::string zsh_script(const std::vector<Command>& commands, const std::vector<Flag>& flags) {
  const auto items = [](const std::vector<Flag>& of) {
    std::string text;
    for (const Flag& flag : of) text += " " + zsh_item(flag.name, flag.help);
    return text;
  };
  std::string names, cases;
  for (const Command& command : commands) {
    names += " " + zsh_item(command.name, command.help);
    cases += "    " + command.name + ") flags=(" + items(command.flags) + ")" +
             (command.takes_shell ? "; others=(" + shells() + ")" : "") + " ;;\n";
  }
  return "#compdef muster\n"
         "# source <(muster completion zsh)\n"
         "_muster() {\n"
         "  local -a flags others\n"
         "  if ((CURRENT == 2)); then\n"
         "    flags=(" +
         items(flags) + ")\n    others=(" + names +
         ")\n"
         "  else\n"
         "    case ${words[2]} in\n" +
         cases +
         "    esac\n"
         "  fi\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    _describe -o flag flags\n"
         "  elif ((${#others})); then\n"
         "    _describe word others\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "if [[ ${funcstack[1]} == _muster ]]; then _muster \"$@\"; else compdef _muster muster; "
         "fi\n";
}

std::string fish_line(const std::string& when, const Flag& flag) {
  const bool is_long = flag.name.starts_with("--");
  return "complete -c muster -n '" + when + "'" + (is_long ? " -l " : " -s ") +
         flag.name.substr(is_long ? 2 : 1) + (flag.has_value ? " -r" : "") + " -d " +
         quoted(flag.help, "\\'") + "\n";
}

std::string fish_script(const std::vector<Command>& commands, const std::vector<Flag>& flags) {
  std::string text = "# muster completion fish | source\n";
  for (const Flag& flag : flags) text += fish_line("__fish_use_subcommand", flag);
  for (const Command& command : commands) {
    text += "complete -c muster -f -n __fish_use_subcommand -a " + command.name + " -d " +
            quoted(command.help, "\\'") + "\n";
    const std::string when = "__fish_seen_subcommand_from " + command.name;
    for (const Flag& flag : command.flags) text += fish_line(when, flag);
    if (command.takes_shell) {
      text += "complete -c muster -f -n '" + when + "' -a '" + shells() + "'\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::vector<Command> commands = commands_of(app);
  const std::vector<Flag> flags = flags_of(app);
  if (shell == "zsh") return zsh_script(commands, flags);
  return shell == "fish" ? fish_script(commands, flags) : bash_script(commands, flags);
}

}  // namespace muster::cli
