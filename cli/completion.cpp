#include "cli/completion.h"

namespace muster::cli {
namespace {

// Nothing of the line is ever evaluated: each word goes to the program as it was typed.

constexpr const char* kBash = R"(# source <(muster completion bash)
_muster() {
  local found program=${COMP_WORDS[0]/#\~/$HOME}
  mapfile -t found < <(
    "$program" complete-words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null
  )
  COMPREPLY=()
  ((${#found[@]})) || return
  if [[ ${found[-1]} == :4 ]]; then compopt +o default 2>/dev/null; fi
  COMPREPLY=("${found[@]%%$'\t'*}")
  unset 'COMPREPLY[-1]'
}
complete -o default -F _muster muster
)";

constexpr const char* kZsh = R"(#compdef muster
# source <(muster completion zsh)
_muster() {
  local -a line found
  line=("${(Q)words[1]/#\~/$HOME}" complete-words "${(@Q)words[2,CURRENT-1]}" "$PREFIX")
  found=("${(@f)$("${line[@]}" 2>/dev/null </dev/null)}")
  local how=$found[-1]
  found[-1]=()
  found=("${(@)found/$'\t'/:}")
  if ((${#found})); then
    if [[ $PREFIX == -* ]]; then _describe -o flag found; else _describe word found; fi
  elif [[ $how != :4 ]]; then
    _files
  fi
}
if [[ ${funcstack[1]} == _muster ]]; then _muster "$@"; else compdef _muster muster; fi
)";

constexpr const char* kFish = R"(# muster completion fish | source
function __muster_find
  set -l line (commandline -opc)
  set -l word (commandline -ct)
  set -g __muster_found ($line[1] complete-words $line[2..-1] "$word" 2>/dev/null </dev/null)
  set -q __muster_found[1]; or return 1
  set -l how $__muster_found[-1]
  set -e __muster_found[-1]
  test "$how" = :4; or set -q __muster_found[1]
end
complete -c muster -e
complete -c muster -n __muster_find -f -k -a '$__muster_found'
)";

}  // namespace

std::string completion_script(const std::string& shell) {
  if (shell == "zsh") return kZsh;
  return shell == "fish" ? kFish : kBash;
}

}  // namespace muster::cli
