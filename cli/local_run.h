// What `muster run` and `muster prove` share: a job in a local cluster of its own, and somebody who
// follows it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/job_follower.h"
#include "cli/local_cluster.h"
#include "cli/manifest.h"
#include "cli/output_directory.h"
#include "operator/embedded/watch_thread.h"

namespace muster::cli {

struct LocalRunOptions {
  const Clock* clock = nullptr;
  std::string worker_program;
  std::map<std::string, std::string> environment;  ///< muster's own; workers inherit it
  std::string log_level = "info";                  ///< of the workers' logs
  std::optional<std::int64_t> hash_every;          ///< steps; nullopt = the worker's default
  int metrics_port = 0;                            ///< 0 = none
  std::optional<api::PriceList> prices;            ///< absent: cost is not counted
};

LocalClusterOptions cluster_options(const LocalRunOptions& options, const LocalJob& local,
                                    const OutputDirectory& directory);

/// Whether the engine can be told where its files are: that is told in JSON. Errors: kInvalid
/// with exit code kUsage.
Status check_paths(const LocalJob& local, const std::string& output);

/// A job that runs. The watches end before the cluster they look at.
struct LocalRun {
  std::unique_ptr<LocalCluster> cluster;
  std::unique_ptr<embedded::WatchThread> jobs, notes;
  Json job;  ///< as the API server took it

  /// Nothing is told any more. Blocks: until the workers have ended, `grace` and a little at most.
  void stop(milliseconds grace);
};

/// Starts a cluster and the job in it; `follower`, which outlives both, gets what happens to the
/// job. Blocks: as LocalCluster::start. Errors: as there; kInvalid with exit code kInvalidSpec when
/// the API server refuses the job, others with kInternal.
Result<LocalRun> start_job(LocalClusterOptions options, const LocalJob& local,
                           JobFollower& follower);

}  // namespace muster::cli
