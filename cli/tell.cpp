#include "cli/tell.h"

#include <cstdio>

#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {

void tell(const std::string& text) { std::fputs((printable(text) + "\n").c_str(), stderr); }

int tell_error(const Error& error) {
  tell("muster: " + error.message());
  return error.exit_code() > 0 ? error.exit_code() : contract::exit_code::kInternal;
}

}  // namespace muster::cli
