// One operator's part in the election of a leader: the elector's own code without its thread, and
// the fence before what the operator writes. What can go wrong with the Lease itself goes wrong on
// the way to the server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/runtime/elector.h"

namespace muster::sim {

/// The one Lease of a world.
api::ObjectKey lease_key();

class Electing final : public kube::WriteFence {
 public:
  /// `server` and `clock` outlive it; no two of a world have one identity.
  Electing(kube::HttpTransport& server, const Clock& clock, const std::string& identity,
           std::uint64_t seed);

  std::optional<MonoTime> open_until() const override;
  /// Whether it may write now.
  bool leads() const;
  bool has_lost() const;
  /// Looks after the Lease, unless it hangs. Whether it leads since this look.
  bool step();
  /// Nobody else takes part any more: it leads for the rest of its life.
  void lead_on() { leads_on_ = true; }

  /// As with a thread that gets no processor: the Lease is left alone, what else it does goes on.
  bool hangs = false;

 private:
  const Clock& clock_;
  runtime::Candidate candidate_;
  bool leads_on_ = false;
};

}  // namespace muster::sim
