#include "worker/data/tokens.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>

#include "common/contract.h"
#include "common/file.h"
#include "tests/descriptor_of.h"
#include "tests/unit/data/sentence.h"
#include "tests/unit/data/shard_bytes.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/data/prefetch.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

using Tokens = std::vector<std::uint32_t>;

Tokens counted(std::size_t count, std::uint32_t from = 0) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

/// Input and labels of a sample, one behind the other.
std::vector<std::int32_t> sample_of(const Dataset& set, std::size_t index) {
  std::vector<std::int32_t> both(2 * set.features);
  const auto tokens = std::span(both).first(set.features);
  const Status read = read_sample(set, index, tokens, std::span(both).last(set.features));
  REQUIRE_MESSAGE(read, read.error().message());
  return both;
}

/// Which bytes of a file the system holds in memory. To ask reads nothing.
class Resident {
 public:
  explicit Resident(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), bytes_(std::filesystem::file_size(path)) {
    map_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd_.get(), 0);
    REQUIRE(map_ != MAP_FAILED);
  }
  ~Resident() { ::munmap(map_, bytes_); }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;
  /// Has what is there written and given up, where the file system can.
  void evict() const {
    REQUIRE(::fsync(fd_.get()) == 0);
    REQUIRE(::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED) == 0);
  }
  bool has(std::size_t first, std::size_t last) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages((bytes_ + page - 1) / page);
    REQUIRE(::mincore(map_, bytes_, pages.data()) == 0);
    return std::all_of(pages.begin() + static_cast<std::ptrdiff_t>(first / page),
                       pages.begin() + static_cast<std::ptrdiff_t>((last + page - 1) / page),
                       [](unsigned char one) { return (one & 1) != 0; });
  }

 private:
  UniqueFd fd_;
  std::size_t bytes_;
  void* map_;
};

std::string header_refused(const Bytes& file) {
  const auto head = std::span(file).first(std::min(file.size(), token_shard::kHeaderBytes));
  return sentence_of(parse_shard_header(head, file.size(), "x"));
}

}  // namespace

TEST_CASE("each read of a shard is told with its path before, and when it is over") {
  const TempDirectory directory;
  write_bytes(directory / "a", shard_bytes(counted(20)));
  write_bytes(directory / "b", shard_bytes(counted(20)));
  std::string told;
  TokenSource source{{directory / "a", directory / "b"}, 50'257, 8};
  source.on_read = [&](std::string_view path) {
    told += path.empty() ? ">" : "<" + std::string(path.substr(path.size() - 1));
  };
  const auto set = load_tokens(source);
  REQUIRE(set.has_value());
  CHECK(told.empty());
  sample_of(*set, 2);
  CHECK(told == "<a><b><b>");
}

TEST_CASE("each token is the label of those before it, in whatever files they stand") {
  const TempDirectory directory;
  // 14 tokens of which the last makes no whole sample.
  write_bytes(directory / "all", shard_bytes(counted(14, 50'000)));
  write_bytes(directory / "a", shard_bytes(counted(5, 50'000)));
  write_bytes(directory / "b", shard_bytes(counted(1, 50'005), 4));
  write_bytes(directory / "c", shard_bytes(counted(8, 50'006)));
  const Dataset one = *load_tokens({{directory / "all"}, 50'257, 4});
  const Dataset three =
      *load_tokens({{directory / "a", directory / "b", directory / "c"}, 50'257, 4});
  CHECK_FALSE(one.is_text());
  for (const Dataset* set : {&one, &three}) {
    REQUIRE(set->count == 3);
    CHECK(set->features == 4);
    CHECK(set->targets == 4);
    CHECK(set->classes == 50'257);
    CHECK(sample_of(*set, 0) ==
          std::vector<std::int32_t>{50000, 50001, 50002, 50003, 50001, 50002, 50003, 50004});
    CHECK(sample_of(*set, 1) ==
          std::vector<std::int32_t>{50004, 50005, 50006, 50007, 50005, 50006, 50007, 50008});
    CHECK(sample_of(*set, 2) ==
          std::vector<std::int32_t>{50008, 50009, 50010, 50011, 50009, 50010, 50011, 50012});
  }
  CHECK(hash_of(one) == hash_of(three));
}

TEST_CASE("the hash of tokens is that of all of them with four bytes each") {
  const TempDirectory directory;
  // More than are read at once.
  const Tokens tokens = counted(40'000, 3);
  write_bytes(directory / "x", shard_bytes(tokens));
  Bytes wide;
  append_integers(wide, tokens, 4);
  const Dataset set = *load_tokens({{directory / "x"}, 50'000, 16});
  CHECK(to_hex(hash_of(set)) == to_hex(sha256(std::as_bytes(std::span(wide)))));
}

TEST_CASE("tokens of four bytes may be above those that two bytes hold") {
  const TempDirectory directory;
  write_bytes(directory / "x", shard_bytes({128'000, 1, 70'000}, 4));
  const Dataset set = *load_tokens({{directory / "x"}, 128'256, 1});
  CHECK(sample_of(set, 1) == std::vector<std::int32_t>{1, 70'000});
}

TEST_CASE("what is no shard is refused with what would be one") {
  const Bytes good = shard_bytes(counted(10));
  CHECK(parse_shard_header(std::span(good).first(1024), good.size(), "x")->tokens == 10);
  CHECK(header_refused({}) == "x: is empty; must be a shard of tokens");
  CHECK(header_refused({'t', 'e', 'x', 't', '\n'}) ==
        "x: starts with the number 1954047348; a shard of tokens starts with 20240520 (tokens of 2 "
        "bytes) or 20240801 (of 4 bytes)");
  CHECK(header_refused({1, 2, 3}) ==
        "x: is cut within its header of 1024 bytes; copy the file again");
  CHECK(header_refused(Bytes(good.begin(), good.begin() + 1023)) ==
        "x: is cut within its header of 1024 bytes; copy the file again");
  Bytes other = good;
  other[4] = 2;
  CHECK(header_refused(other) ==
        "x: its header says version 2; shards that start with 20240520 must have version 1");
  CHECK(header_refused(Bytes(good.begin(), good.end() - 1)) ==
        "x: its header says 10 tokens of 2 bytes = 20 bytes, but 19 follow");
  other = good;
  other.push_back(0);
  CHECK(header_refused(other) ==
        "x: its header says 10 tokens of 2 bytes = 20 bytes, but 21 follow");
  other = good;
  other[8] = 0;
  CHECK(header_refused(other) == "x: its header says 0 tokens; must be from 1 to 2147483647");
  other[11] = 0x80;
  CHECK(header_refused(other).starts_with("x: its header says 2147483648 tokens; must be from 1"));
}

TEST_CASE("a token out of the vocabulary is refused with its file and place, before training") {
  const TempDirectory directory;
  Tokens tokens = counted(40'000);
  tokens[35'001] = 50'257;
  write_bytes(directory / "good", shard_bytes(counted(10)));
  write_bytes(directory / "x", shard_bytes(tokens));
  const TokenSource source{{directory / "good", directory / "x"}, 50'257, 8};
  CHECK(sentence_of(load_tokens(source)) ==
        directory / "x" +
            ": token 35001 is 50257; must be below spec.training.model.gpt.vocabularySize (50257)");
  tokens[35'001] = 50'256;
  write_bytes(directory / "x", shard_bytes(tokens));
  CHECK(load_tokens(source)->count == 5001);
}

TEST_CASE("of several tokens out of the vocabulary the first is told, also one that is no int") {
  for (const int width : {2, 4}) {
    CAPTURE(width);
    Tokens tokens = counted(50);
    tokens[17] = width == 2 ? 60'000 : 0xfffffffe;
    tokens[18] = 65'535;
    Bytes bytes;
    append_integers(bytes, tokens, width);
    std::vector<std::int32_t> out(tokens.size());
    const TokenRule rule{static_cast<std::size_t>(width), 50, 1000};
    const Status decoded = decode_tokens(bytes, rule, "x", out);
    REQUIRE_FALSE(decoded);
    CHECK(decoded.error().message() ==
          "x: token 1017 is " + std::to_string(tokens[17]) +
              "; must be below spec.training.model.gpt.vocabularySize (50)");
    tokens[17] = tokens[18] = 49;
    bytes.clear();
    append_integers(bytes, tokens, width);
    REQUIRE(decode_tokens(bytes, rule, "x", out));
    CHECK(out == std::vector<std::int32_t>(tokens.begin(), tokens.end()));
  }
}

TEST_CASE(
    "too few tokens for a sample, and shards that cannot be read, are refused by their path") {
  const TempDirectory directory;
  write_bytes(directory / "x", shard_bytes(counted(4)));
  CHECK(sentence_of(load_tokens({{directory / "x"}, 256, 4})) ==
        directory / "x" + ": has 4 tokens; shards for a context of 4 must have at least 5");
  CHECK(load_tokens({{directory / "x", directory / "x"}, 256, 4})->count == 1);
  CHECK(sentence_of(load_tokens({{directory / "x", directory / "y"}, 256, 4}))
            .starts_with(directory / "y: "));
  std::filesystem::create_directory(directory / "folder");
  CHECK(sentence_of(load_tokens({{directory / "folder"}, 256, 4})) ==
        directory / "folder: is not a regular file");
}

TEST_CASE("the samples of a later step are read from the disk meanwhile, and no others") {
  const TempDirectory directory;
  constexpr std::size_t kContext = 4096, kSamples = 512;
  const std::string path = directory / "x";
  write_bytes(path, shard_bytes(Tokens(kSamples * kContext + 1, 7)));
  const Dataset set = *load_tokens({{path}, 256, kContext});
  REQUIRE(set.count == kSamples);
  const Resident resident(path);
  resident.evict();
  const auto is_there = [&](std::uint64_t index) {
    const std::size_t first = token_shard::kHeaderBytes + index * kContext * 2;
    return resident.has(first, first + kContext * 2 + 2);
  };
  const Loader loader({1, kSamples, 4, 16});
  std::vector<std::uint64_t> wanted(8), before(4), behind(4);
  loader.samples(3, {1, 3}, wanted);
  loader.samples(3, {0, 1}, before);
  loader.samples(3, {3, 4}, behind);
  if (std::any_of(wanted.begin(), wanted.end(), is_there)) {
    MESSAGE("skipped: the file system of " << directory.path() << " keeps all in memory");
    return;
  }
  prefetch(set, loader, 3, {0, 4}, {4, 8});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!std::all_of(wanted.begin(), wanted.end(), is_there)) {
    REQUIRE(std::chrono::steady_clock::now() < deadline);
    std::this_thread::yield();
  }
  for (const auto& others : {before, behind}) {
    CHECK_FALSE(std::all_of(others.begin(), others.end(), is_there));
  }
}

namespace {

/// Until what is written has another time than what was written before.
void await_tick(const std::string& unused) {
  write_bytes(unused, {0});
  const auto before = std::filesystem::last_write_time(unused);
  while (std::filesystem::last_write_time(unused) == before) write_bytes(unused, {0});
}

}  // namespace

TEST_CASE("a shard that is written over while a job trains ends it, whatever its length") {
  const TempDirectory directory;
  const std::string path = directory / "x";
  write_bytes(path, shard_bytes(counted(100)));
  const Dataset set = *load_tokens({{path}, 256, 10});
  await_tick(directory / "unused");
  std::vector<std::int32_t> tokens(10), labels(10);
  REQUIRE(read_sample(set, 3, tokens, labels));
  // Names and rights are not what is in it.
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  std::filesystem::rename(path, path + "-renamed");
  REQUIRE(read_sample(set, 3, tokens, labels));
  std::filesystem::permissions(path + "-renamed", std::filesystem::perms::owner_all);
  std::filesystem::rename(path + "-renamed", path);
  write_bytes(path, shard_bytes(counted(100, 100)));
  CHECK(sentence_of(read_sample(set, 3, tokens, labels)) ==
        path + ": has changed since it was opened; leave it as it is while jobs train");
  CHECK(load_tokens({{path}, 256, 10}));
}

TEST_CASE("a shard that the system fails to read is not wrong data") {
  const TempDirectory directory;
  const std::string path = directory / "x";
  write_bytes(path, shard_bytes(counted(100)));
  const Dataset set = *load_tokens({{path}, 256, 10});
  std::vector<std::int32_t> tokens(10), labels(10);
  // Its descriptor leads to what answers each read at that place with an I/O error.
  const UniqueFd broken(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  REQUIRE(::dup2(broken.get(), test::descriptor_of(path)) >= 0);
  const Status failed = read_sample(set, 3, tokens, labels);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message() == path + ": cannot read: Input/output error");
  CHECK(failed.error().exit_code() == contract::exit_code::kDisk);
  CHECK(sentence_of(load_tokens({{directory / "none"}, 256, 10})).find("No such file") !=
        std::string::npos);
}

TEST_CASE("a shard that becomes shorter while a job trains ends it with a sentence") {
  const TempDirectory directory;
  const std::string path = directory / "x";
  write_bytes(path, shard_bytes(counted(100)));
  const Dataset set = *load_tokens({{path}, 256, 10});
  std::vector<std::int32_t> tokens(10), labels(10);
  std::filesystem::resize_file(path, 1024 + 2 * 50);
  CHECK(sentence_of(read_sample(set, 3, tokens, labels)).starts_with(path + ": has changed since"));
  CHECK(sentence_of(read_sample(set, 5, tokens, labels)) ==
        path + ": has become shorter since it was opened; leave it as it is while jobs train");
}
