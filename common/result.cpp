#include "common/result.h"

#include <cstdio>
#include <cstdlib>

namespace muster {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "Invalid";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kAlreadyExists:
      return "AlreadyExists";
    case ErrorCode::kConflict:
      return "Conflict";
    case ErrorCode::kGone:
      return "Gone";
    case ErrorCode::kUnauthorized:
      return "Unauthorized";
    case ErrorCode::kForbidden:
      return "Forbidden";
    case ErrorCode::kTooLarge:
      return "TooLarge";
    case ErrorCode::kTooManyRequests:
      return "TooManyRequests";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    case ErrorCode::kDeadlineExceeded:
      return "DeadlineExceeded";
    case ErrorCode::kAborted:
      return "Aborted";
    case ErrorCode::kIo:
      return "Io";
    case ErrorCode::kCorrupt:
      return "Corrupt";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

void check_failed(const char* condition, const std::string& message,
                  std::source_location location) {
  std::fprintf(stderr, "%s:%u: check failed: %s%s%s\n", location.file_name(),
               static_cast<unsigned>(location.line()), condition, message.empty() ? "" : ": ",
               message.c_str());
  std::abort();
}

}  // namespace muster
