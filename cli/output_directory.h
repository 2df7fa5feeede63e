// DIR of `muster run`: one spec each, one run at a time; an unfinished run goes on, a finished one
// starts anew, as every run of `muster prove` does. Holds job.json, lock, checkpoints/, logs/,
// model.safetensors and what stands beside it, and report.json; these three of a finished run are
// in previous/ until the run after it has a model.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace muster::cli {

/// Whether epochs and steps may differ; with a schedule, which is stretched over them, never.
enum class Length { kFixed, kFree };

/// Dotted paths in which two values differ, but for those (and what is below them) that may differ
/// between two runs of one DIR. At most 8.
std::vector<std::string> differences(const Json& before, const Json& now,
                                     Length length = Length::kFree);

/// Of the directory that has the checkpoint of `step`, in a directory of checkpoints.
std::string checkpoint_name(std::int64_t step);
/// Step of the newest whole checkpoint in a directory of checkpoints; -1 when there is none.
std::int64_t newest_checkpoint_step(const std::string& checkpoints);

/// What becomes of an earlier run of the directory.
enum class Earlier {
  kGoesOn,   ///< unless it is finished
  kRemoved,  ///< of whatever job it is
};

class OutputDirectory {
 public:
  /// Makes the directory if need be, locks it, and makes it ready for `job` (the manifest with all
  /// defaults). Errors, with exit code kUsage: another run is writing here; it belongs to another
  /// spec (the fields are named); it holds files of something else. kDisk or kInternal when the
  /// system refuses. Nothing of an earlier run is touched on an error, but what kRemoved had begun.
  static Result<OutputDirectory> open(const std::string& path, const Json& job,
                                      Earlier earlier = Earlier::kGoesOn);

  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();  ///< unlocks

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string logs() const { return path_ + "/logs"; }
  std::string model() const;
  /// Of text that the model wrote.
  std::string sample() const;
  std::string report() const;
  /// Of the finished run before this one, until this one has a model.
  std::string previous_model() const;
  bool has_previous_model() const;
  /// Step that the run goes on from; -1: from the start.
  std::int64_t resumed_from_step() const { return resumed_from_step_; }

  /// Moves the model of a complete training to model(), and the files beside it (model_files.h)
  /// along with it; those of the run before are then removed. False when there is no model.
  Result<bool> take_model() const;

 private:
  OutputDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  Status prepare(const Json& job);
  Status check_spec(const Json& job, Length length) const;
  bool is_finished() const;
  Status forget_finished() const;
  std::string previous() const { return path_ + "/previous"; }
  Status keep_results() const;
  Status remove_previous() const;
  Status remove_earlier() const;

  std::string path_;
  int lock_fd_ = -1;
  std::int64_t resumed_from_step_ = -1;
};

}  // namespace muster::cli
