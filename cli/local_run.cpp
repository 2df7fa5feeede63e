#include "cli/local_run.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/contract.h"
#include "common/utf8.h"

namespace muster::cli {

LocalClusterOptions cluster_options(const LocalRunOptions& options, const LocalJob& local,
                                    const OutputDirectory& directory) {
  LocalClusterOptions cluster;
  cluster.clock = options.clock;
  cluster.namespace_name = local.job.meta.namespace_name;
  cluster.worker_program = options.worker_program;
  for (const auto& [name, value] : options.environment) {
    // What belongs to another worker must not reach these; a forced instruction set is for them.
    if (!name.starts_with("MUSTER_") || name == contract::kEnvForceTarget) {
      cluster.base_environment.emplace(name, value);
    }
  }
  cluster.extra_env = {{std::string(contract::kEnvDataRoot), local.directory},
                       {std::string(contract::kEnvCheckpointPath), directory.checkpoints()},
                       {std::string(contract::kEnvBind), "127.0.0.1"},
                       {std::string(contract::kEnvLogLevel), options.log_level}};
  if (options.hash_every) {
    cluster.extra_env.emplace_back(contract::kEnvHashEvery, std::to_string(*options.hash_every));
  }
  cluster.log_directory = directory.logs();
  cluster.working_directory = local.directory;
  cluster.metrics_port = options.metrics_port;
  cluster.prices = options.prices;
  cluster.token_file = directory.path() + "/token";
  if (!local.job.spec.training) cluster.ports = std::min(local.job.spec.worker.max, 512);
  return cluster;
}

Status check_paths(const LocalJob& local, const std::string& output) {
  if (!local.job.spec.training) return {};
  std::error_code error;  // opening the directory will tell
  const std::string directory = std::filesystem::absolute(output, error);
  const auto refusal = [](const std::string& path, const std::string& what) {
    return Error(ErrorCode::kInvalid, path + ": " + what +
                                          " must have a path in UTF-8 for the built-in engine; "
                                          "rename its directories, or choose others")
        .with_exit_code(contract::exit_code::kUsage);
  };
  if (!is_utf8(local.directory)) return refusal(local.directory, "the manifest's directory");
  if (!is_utf8(directory)) return refusal(directory, "the directory of the run (--output)");
  return {};
}

void LocalRun::stop(milliseconds grace) {
  if (cluster) cluster->stop(grace);
  if (jobs) jobs->stop();
  if (notes) notes->stop();
}

Result<LocalRun> start_job(LocalClusterOptions options, const LocalJob& local,
                           JobFollower& follower) {
  LocalRun run;
  embedded::WatchThreadOptions watch;
  watch.clock = options.clock;
  auto cluster = LocalCluster::start(std::move(options));
  if (!cluster) return cluster.error().with("cannot start the local cluster");
  run.cluster = std::move(*cluster);
  watch.client = &run.cluster->client();
  watch.kind = api::Kind::kTrainingJob;
  watch.namespace_name = local.job.meta.namespace_name;
  run.jobs = std::make_unique<embedded::WatchThread>(
      watch, [&follower](const kube::WatchEvent& event) { follower.post_event(event); });
  watch.kind = api::Kind::kEvent;
  run.notes = std::make_unique<embedded::WatchThread>(
      watch, [&follower](const kube::WatchEvent& event) { follower.post_note(event); });
  auto created = run.cluster->client().create(api::Kind::kTrainingJob,
                                              local.job.meta.namespace_name, local.manifest);
  if (!created) {
    const bool invalid = created.error().code() == ErrorCode::kInvalid;
    return created.error()
        .with(local.file)
        .with_exit_code(invalid ? contract::exit_code::kInvalidSpec
                                : contract::exit_code::kInternal);
  }
  run.job = std::move(*created);
  return run;
}

}  // namespace muster::cli
