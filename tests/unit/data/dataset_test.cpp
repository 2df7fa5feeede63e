#include "worker/data/dataset.h"

#include <doctest/doctest.h>

#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/sentence.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

struct Files {
  TempDirectory directory;
  DatasetPaths paths(const std::string& name, std::uint32_t count, std::uint32_t width,
                     const Bytes& labels) const {
    const DatasetPaths paths{directory / (name + "-images"), directory / (name + "-labels")};
    write_bytes(paths.images, idx_bytes({count, 1, width}, Bytes(count * width, 9)));
    write_bytes(paths.labels, idx_bytes({static_cast<std::uint32_t>(labels.size())}, labels));
    return paths;
  }
};

}  // namespace

TEST_CASE("a dataset knows its shape and its classes") {
  const Files files;
  const auto train = load_dataset(files.paths("train", 3, 5, {0, 6, 2}));
  REQUIRE(train.has_value());
  CHECK(train->count == 3);
  CHECK(train->features == 5);
  CHECK(train->classes == 7);
  CHECK(load_dataset(files.paths("same", 2, 5, {0, 0}))->classes == 2);
}

TEST_CASE("images without labels and labels without images are refused") {
  const Files files;
  const auto paths = files.paths("train", 3, 5, {0, 1});
  CHECK(sentence_of(load_dataset(paths)) == paths.labels + ": has 2 labels, but " + paths.images +
                                                " has 3 images; the numbers must be equal");
}

TEST_CASE("a test set must fit its training set") {
  const Files files;
  const Dataset train = *load_dataset(files.paths("train", 3, 5, {0, 1, 2}));
  const auto other = files.paths("other", 2, 4, {0, 1});
  CHECK(sentence_of(load_test_dataset(other, train)) ==
        other.images +
            ": its images have 4 values, those of the training set 5; they must be equal");
  const auto label = files.paths("label", 2, 5, {0, 3});
  CHECK(sentence_of(load_test_dataset(label, train)) ==
        label.labels + ": label 1 is 3; the labels of the training set are from 0 to 2");
  const auto fitting = load_test_dataset(files.paths("fitting", 1, 5, {0}), train);
  REQUIRE(fitting.has_value());
  CHECK(fitting->classes == 3);
}

TEST_CASE("the hash is that of the decoded bytes") {
  const Files files;
  const Dataset a = *load_dataset(files.paths("a", 3, 5, {0, 1, 2}));
  Dataset b = a;
  CHECK(hash_of(a) == hash_of(b));
  b.labels[0] = 1;
  CHECK(hash_of(a) != hash_of(b));
  CHECK(to_hex(hash_of(a)) == to_hex(sha256(std::string(15, '\x09') + std::string("\0\1\2", 3))));
}

TEST_CASE("the digits of the example are 1,797 images in ten classes, every fifth for testing") {
  const Dataset train = *load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  const auto test = load_test_dataset(
      {"examples/data/digits-test-images.idx.gz", "examples/data/digits-test-labels.idx.gz"},
      train);
  REQUIRE(test.has_value());
  CHECK(train.count == 1437);
  CHECK(test->count == 360);
  CHECK(train.features == 64);
  CHECK(train.classes == 10);
  // Which images are in which of the two, and in which order.
  CHECK(to_hex(hash_of(train)) ==
        "82802935d0fe01afd1035c0f1a993f26bea98a7684fd6daf1836e40d6b71fd53");
  CHECK(to_hex(hash_of(*test)) ==
        "7985de38aae25d79bbaeaf84c879beb2af266fdf1c19cec26ca8ac180399124f");
}
