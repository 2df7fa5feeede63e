#include "operator/runtime/retry.h"

namespace muster::runtime {

Retry retry_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kConflict:
    case ErrorCode::kNotFound:
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kGone:
      return Retry::kReread;
    case ErrorCode::kInvalid:
    case ErrorCode::kForbidden:
    case ErrorCode::kTooLarge:
    case ErrorCode::kUnsupported:
      return Retry::kRefused;
    case ErrorCode::kUnauthorized:  // A token is renewed behind our back.
    case ErrorCode::kTooManyRequests:
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kAborted:
    case ErrorCode::kIo:
    case ErrorCode::kCorrupt:
    case ErrorCode::kInternal:
      return Retry::kLater;
  }
  return Retry::kLater;
}

}  // namespace muster::runtime
