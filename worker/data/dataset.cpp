#include "worker/data/dataset.h"

#include <algorithm>
#include <span>

#include "common/check.h"
#include "worker/data/idx.h"
#include "worker/data/picture_files.h"
#include "worker/data/table_file.h"
#include "worker/data/tokens.h"

namespace muster::data {

Result<Dataset> load_dataset(const DatasetPaths& paths, std::uint64_t most_memory) {
  MUSTER_ASSIGN_OR_RETURN(IdxArray images, read_idx(paths.images, IdxKind::kImages, most_memory));
  MUSTER_ASSIGN_OR_RETURN(IdxArray labels, read_idx(paths.labels, IdxKind::kLabels,
                                                    most_memory - images.values.size()));
  Dataset dataset;
  dataset.count = images.shape.front();
  dataset.features = images.values.size() / dataset.count;
  dataset.height = images.shape.size() == 3 ? images.shape[1] : 1;
  dataset.width = dataset.features / dataset.height;
  if (labels.values.size() != dataset.count) {
    return bad_data(paths.labels, ErrorCode::kInvalid,
                    "has " + std::to_string(labels.values.size()) + " labels, but " + paths.images +
                        " has " + std::to_string(dataset.count) +
                        " images; the numbers must be equal");
  }
  dataset.classes =
      std::max(2, 1 + int{*std::max_element(labels.values.begin(), labels.values.end())});
  dataset.images = std::move(images.values);
  dataset.labels = std::move(labels.values);
  return dataset;
}

Result<Dataset> load_test_dataset(const DatasetPaths& paths, const Dataset& train,
                                  std::uint64_t most_memory) {
  MUSTER_ASSIGN_OR_RETURN(Dataset test, load_dataset(paths, most_memory));
  if (test.features != train.features) {
    return bad_data(paths.images, ErrorCode::kInvalid,
                    "its images have " + std::to_string(test.features) +
                        " values, those of the training set " + std::to_string(train.features) +
                        "; they must be equal");
  }
  const auto out_of_range = std::find_if(test.labels.begin(), test.labels.end(),
                                         [&](std::uint8_t v) { return v >= train.classes; });
  if (out_of_range != test.labels.end()) {
    return bad_data(paths.labels, ErrorCode::kInvalid,
                    "label " + std::to_string(out_of_range - test.labels.begin()) + " is " +
                        std::to_string(*out_of_range) +
                        "; the labels of the training set are from 0 to " +
                        std::to_string(train.classes - 1));
  }
  test.classes = train.classes;
  return test;
}

std::size_t Dataset::memory_at_rest() const {
  return images.size() + values.size() * sizeof(float) + labels.size() +
         (pictures ? pictures->memory_at_rest() : 0) + (rows ? rows->memory() : 0);
}

std::size_t Dataset::memory() const {
  return memory_at_rest() + (pictures ? pictures->memory() - pictures->memory_at_rest() : 0);
}

Result<std::span<const std::uint8_t>> read_image(const Dataset& samples, std::size_t index,
                                                 std::vector<std::uint8_t>& buffer) {
  if (!samples.pictures) return std::span(samples.image(index), samples.features);
  return samples.pictures->read(index, buffer);
}

Status read_row(const Dataset& samples, std::size_t index, std::span<float> out) {
  if (samples.rows) return samples.rows->read(index, out);
  std::copy_n(samples.values.begin() + static_cast<std::ptrdiff_t>(index * samples.features),
              samples.features, out.begin());
  return {};
}

Sha256Digest hash_of(const Dataset& dataset) {
  if (dataset.shards) return dataset.shards->digest();
  if (dataset.rows) return dataset.rows->digest();
  if (dataset.pictures) {
    MUSTER_CHECK(dataset.pictures->check() != nullptr);
    return dataset.pictures->check()->digest;
  }
  Sha256 hash;
  hash.update(std::as_bytes(std::span(dataset.images)));
  hash.update(std::as_bytes(std::span(dataset.values)));
  hash.update(std::as_bytes(std::span(dataset.labels)));
  return hash.finish();
}

bool is_checked(const Dataset& dataset) {
  return !dataset.pictures || dataset.pictures->check() != nullptr;
}

}  // namespace muster::data
