// What nobody reads of a JSON text, cut out before it is parsed: of what an API server tells of a
// pod that is four fifths, and to find where it ends costs a small part of reading it. Nothing here
// says whether the text is JSON.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/json.h"

namespace muster {

/// Whether a member of that name is left out of objects that stand under the name `parent`.
bool is_left_out(std::span<const LeftOut> left_out, std::string_view parent, std::string_view name);

/// The text without members that are left out. Some may stay: those whose key has an escape, and
/// all from the first place on that is odd. What is cut is looked at only for where it ends, by
/// strings and the number of brackets; what is wrong around it is as wrong without it.
std::string cut_left_out(std::string_view text, std::span<const LeftOut> left_out);

}  // namespace muster
