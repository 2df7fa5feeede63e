// `muster get`: jobs as rows. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_table.h"
#include "common/clock.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct JobTableOptions {
  bool has_namespace = false;  ///< of all namespaces
  bool is_wide = false;
  bool has_bar = false;  ///< progress as a bar: a terminal
};

std::vector<std::string> job_columns(const JobTableOptions& options);
std::vector<Cell> job_row(const api::TrainingJob& job, const JobTableOptions& options,
                          WallTime now);

/// What to show as STATUS: the phase; "Deleting", "Suspending", "Unattended" (nobody has taken the
/// job up) where that says more.
std::string status_word(const api::TrainingJob& job, WallTime now);

/// A job that no operator has looked at for so long is called unattended.
inline constexpr seconds kUnattendedAfter{15};

/// "51,200 samples/s", of a model of texts "26,214,400 tokens/s"; empty when no speed is known.
std::string speed_text(const api::TrainingJob& job);

/// Share of the steps done, 0 to 100; -1 when it is not known.
int percent_done(const api::TrainingJob& job);

}  // namespace muster::cli
