// The thread that takes part in leader election, and the fence that holds everybody else's writes
// back while this process does not lead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "operator/core/leader_election.h"
#include "operator/kube/api_client.h"
#include "operator/kube/transport_guards.h"

namespace muster::runtime {

/// One who takes part, without a thread: the election and its exchanges, for whoever turns it.
/// Threads: one.
class Candidate {
 public:
  /// `transport` and `clock` outlive it.
  Candidate(kube::HttpTransport& transport, const Clock& clock, core::ElectionOptions options,
            std::uint64_t seed);

  /// One exchange; or none, and until when there is nothing to do. Blocks: one exchange.
  std::optional<MonoTime> step();
  /// Gives the Lease up where it is ours. Blocks: one exchange.
  void release();
  const core::LeaderElection& election() const { return election_; }

 private:
  Result<api::Lease> write(const api::Lease& lease);
  void tell(const Result<api::Lease>& lease);

  const Clock& clock_;
  const api::ObjectKey lease_;
  std::unique_ptr<kube::ApiClient> client_;
  core::LeaderElection election_;
  std::string trouble_;  ///< as it was told last
};

struct ElectorOptions {
  /// Its own: renewals must not wait behind other requests. Outlives the elector.
  kube::HttpTransport* transport = nullptr;
  const Clock* clock = nullptr;  ///< outlives the elector
  core::ElectionOptions election;
  std::uint64_t seed = 1;
  /// Called once each at most, on the elector's thread; must return at once. The fence is open
  /// before on_leading and closed before on_lost.
  std::function<void()> on_leading;
  std::function<void()> on_lost;
};

/// Threads: any for every method.
class Elector : public kube::WriteFence {
 public:
  /// Blocks: no.
  static std::unique_ptr<Elector> start(ElectorOptions options);

  virtual bool leading() const = 0;
  /// The holder's identity as last seen; empty = nobody known.
  virtual std::string holder() const = 0;
  /// Ends the thread and gives the Lease up, so that another takes over at once. Nothing may be
  /// written any more. Idempotent. Blocks: one or two exchanges, half the renew deadline each.
  virtual void stop() = 0;
};

/// "<address>" of an identity "<pod name>@<address>"; empty when there is none.
std::string address_of_identity(const std::string& identity);

}  // namespace muster::runtime
