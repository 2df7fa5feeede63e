// The operator's own little CA: the master Secret as files, and the serving certificate that each
// replica issues to itself from it. Private keys of replicas never touch a disk.
//
// Rotation. Running workers keep the CA they were started with, so a replaced CA must still be
// believed by them: the one before is left in the directory as previous-ca.crt and previous-ca.key,
// and the replica serves, beside its certificate, the new CA's public key signed by the old one.
// Workers of either CA then find a path to their own. New pods trust the CAs that are there when
// they are made. A gang keeps the master key that it started with (status.keyId), which is left as
// previous-master-key when another takes its place.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/http/tls.h"
#include "common/result.h"
#include "operator/runtime/job_key.h"

namespace muster::runtime {

/// The files of the master directory: ca.crt, ca.key, master-key; optional previous-ca.crt with
/// previous-ca.key, and previous-master-key.
struct MasterSecret {
  http::TlsIdentity authority;  ///< the CA: certificate and key
  http::TlsIdentity previous;   ///< the CA before; empty texts without one
  MasterKeys master_keys;
  bool operator==(const MasterSecret&) const = default;
};

/// Errors: kIo and kInvalid with one sentence that names the file, never its content, and exit code
/// kUsage.
Result<MasterSecret> read_master(const std::string& directory);

struct CertificateRequest {
  std::string common_name;
  std::vector<std::string> names;  ///< DNS names and numeric addresses, told apart by their form
  WallTime not_before;
  WallTime not_after;
  bool is_authority = false;
};

/// A new EC P-256 key and its certificate. Errors: kInvalid (authority), kInternal.
Result<http::TlsIdentity> issue_certificate(const http::TlsIdentity& authority,
                                            const CertificateRequest& request);
/// A CA that signed itself, for tests and tools.
Result<http::TlsIdentity> make_authority(const std::string& common_name, WallTime not_before,
                                         WallTime not_after);

/// Names of the serving certificate of a replica in `namespace_name`: those of the Services
/// muster-endpoint and muster-metrics, localhost, and `more` (the pod's address).
std::vector<std::string> serving_names(const std::string& namespace_name,
                                       const std::vector<std::string>& more);

struct TrustOptions {
  std::string master_dir;
  std::vector<std::string> names;  ///< of the serving certificate
  const Clock* clock = nullptr;    ///< outlives the trust
  milliseconds refresh_interval{10'000};
};

/// Keeps the serving certificate young (30 days, but no longer than its CA; issued anew half-way)
/// and follows changes of the master directory, on a thread of its own. A directory that became
/// unreadable or wrong is logged and the last good one stays; so is a CA that expires within 30
/// days, or has. Threads: any for every method.
class Trust {
 public:
  using Listener = std::function<void(const http::TlsIdentity&)>;

  /// Errors: as read_master.
  static Result<std::unique_ptr<Trust>> start(TrustOptions options);
  virtual ~Trust() = default;

  virtual http::TlsIdentity identity() const = 0;
  /// PEM of every CA that a certificate of a replica may lead to: what workers and forwarding
  /// replicas trust.
  virtual std::string ca_bundle() const = 0;
  virtual MasterKeys master_keys() const = 0;
  /// When the CA (ca.crt) expires.
  virtual WallTime authority_end() const = 0;
  /// Called at once and after each change, under no lock, from the thread that noticed.
  virtual void on_identity(Listener listener) = 0;
  /// Looks now. Errors: as read_master; the last good content stays.
  virtual Status refresh() = 0;
  virtual void stop() = 0;
};

}  // namespace muster::runtime
