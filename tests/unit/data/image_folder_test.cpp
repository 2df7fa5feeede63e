#include "worker/data/image_folder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "tests/few_threads.h"
#include "tests/no_descriptors.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/data/sentence.h"
#include "worker/data/loader.h"
#include "worker/data/picture_files.h"
#include "worker/data/prefetch.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

class Pictures {
 public:
  /// A picture of one color.
  void add(const std::string& name, std::uint8_t value, std::uint32_t height = 2,
           std::uint32_t width = 3) const {
    put(name, png_bytes(height, width, Bytes(height * width * 3, value)));
  }
  void put(const std::string& name, const Bytes& bytes) const {
    const std::string path = directory_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_bytes(path, bytes);
  }
  ImageFolder folder() const { return {directory_.path()}; }
  std::string operator/(const std::string& name) const { return directory_ / name; }

 private:
  TempDirectory directory_;
};

Bytes image_of(const Dataset& set, std::size_t index) {
  Bytes buffer;
  const auto image = read_image(set, index, buffer);
  REQUIRE_MESSAGE(image, image.error().message());
  return {image->begin(), image->end()};
}

}  // namespace

TEST_CASE("classes and pictures come in the order of their names, and what is hidden counts not") {
  const Pictures pictures;
  pictures.add("dog/b.png", 4);
  pictures.add("dog/a.png", 3);
  pictures.add("Cat/10.png", 1);
  pictures.add("Cat/9.png", 2);
  pictures.put("dog/.DS_Store", {1});
  pictures.put(".cache/x", {1});
  pictures.put("LICENSE", {1});
  const auto set = load_image_folder(pictures.folder());
  REQUIRE_MESSAGE(set, set.error().message());
  CHECK(set->count == 4);
  CHECK(set->class_names == std::vector<std::string>{"Cat", "dog"});
  CHECK(set->classes == 2);
  CHECK(set->labels == Bytes{0, 0, 1, 1});
  CHECK(set->height == 2);
  CHECK(set->width == 3);
  CHECK(set->channels == 3);
  CHECK(set->features == 18);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(image_of(*set, i) == Bytes(18, static_cast<std::uint8_t>(i + 1)));
  }
}

TEST_CASE("gray pictures are what IDX files of the same values are") {
  const Pictures pictures;
  pictures.put("a/1.png", png_bytes(1, 2, {7, 8}, {PNG_COLOR_TYPE_GRAY}));
  pictures.put("b/1.png", png_bytes(1, 2, {9, 10}, {PNG_COLOR_TYPE_GRAY}));
  ImageFolder folder = pictures.folder();
  folder.is_gray = true;
  const auto set = load_image_folder(folder);
  REQUIRE_MESSAGE(set, set.error().message());
  CHECK(set->channels == 1);
  const TempDirectory files;
  const DatasetPaths paths{files / "images", files / "labels"};
  write_bytes(paths.images, idx_bytes({2, 1, 2}, {7, 8, 9, 10}));
  write_bytes(paths.labels, idx_bytes({2}, {0, 1}));
  CHECK(hash_of(*set) == hash_of(*load_dataset(paths)));
}

TEST_CASE("pictures of several sizes are refused, or scaled to one") {
  const Pictures pictures;
  pictures.add("a/1.png", 1, 2, 3);
  pictures.add("a/2.png", 2, 4, 3);
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        pictures / "a/2.png" +
            ": is 4 x 3, the first one 2 x 3; with height and width they are scaled to one size");
  ImageFolder folder = pictures.folder();
  folder.height = folder.width = 5;
  const auto set = load_image_folder(folder);
  REQUIRE_MESSAGE(set, set.error().message());
  CHECK(set->height == 5);
  CHECK(set->features == 75);
  CHECK(image_of(*set, 1)[74] == 2);
  pictures.add("A/1.png", 1, 1, 2049);
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        pictures / "A/1.png" +
            ": is 1 x 2049; pictures of more than 2048 pixels a side need height and width, to be "
            "scaled to");
}

TEST_CASE("what is no directory of classes with pictures is refused with what would be right") {
  const Pictures pictures;
  const std::string directory = pictures.folder().directory;
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        directory + ": has no directories; must have one for each class, with its pictures");
  CHECK(sentence_of(load_image_folder({directory + "/none"}))
            .starts_with(directory + "/none: cannot be listed: "));
  std::filesystem::create_directory(directory + "/a");
  CHECK(sentence_of(load_image_folder(pictures.folder())) == directory + "/a: has no pictures");
  pictures.put("a/notes.txt", {'h', 'i'});
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        directory +
            "/a/notes.txt: is neither a PNG nor a JPEG file; convert or remove it, for all "
            "workers alike");
  pictures.add("a/b/1.png", 1);
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        directory + "/a/b: is a directory within that of a class, which must have pictures alone");
  for (int i = 0; i < 257; ++i)
    std::filesystem::create_directory(directory + "/" + std::to_string(i));
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        directory + ": has 258 directories, one for each class; must be at most 256");
}

TEST_CASE("a class whose name is not UTF-8 is refused with its directory") {
  const Pictures pictures;
  pictures.add("caf\xc3\xa9/1.png", 1);
  CHECK(load_image_folder(pictures.folder())->class_names ==
        std::vector<std::string>{"caf\xc3\xa9"});
  pictures.add("caf\xe9/1.png", 1);
  CHECK(sentence_of(load_image_folder(pictures.folder())) ==
        pictures / "caf\xe9" + ": the name of a class must be UTF-8; rename the directory");
}

TEST_CASE("any number of threads reads the same, and names the first file that is wrong") {
  const Pictures pictures;
  for (int i = 0; i < 40; ++i) {
    const auto value = static_cast<std::uint8_t>(i);
    pictures.add(std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(100 + i), value, 5, 7);
  }
  ImageFolder folder = pictures.folder();
  const Dataset one = *load_image_folder(folder);
  folder.threads = 4;
  const Dataset several = *load_image_folder(folder);
  CHECK(hash_of(several) == hash_of(one));
  for (std::size_t i = 0; i < 40; ++i) CHECK(image_of(several, i) == image_of(one, i));
  CHECK(several.labels == one.labels);
  for (const int wrong : {138, 122, 117}) {
    pictures.put((wrong % 2 == 0 ? "a/" : "b/") + std::to_string(wrong), {'x'});
  }
  for (int round = 0; round < 20; ++round) {
    CHECK(sentence_of(load_image_folder(folder)).starts_with(pictures / "a/122" + ": is neither"));
  }
}

TEST_CASE("as many pictures are decoded at once as there is memory for") {
  const Pictures pictures;
  std::uint64_t largest = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "a/" + std::to_string(10 + i);
    pictures.add(name, static_cast<std::uint8_t>(i), 50, 40);
    largest = std::max<std::uint64_t>(largest, std::filesystem::file_size(pictures / name));
  }
  ImageFolder folder = pictures.folder();
  const Dataset right = *load_image_folder(folder);
  constexpr std::uint64_t kValues = 50 * 40 * 3;
  for (const int threads : {1, 4}) {
    folder.threads = threads;
    for (const std::uint64_t most_held : {std::uint64_t{0}, 12 * kValues}) {
      folder.most_held = most_held;
      // One in memory for each thread, or all; and of one its file, its pixels and its values.
      const std::uint64_t waiting =
          (most_held == 0 ? static_cast<std::uint64_t>(threads) : 12) * kValues;
      folder.most_memory = waiting + largest + 2 * kValues;
      const auto set = load_image_folder(folder);
      REQUIRE_MESSAGE(set, set.error().message());
      CHECK(hash_of(*set) == hash_of(right));
      const std::uint64_t one = set->pictures->most_decoded_at_once();
      CHECK(one > 2 * kValues);
      CHECK(one <= largest + 2 * kValues);
      // Half of the room is for several: here two of them.
      folder.most_memory = waiting + 4 * (largest + 2 * kValues);
      const auto in_pairs = load_image_folder(folder);
      REQUIRE_MESSAGE(in_pairs, in_pairs.error().message());
      CHECK(hash_of(*in_pairs) == hash_of(right));
      CHECK(in_pairs->pictures->most_decoded_at_once() >= one);
      CHECK(in_pairs->pictures->most_decoded_at_once() <= 2 * (largest + 2 * kValues));
      folder.most_memory = waiting + kValues;
      const auto refused = load_image_folder(folder);
      REQUIRE_FALSE(refused);
      CHECK(refused.error().message().starts_with(pictures / "a/10" + ": takes at least "));
      CHECK(refused.error().message().find(" has 6000 left; ") != std::string::npos);
      CHECK(refused.error().exit_code() == contract::exit_code::kInvalidSpec);
    }
  }
  // The size of all is the first one's, which is decoded for it.
  folder.most_memory = kValues;
  const auto refused = load_image_folder(folder);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find(" has 6000 left; ") != std::string::npos);
}

TEST_CASE("threads that decode have together what there is room for, and one alone what it wants") {
  DecodingRoom room;
  constexpr std::uint64_t kMost = 7;
  {
    const auto three = room.take(3, kMost), four = room.take(4, kMost);
    CHECK(room.greatest() == 7);
  }
  std::atomic<std::uint64_t> taken = 0, greatest = 0;
  std::vector<std::jthread> threads;
  for (const std::uint64_t bytes : {3, 3, 4, 9}) {
    threads.emplace_back([&, bytes] {
      for (int round = 0; round < 1000; ++round) {
        const auto part = room.take(bytes, kMost);
        const std::uint64_t now = taken.fetch_add(bytes) + bytes;
        std::this_thread::yield();
        for (std::uint64_t seen = greatest; seen < now;) greatest.compare_exchange_weak(seen, now);
        taken -= bytes;
      }
    });
  }
  threads.clear();
  CHECK(greatest == 9);
  CHECK(room.greatest() == 9);
}

TEST_CASE("who has a part of the room takes more only where nobody has to be waited for") {
  DecodingRoom room;
  constexpr std::uint64_t kMost = 7;
  auto one = room.take(2, kMost);
  CHECK(one.grow_to(4, kMost));
  {
    auto other = room.take(3, kMost);
    CHECK_FALSE(one.grow_to(5, kMost));
    CHECK(other.grow_to(1, kMost));
    CHECK(one.grow_to(6, kMost));
    CHECK_FALSE(one.grow_to(9, kMost));
  }
  CHECK(one.grow_to(9, kMost));  // alone
  CHECK(room.greatest() == 9);
}

TEST_CASE("a file that is large has its place in the room as well, however small its picture is") {
  const Pictures pictures;
  constexpr std::size_t kBytes = 100'000;
  pictures.add("a/0", 9, 1, 1);
  for (int i = 0; i < 12; ++i) {
    Bytes file = png_bytes(1, 1, Bytes(3, static_cast<std::uint8_t>(i)));
    file.resize(kBytes);  // what comes behind a picture is not looked at
    pictures.put("a/" + std::to_string(10 + i), file);
  }
  ImageFolder folder = pictures.folder();
  folder.threads = 4;
  folder.most_memory = 5 * kBytes;
  const auto set = load_image_folder(folder);
  REQUIRE_MESSAGE(set, set.error().message());
  CHECK(set->pictures->most_decoded_at_once() >= kBytes);
  CHECK(set->pictures->most_decoded_at_once() <= 5 * kBytes / 2);
  folder.most_memory = kBytes - 1;
  const auto refused = load_image_folder(folder);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(refused.error().message().starts_with(pictures / "a/10" +
                                              ": takes at least 100000 bytes of memory, "));
}

TEST_CASE("pictures are read with as many threads as the system gives") {
  const Pictures pictures;
  for (int i = 0; i < 12; ++i) {
    pictures.add("a/" + std::to_string(10 + i), static_cast<std::uint8_t>(i));
  }
  ImageFolder folder = pictures.folder();
  const Dataset right = *load_image_folder(folder);
  folder.threads = 4;
  folder.most_held = 0;
  for (const rlim_t given : {0, 1}) {
    CAPTURE(given);
    CHECK(with_few_threads(given, [&] {
      const auto set = load_image_folder(folder);
      if (!set || hash_of(*set) != hash_of(right)) return false;
      Bytes buffer;
      for (std::uint64_t i = 0; i < 12; ++i) {
        prefetch(*set, std::vector<std::uint64_t>{i, (i + 1) % 12});
        const auto image = read_image(*set, i, buffer);
        if (!image || image->front() != i) return false;
      }
      return true;
    }));
  }
}

TEST_CASE("what is thrown while pictures are decoded is an error, on whatever thread") {
  const Pictures pictures;
  for (int i = 0; i < 12; ++i) pictures.add("a/" + std::to_string(10 + i), 1);
  ImageFolder folder = pictures.folder();
  for (const int threads : {1, 4}) {
    CAPTURE(threads);
    folder.threads = threads;
    int decoded_here = 0;
    folder.on_alive = [&] {
      ++decoded_here;
      throw std::bad_alloc();
    };
    const auto set = load_image_folder(folder);
    if (threads > 1 && decoded_here == 0) continue;  // the others were quicker
    REQUIRE_FALSE(set);
    CHECK(set.error().exit_code() == contract::exit_code::kOutOfMemory);
  }
}

TEST_CASE("pictures that are not held are what they are in memory") {
  const Pictures pictures;
  for (int i = 0; i < 30; ++i) {
    pictures.add((i % 3 == 0 ? "a/" : "b/") + std::to_string(100 + i), static_cast<std::uint8_t>(i),
                 5, 7);
  }
  ImageFolder folder = pictures.folder();
  folder.most_held = 30 * 105;
  const Dataset held = *load_image_folder(folder);
  REQUIRE(held.pictures->held_bytes() == folder.most_held);
  for (const auto& [threads, most_held] : {std::pair{1, 30 * 105 - 1}, std::pair{3, 0}}) {
    folder.threads = threads;
    folder.most_held = static_cast<std::uint64_t>(most_held);
    const auto set = load_image_folder(folder);
    REQUIRE_MESSAGE(set, set.error().message());
    CHECK(set->pictures->held_bytes() == 0);
    CHECK(set->labels == held.labels);
    CHECK(set->count == held.count);
    CHECK(set->features == held.features);
    CHECK(hash_of(*set) == hash_of(held));
    const Loader loader({7, set->count, 5, 10});
    Bytes buffer;
    for (std::int64_t step = 0; step < 20; ++step) {
      for (int rank = 0; rank < 5; ++rank) {
        prefetch(*set, loader, step + 1, {rank, rank + 1});
        std::array<std::uint64_t, 2> rows{};
        loader.samples(step, {rank, rank + 1}, rows);
        for (const std::uint64_t index : rows) {
          const auto image = read_image(*set, index, buffer);
          REQUIRE_MESSAGE(image, image.error().message());
          CHECK(Bytes(image->begin(), image->end()) == image_of(held, index));
        }
      }
    }
  }
}

TEST_CASE(
    "each thread has room for the coefficients of a progressive picture, where there is one") {
  constexpr std::size_t kSide = 96, kColorsOfAll = kSide * kSide * 3;
  const auto memory = [](int kind, int threads) {
    const Pictures pictures;
    pictures.add("a/1.png", 9);
    pictures.put("b/1.jpg", jpeg_bytes(kSide, kSide, Bytes(kColorsOfAll, 9), false, kind));
    ImageFolder folder = pictures.folder();
    folder.height = folder.width = 1;
    folder.threads = threads;
    folder.most_held = 0;
    const auto set = load_image_folder(folder);
    REQUIRE_MESSAGE(set, set.error().message());
    return set->memory();
  };
  for (const int threads : {1, 4}) {
    CAPTURE(threads);
    const auto at_once = static_cast<std::size_t>(threads) + 1;
    CHECK(memory(TJFLAG_PROGRESSIVE, threads) >= at_once * 3 * kColorsOfAll);
    CHECK(memory(0, threads) < at_once * 2 * kColorsOfAll);
  }
  const Pictures pictures;
  pictures.add("a/1.png", 9, kSide, kSide);
  ImageFolder folder = pictures.folder();
  folder.height = folder.width = 1;
  folder.most_held = 0;
  const Dataset set = *load_image_folder(folder);
  CHECK(set.memory() >= 2 * kColorsOfAll);
  CHECK(set.memory_at_rest() < kColorsOfAll);  // it is taken only while they are read
}

TEST_CASE("a set that is checked in several pieces is that of one piece") {
  const Pictures pictures;
  for (const int value : {1, 2, 3, 4, 5, 6, 7}) {
    pictures.add("a/" + std::to_string(value), static_cast<std::uint8_t>(value), 1, 1);
  }
  ImageFolder folder = pictures.folder();
  folder.height = folder.width = kMaxImageSide;  // 12 MiB each, 2 a piece
  folder.threads = 2;
  const Sha256Digest held = hash_of(*load_image_folder(folder));
  folder.most_held = std::uint64_t{7} * kMaxImageSide * kMaxImageSide * 3 - 1;
  const Dataset set = *load_image_folder(folder);
  CHECK(hash_of(set) == held);
  CHECK(set.memory() >= 2 * set.features);
  Bytes buffer;
  for (std::size_t i = 0; i < 7; ++i) {
    const std::vector<std::uint64_t> next{i, std::min<std::uint64_t>(i + 1, 6)};
    prefetch(set, next);
    const auto image = read_image(set, i, buffer);
    REQUIRE_MESSAGE(image, image.error().message());
    CHECK(image->front() == i + 1);
    CHECK(image->back() == i + 1);
  }
  pictures.put("a/7", {'x'});
  CHECK(sentence_of(load_image_folder(folder)).starts_with(pictures / "a/7" + ": is neither"));
}

TEST_CASE("a picture that changes while it is trained on is refused, and named while it is read") {
  const Pictures pictures;
  pictures.add("a/1.png", 1);
  pictures.add("b/2.png", 2);
  ImageFolder folder = pictures.folder();
  folder.most_held = 0;
  std::vector<std::string> told;
  folder.on_read = [&](std::string_view path) { told.emplace_back(path); };
  const Dataset set = *load_image_folder(folder);
  CHECK(told.empty());
  Bytes buffer;
  pictures.add("b/2.png", 3);
  CHECK(read_image(set, 0, buffer));
  CHECK(sentence_of(read_image(set, 1, buffer)) ==
        pictures / "b/2.png" +
            ": has changed since the worker began; leave it as it is while jobs train");
  CHECK(told == std::vector<std::string>{pictures / "a/1.png", "", pictures / "b/2.png", ""});
  pictures.add("b/2.png", 2, 3, 2);
  CHECK(sentence_of(read_image(set, 1, buffer)).starts_with(pictures / "b/2.png" + ": is 3 x 2, "));
  std::filesystem::remove(pictures / "b/2.png");
  CHECK(sentence_of(read_image(set, 1, buffer)).starts_with(pictures / "b/2.png" + ": "));
}

TEST_CASE("what others have found of pictures stands for decoding them all") {
  const Pictures pictures;
  for (int i = 0; i < 12; ++i) {
    pictures.add((i % 3 == 0 ? "a/" : "b/") + std::to_string(10 + i), static_cast<std::uint8_t>(i));
  }
  ImageFolder folder = pictures.folder();
  const Dataset checked = *load_image_folder(folder);
  folder.is_checked_by_others = true;
  std::vector<std::string> read;
  folder.on_read = [&](std::string_view path) {
    if (!path.empty()) read.emplace_back(path);
  };
  for (const std::uint64_t most_held : {std::uint64_t{0}, kMostHeldBytes}) {
    CAPTURE(most_held);
    folder.most_held = most_held;
    const Dataset told = *load_image_folder(folder);
    CHECK_FALSE(is_checked(told));
    CHECK(told.pictures->outline() == checked.pictures->outline());
    CHECK(told.labels == checked.labels);
    told.pictures->take_check(*checked.pictures->check());
    CHECK(is_checked(told));
    CHECK(hash_of(told) == hash_of(checked));
    read.clear();
    for (int pass = 0; pass < 2; ++pass) {
      for (std::uint64_t i = 0; i < 12; ++i) {
        const std::vector<std::uint64_t> next{(i + 1) % 12};
        prefetch(told, next);
        CHECK(image_of(told, i) == image_of(checked, i));
      }
    }
    CHECK(read.size() == (most_held == 0 ? 24 : 12));   // each once where it is held from then on
    CHECK(told.pictures->most_decoded_at_once() == 0);  // room for each thread is foreseen
  }
  const Dataset alone = *load_image_folder(folder);
  // Nobody is left who could tell.
  const Status refused = alone.pictures->check_all(alone.pictures->held_bytes() + 40);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message().find(" has 40 left; ") != std::string::npos);
  REQUIRE(alone.pictures->check_all(kAnyMemory));
  CHECK(hash_of(alone) == hash_of(checked));
  CHECK(image_of(alone, 7) == image_of(checked, 7));
}

TEST_CASE("who was told of pictures ends alone where one is another here") {
  const Pictures pictures;
  pictures.add("a/1.png", 1);
  pictures.put("b/2.png", {'x'});
  const std::string wrong = pictures / "b/2.png";
  const Bytes right = png_bytes(2, 3, Bytes(18, 2)), other = png_bytes(2, 3, Bytes(18, 3));
  write_bytes(wrong, right);
  ImageFolder folder = pictures.folder();
  const Dataset checked = *load_image_folder(folder);
  folder.is_checked_by_others = true;
  const auto sentence = [&](const Bytes& bytes) {
    write_bytes(wrong, bytes);
    const Dataset told = *load_image_folder(folder);
    told.pictures->take_check(*checked.pictures->check());
    Bytes buffer;
    CHECK(image_of(told, 0) == Bytes(18, 1));
    const auto image = read_image(told, 1, buffer);
    REQUIRE_FALSE(image);
    CHECK(image.error().exit_code() == contract::exit_code::kDisk);
    return image.error().message();
  };
  CHECK(sentence(other) == wrong +
                               ": is not the picture that the job's other workers have read; "
                               "all must have the same files, and nobody may change them");
  CHECK(sentence({'x'}).starts_with(wrong + ": is neither a PNG nor a JPEG file"));
}

TEST_CASE("pictures have another outline by name, size of a file, class, or what is made of them") {
  const auto outline = [](const std::vector<std::string>& names, const ImageFolder& like = {}) {
    const Pictures pictures;
    for (const std::string& name : names) pictures.add(name, 1);
    ImageFolder folder = like;
    folder.directory = pictures.folder().directory;
    return load_image_folder(folder)->pictures->outline();
  };
  const Sha256Digest one = outline({"a/1", "b/2"});
  CHECK(one == outline({"a/1", "b/2"}));
  CHECK(one != outline({"a/1", "b/3"}));
  CHECK(one != outline({"a/1", "c/2"}));
  CHECK(one != outline({"a/1", "a/2"}));
  CHECK(one != outline({"a/1", "b/2"}, {.is_gray = true}));
  CHECK(one != outline({"a/1", "b/2"}, {.height = 4, .width = 4}));
  const Pictures longer;
  longer.add("a/1", 1);
  Bytes bytes = png_bytes(2, 3, Bytes(18, 1));
  bytes.push_back(0);
  longer.put("b/2", bytes);
  CHECK(one != load_image_folder(longer.folder())->pictures->outline());
}

TEST_CASE("a picture that the system fails to read is not wrong data") {
  const Pictures pictures;
  pictures.add("a/1.png", 1);
  ImageFolder folder = pictures.folder();
  folder.most_held = 0;
  const Dataset set = *load_image_folder(folder);
  Bytes buffer;
  const NoDescriptors none;
  const auto failed = read_image(set, 0, buffer);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message() == pictures / "a/1.png" + ": cannot open: Too many open files");
  CHECK(failed.error().exit_code() == contract::exit_code::kDisk);
  const auto listed = load_image_folder(folder);
  REQUIRE_FALSE(listed);
  CHECK(listed.error().exit_code() == contract::exit_code::kDisk);
}

TEST_CASE("a test set has the classes of its training set by name, and its sizes") {
  const Pictures train, test;
  train.add("a/1.png", 1);
  train.add("b/1.png", 2);
  test.add("b/1.png", 3);
  const Dataset set = *load_image_folder(train.folder());
  const auto fitting = load_test_image_folder(test.folder(), set);
  REQUIRE_MESSAGE(fitting, fitting.error().message());
  CHECK(fitting->labels == Bytes{1});
  CHECK(fitting->classes == 2);
  ImageFolder gray = test.folder();
  gray.is_gray = true;
  CHECK(
      sentence_of(load_test_image_folder(gray, set)) ==
      gray.directory +
          ": its pictures are 2 x 3 x 1, those of the training set 2 x 3 x 3; they must be equal");
  test.add("c/1.png", 3);
  CHECK(sentence_of(load_test_image_folder(test.folder(), set)) ==
        test / "c" + ": is no class of the training set");
}
