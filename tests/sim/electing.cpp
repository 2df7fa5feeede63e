#include "tests/sim/electing.h"

namespace muster::sim {
namespace {

using Role = core::LeaderElection::Role;

core::ElectionOptions election_of(const std::string& identity) {
  core::ElectionOptions options;
  options.lease = lease_key();
  options.identity = identity;
  return options;
}

}  // namespace

api::ObjectKey lease_key() { return {"default", "muster-operator"}; }

Electing::Electing(kube::HttpTransport& server, const Clock& clock, const std::string& identity,
                   std::uint64_t seed)
    : clock_(clock), candidate_(server, clock, election_of(identity), seed) {}

std::optional<MonoTime> Electing::open_until() const {
  if (leads_on_) return MonoTime::max();
  const core::LeaderElection& election = candidate_.election();
  if (election.role() != Role::kLeader) return std::nullopt;
  return election.deadline();
}

bool Electing::leads() const {
  const auto until = open_until();
  return until && clock_.mono_now() < *until;
}

bool Electing::has_lost() const { return candidate_.election().role() == Role::kLost; }

bool Electing::step() {
  if (hangs) return false;
  const Role before = candidate_.election().role();
  // A look and the write that it may lead to, as a thread does them: one right after the other.
  for (int i = 0; i < 2; ++i) {
    if (candidate_.step()) break;
  }
  return before == Role::kStandby && candidate_.election().role() == Role::kLeader;
}

}  // namespace muster::sim
