// Everything that can go wrong between one operator and the API server, drawn from one seed; and
// what must hold of every single request that an operator sends.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/kube/http_transport.h"

namespace muster::sim {

/// What a run of seeds has tried; added up over all of them.
struct Coverage {
  /// By write ("create pods"): crash before, crash after, reply lost.
  std::map<std::string, std::array<std::int64_t, 3>> writes;
  /// By kind ("pods", "topologies.kueue.x-k8s.io"): events missed, stale lists, 410, lines
  /// repeated, lines swapped.
  std::map<std::string, std::array<std::int64_t, 5>> views;
  std::int64_t requests = 0, conflicts_made = 0, refused = 0;
  void add(const Coverage& other);
};

/// Shared by all operators of one world.
struct Faults {
  explicit Faults(std::uint64_t seed)
      : rng(seed), event_rng(~seed), lease_rng(~seed ^ 1), streams_lists(seed % 4 == 0) {}
  Rng rng;
  Rng event_rng;  ///< of news that comes again
  Rng lease_rng;  ///< of who leads
  /// Whether the server can begin a watch with a list. Only pages come from an older state.
  bool streams_lists;
  bool on = true;
  Coverage coverage;
  /// Something else happens between two requests of one plan.
  std::function<void()> meanwhile;
  /// Somebody else writes the object that is about to be patched.
  std::function<void(const std::string& path)> foreign_write;
  /// Judges a request that is about to be sent; empty, or what is wrong with it.
  std::function<std::string(const kube::HttpRequest&)> judge;
  std::string wrong;  ///< the first judgement
  /// Lists as they were at earlier times, by path without its query.
  std::map<std::string, std::vector<std::string>> old_lists;
  /// Jobs whose pods are refused for want of quota.
  std::set<std::string> without_quota;
  /// Kinds that the server does not know, as Coverage::views names them.
  std::set<std::string> not_installed;

  bool hit(std::uint64_t one_in) { return on && rng.below(one_in) == 0; }
};

/// The way to the server for one operator. After crashed() everything fails, as it does for a
/// process that is no more.
class FaultyTransport final : public kube::HttpTransport {
 public:
  FaultyTransport(kube::HttpTransport& real, Faults& faults) : real_(real), faults_(faults) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override;
  Result<Stream> open_stream(const kube::HttpRequest& request) override;
  bool crashed() const { return crashed_; }
  std::int64_t writes() const { return writes_; }

 private:
  Result<kube::HttpResponse> read(const kube::HttpRequest& request);
  Result<kube::HttpResponse> write(const kube::HttpRequest& request);
  Result<kube::HttpResponse> send_apart(const kube::HttpRequest& request, Rng& dice,
                                        std::uint64_t rare);
  Result<kube::HttpResponse> crash();

  kube::HttpTransport& real_;
  Faults& faults_;
  bool crashed_ = false;
  std::int64_t writes_ = 0;
};

/// "create pods", "patch trainingjobs/status" of a request.
std::string write_name(const kube::HttpRequest& request);

}  // namespace muster::sim
