// From a manifest's file and --set to a job, and to the job of a local run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct Manifest {
  Json json;             ///< as written, with overrides and without a status
  api::TrainingJob job;  ///< as validated
};

/// Reads a file, or standard input for "-", overrides and validates. Errors: "FILE: field: what
/// would be right" with exit code kInvalidSpec, or kUsage for a file or --set that cannot be read.
/// Nothing is written.
Result<Manifest> load_manifest(const std::string& path, const std::vector<std::string>& overrides);

struct LocalJob {
  Json manifest;          ///< what the API server gets: as written, with overrides and a namespace,
                          ///< and without what only pods have
  Json normalised;        ///< name and spec with every default: what identifies the run
  api::TrainingJob job;   ///< as validated
  std::string file;       ///< as it is called in sentences
  std::string directory;  ///< absolute, of the manifest's file or, of standard input and pipes,
                          ///< the current one: relative data paths start here
  std::vector<std::string> notes;  ///< what a local run does otherwise than a cluster, in sentences
};

/// As load_manifest; refuses, too, what a local run cannot do.
Result<LocalJob> load_job(const std::string& path, const std::vector<std::string>& overrides);

}  // namespace muster::cli
