// Expected failures as values: a code that decides what happens next, and a sentence for a person.
//
// Retry or not, exit code or condition is decided from the code, in one place per binary; the
// message grows from the inside out ("create pod a-0: connect 127.0.0.1:1: connection refused").
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "common/check.h"

namespace muster {

enum class ErrorCode {
  kInvalid,           ///< What a user or a peer wrote cannot be right; repeating it will not help.
  kNotFound,          ///< The thing named does not exist.
  kAlreadyExists,     ///< A thing of that name exists.
  kConflict,          ///< The precondition (uid, resourceVersion) no longer holds; read again.
  kGone,              ///< History was compacted (HTTP 410); list again.
  kUnauthorized,      ///< No or bad credentials (401).
  kForbidden,         ///< Credentials without the right (403).
  kTooLarge,          ///< Over a documented bound.
  kTooManyRequests,   ///< Slow down (429).
  kUnavailable,       ///< The other side is not there now; retry with back-off.
  kDeadlineExceeded,  ///< Not finished in time; whether it took effect is unknown.
  kAborted,           ///< Stopped on purpose: a peer was lost, or abort() was called.
  kIo,                ///< The operating system refused: disk full, permission, closed descriptor.
  kCorrupt,           ///< Stored bytes do not match their checksum or format.
  kUnsupported,       ///< Understood, and not available here.
  kInternal,          ///< Should not happen, found by a check at a border.
};

/// The enumerator's name without `k`, for logs and metrics.
std::string_view to_string(ErrorCode code);

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The same error with what the caller was doing put in front: "`what`: message".
  Error with(std::string_view what) const {
    Error copy = *this;
    copy.message_ = std::string(what) + ": " + message_;
    return copy;
  }

  /// Process exit code (contract.h) that this error ends with, where a deeper layer knows it; else
  /// 0.
  int exit_code() const { return exit_code_; }
  Error with_exit_code(int exit_code) const {
    Error copy = *this;
    copy.exit_code_ = exit_code;
    return copy;
  }

  /// Seconds the other side asked to be left alone (Retry-After); 0 = it did not say.
  int retry_after_seconds() const { return retry_after_seconds_; }
  Error with_retry_after(int seconds) const {
    Error copy = *this;
    copy.retry_after_seconds_ = seconds;
    return copy;
  }

 private:
  ErrorCode code_;
  int exit_code_ = 0;
  int retry_after_seconds_ = 0;
  std::string message_;
};

/// A value or an Error. Member names are those of std::expected, so that C++23 is an alias away.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return check(), std::get<0>(state_); }
  const T& value() const& { return check(), std::get<0>(state_); }
  T&& value() && { return check(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    MUSTER_CHECK_MSG(!has_value(), "error() of a result that has a value");
    return std::get<1>(state_);
  }

 private:
  void check() const {
    MUSTER_CHECK_MSG(has_value(),
                     "value() of a result that is an error: " + std::get<1>(state_).message());
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const {
    MUSTER_CHECK_MSG(error_.has_value(), "error() of a status that is ok");
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace muster

#define MUSTER_CONCAT_INNER(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Result or Status) is an error.
#define MUSTER_RETURN_IF_ERROR(expr)                   \
  do {                                                 \
    if (auto muster_status = (expr); !muster_status) { \
      return muster_status.error();                    \
    }                                                  \
  } while (false)

/// `MUSTER_ASSIGN_OR_RETURN(auto x, f())`: x is the value of f(), or the function returns its
/// error.
#define MUSTER_ASSIGN_OR_RETURN(declaration, expr) \
  MUSTER_ASSIGN_OR_RETURN_IMPL(MUSTER_CONCAT(muster_result_, __LINE__), declaration, expr)
#define MUSTER_ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                         \
  if (!result) return result.error();                           \
  declaration = std::move(result).value()
