#include "operator/runtime/retry.h"

namespace muster::runtime {

bool is_refused(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
    case ErrorCode::kForbidden:
    case ErrorCode::kTooLarge:
    case ErrorCode::kUnsupported:
      return true;
    case ErrorCode::kConflict:
    case ErrorCode::kNotFound:
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kGone:
    case ErrorCode::kUnauthorized:  // A token is renewed behind our back.
    case ErrorCode::kTooManyRequests:
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kAborted:
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      return false;
  }
  return false;
}

}  // namespace muster::runtime
