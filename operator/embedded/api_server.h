// An API server in memory: revisions, 409, 410, watch, bookmarks, selectors, status subresource,
// merge patch, ownerReferences with garbage collection. It carries local runs, and is the fake of
// every test (wrapped with faults there). It speaks the HttpTransport interface, so client, codec
// and watcher run unchanged; a contract suite keeps it equal to a real kube-apiserver.
//
// Not here: server-side apply, CEL (jobs and queues are validated with operator/api),
// authentication, TLS.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/json.h"
#include "operator/kube/http_transport.h"

namespace muster::embedded {

struct ApiServerOptions {
  const Clock* clock = nullptr;  ///< outlives the server
  std::uint64_t seed = 1;        ///< of uids
  std::size_t history = 10'000;  ///< events kept per kind; a watch from before them gets 410
  milliseconds bookmark_interval{10'000};
  std::size_t max_object_bytes = 1'500'000;
  /// openAPIV3Schema of TrainingJob: unknown fields are dropped and defaults written, as by a real
  /// server. null: unknown fields are refused and defaults stay unwritten.
  Json job_schema = nullptr;
  Json queue_schema = nullptr;  ///< of TrainingQueue, likewise
};

/// Threads: any. send() never blocks on anything but its lock.
class ApiServer final : public kube::HttpTransport {
 public:
  explicit ApiServer(const ApiServerOptions& options);
  ~ApiServer() override;

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override;
  Result<Stream> open_stream(const kube::HttpRequest& request) override;

  /// Forgets history, so that every watch from before now gets 410 (etcd compaction).
  void compact();
  /// Ends all open streams, as a restart would.
  void cut_streams();
  std::uint64_t resource_version() const;
  /// Requests answered so far by "VERB kind[/subresource]": "create pods", "patch
  /// trainingjobs/status".
  std::map<std::string, std::int64_t> request_counts() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::embedded
