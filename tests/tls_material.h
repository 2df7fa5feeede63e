// Certificates of tests: a CA and servers under it, made anew by each test program.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "operator/runtime/certificates.h"

namespace muster::test {

constexpr seconds kHour{3600};

inline WallTime now() { return SystemClock().wall_now(); }

inline http::TlsIdentity authority(const std::string& name = "test-ca") {
  auto made = runtime::make_authority(name, now() - kHour, now() + kHour);
  MUSTER_CHECK(made.has_value());
  return *made;
}

/// A server's identity for `names`, valid from an hour ago to `valid_for` from now.
inline http::TlsIdentity server_of(const http::TlsIdentity& authority,
                                   std::vector<std::string> names = {"localhost", "127.0.0.1"},
                                   seconds valid_for = kHour) {
  auto made = runtime::issue_certificate(
      authority, {"server", std::move(names), now() - 2 * kHour, now() + valid_for, false});
  MUSTER_CHECK(made.has_value());
  return *made;
}

}  // namespace muster::test
