// Labelled images or a text, as bytes, a table's numbers, or tokens; in memory, or on the disk, as
// tokens and many pictures are. A dataset is the same on every worker, and its hash says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"
#include "worker/data/file.h"
#include "worker/data/table_column.h"

namespace muster::data {

class PictureFiles;
class TableFile;
class TokenShards;

/// Most classes of images and of a text: a label is one byte.
inline constexpr int kMaxClasses = 256;

/// Samples and their labels. A text has none but its own bytes: the labels of a sample are its
/// bytes moved on by one, the last of which is the first of the next sample.
struct Dataset {
  std::size_t count = 0;
  std::size_t features = 0;  ///< values of one image or row; of a text or tokens the context
  std::size_t targets = 1;   ///< labels of one sample
  int classes = 0;           ///< 1 + the greatest label, at least 2; kMaxClasses of a text
  std::vector<std::uint8_t> images;   ///< (count, features); of a text all its bytes, so also more
  std::vector<std::uint8_t> labels;   ///< (count); of a text empty
  std::size_t height = 1, width = 0;  ///< of an image; one line where the file tells no height
  std::size_t channels = 1;           ///< values of a pixel: gray, or 3 of red, green and blue
  std::vector<std::string> class_names;  ///< in their order, where they have any
  // Of a table, which has no images:
  std::vector<float> values;  ///< (count, features); empty where rows stay in their file
  std::shared_ptr<const TableFile> rows;  ///< what reads them then
  std::vector<TableColumn> columns;       ///< without the label's; together they have all features
  /// Of tokens, which have neither images nor labels in memory: data::read_sample() reads them.
  std::shared_ptr<const TokenShards> shards;
  /// Of pictures in files of their own: data::read_image() reads the images.
  std::shared_ptr<PictureFiles> pictures;
  const std::uint8_t* image(std::size_t index) const { return images.data() + index * features; }
  bool is_table() const { return !values.empty() || rows; }
  bool is_text() const { return labels.empty() && !images.empty(); }
  /// Bytes of memory that it takes as long as samples are read.
  std::size_t memory() const;
  /// The same but for what is taken only while pictures are read.
  std::size_t memory_at_rest() const;
  /// The labels of a sample.  Shape: (targets).
  const std::uint8_t* labels_of(std::size_t index) const {
    return is_text() ? image(index) + 1 : labels.data() + index;
  }
};

/// Paths of one set of images and its labels.
struct DatasetPaths {
  std::string images, labels;
};

/// Reads a training set, which may take `most_memory`.  Errors: one sentence that names the file;
/// exit code kData, kDisk where the system could not read it, or that of check_memory_for().
/// Blocks: on the disk.
Result<Dataset> load_dataset(const DatasetPaths& paths, std::uint64_t most_memory = kAnyMemory);

/// Reads the test set that belongs to `train`: the same features, no label that `train` lacks.
Result<Dataset> load_test_dataset(const DatasetPaths& paths, const Dataset& train,
                                  std::uint64_t most_memory = kAnyMemory);

/// The values of an image, in memory or read into `buffer`.  Shape: (samples.features).
/// Requires that the samples are images.  Errors, Blocks: as PictureFiles::read; none of what is in
/// memory.
Result<std::span<const std::uint8_t>> read_image(const Dataset& samples, std::size_t index,
                                                 std::vector<std::uint8_t>& buffer);

/// The numbers of a row of a table, in memory or read.  Shape: out (samples.features).
/// Errors, Blocks: as TableFile::read; none of what is in memory.
Status read_row(const Dataset& samples, std::size_t index, std::span<float> out);

/// SHA-256 over the decoded bytes: images or values (little-endian), then labels; of a text all
/// bytes of its file; of tokens that of their shards.  Requires is_checked().
Sha256Digest hash_of(const Dataset& dataset);

/// Whether what is in the samples is known: not before pictures are checked, here or by others.
bool is_checked(const Dataset& dataset);

}  // namespace muster::data
