// Broken invariants end the process, in release builds too: a wrong decision is worse than a
// restart. Never for what a user, a peer, a file or the network can cause; those are Results.
#pragma once

#include <source_location>
#include <string>

namespace muster {

/// Prints `condition`, `message` and the place to stderr, then aborts.
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               std::source_location location = std::source_location::current());

}  // namespace muster

#define MUSTER_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) ::muster::check_failed(#condition, ""); \
  } while (false)

#define MUSTER_CHECK_MSG(condition, message)                         \
  do {                                                               \
    if (!(condition)) ::muster::check_failed(#condition, (message)); \
  } while (false)
