// Where `muster fetch` puts what it gets: each file whole or not at all, below one directory. None
// takes the place of an older one before all have come and are known to be the job's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/tar_reader.h"
#include "common/file.h"

namespace muster::cli {

class FetchedFiles final : public TarSink {
 public:
  /// `wants` says under which name below `directory` a file of the archive is kept; "" = it is
  /// passed over. Archives are sorted: after `last` no wanted file comes, and begin_file() ends
  /// the reading with kAborted; "" = never.
  FetchedFiles(std::string directory, std::function<std::string(const std::string&)> wants,
               std::string last)
      : directory_(std::move(directory)), wants_(std::move(wants)), last_(std::move(last)) {}
  /// Removes what was not kept.
  ~FetchedFiles() override { drop(); }

  /// Errors: kInvalid, exit code kUsage: another of these writes into the directory.
  Status begin_file(const std::string& name, std::int64_t bytes) override;
  Status data(std::string_view piece) override;
  Status end_file() override;

  struct File {
    std::string name;
    std::int64_t bytes = 0;
  };
  const std::vector<File>& files() const { return files_; }
  /// Where one of files() lies until keep().
  std::string path_of(const File& file) const;
  /// Gives files() their names, in the place of what has them, to the model last: none where a
  /// directory has one of the names. Errors: kIo.
  Status keep();
  /// One of files() that cannot be the job's is kept under a name that nobody takes for it, or if
  /// it cannot have that, where it lies. Returns its path.
  std::string set_aside(const File& file);
  bool has_enough() const { return has_enough_; }

 private:
  std::string place_of(const File& file) const { return directory_ + "/" + file.name; }
  Status lock();
  void drop();
  std::string directory_;
  std::function<std::string(const std::string&)> wants_;
  std::string last_;
  std::vector<File> files_;
  bool has_enough_ = false;
  bool is_kept_ = false;
  std::string spared_;  ///< a path that is not removed
  UniqueFd lock_;  ///< the directory; files that have not come whole have names that all would use
  UniqueFd file_;
  File current_;
};

/// SHA-256 over the SHA-256s of the blocks of 4,096 floats of a safetensors file, which is what
/// status.model.sha256 says (docs/numerics.md). Errors: kCorrupt, kIo.  Blocks: on the disk.
Result<std::string> hash_of_parameters(const std::string& path);

}  // namespace muster::cli
