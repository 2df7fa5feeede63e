// Labelled images in memory, as bytes: a dataset is the same on every worker, and its hash says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"

namespace muster::data {

/// Most classes: a label is one byte.
inline constexpr int kMaxClasses = 256;

struct Dataset {
  std::size_t count = 0;
  std::size_t features = 0;           ///< values of one image
  int classes = 0;                    ///< 1 + the greatest label, at least 2
  std::vector<std::uint8_t> images;   ///< (count, features)
  std::vector<std::uint8_t> labels;   ///< (count)
  std::size_t height = 1, width = 0;  ///< of an image; one line where the file tells no height
  const std::uint8_t* image(std::size_t index) const { return images.data() + index * features; }
};

/// Paths of one set of images and its labels.
struct DatasetPaths {
  std::string images, labels;
};

/// Reads a training set.  Errors: exit code kData; one sentence that names the file.  Blocks: disk.
Result<Dataset> load_dataset(const DatasetPaths& paths);

/// Reads the test set that belongs to `train`: the same features, no label that `train` lacks.
Result<Dataset> load_test_dataset(const DatasetPaths& paths, const Dataset& train);

/// SHA-256 over the decoded bytes: images, then labels.
Sha256Digest hash_of(const Dataset& dataset);

}  // namespace muster::data
