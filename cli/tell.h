// Sentences for the user on standard error.
#pragma once

#include <string>

#include "common/result.h"

namespace muster::cli {

/// A line without control characters.
void tell(const std::string& text);
/// Why a command ends, as "muster: SENTENCE"; the exit code that it ends with.
int tell_error(const Error& error);

}  // namespace muster::cli
