#include "cli/tar_reader.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

namespace muster::cli {
namespace {

class Kept final : public TarSink {
 public:
  Status begin_file(const std::string& name, std::int64_t bytes) override {
    files.emplace_back(name, "");
    expected = bytes;
    return {};
  }
  Status data(std::string_view piece) override {
    files.back().second += piece;
    return {};
  }
  Status end_file() override {
    CHECK(static_cast<std::int64_t>(files.back().second.size()) == expected);
    return {};
  }
  std::vector<std::pair<std::string, std::string>> files;
  std::int64_t expected = 0;
};

struct Entry {
  std::string name = {}, content = {};
  char type = '0';
  std::string prefix = {};
  std::string size = {};  ///< the field's bytes; empty: of the content
};

std::string header_of(const Entry& entry) {
  std::string block(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    block.replace(at, text.size(), text);
  };
  put(0, entry.name);
  char size[32];
  std::snprintf(size, sizeof size, "%011zo", entry.content.size());
  put(124, entry.size.empty() ? std::string(size) : entry.size);
  put(148, "        ");
  block[156] = entry.type;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(345, entry.prefix);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char text[16];
  std::snprintf(text, sizeof text, "%06o", sum);
  put(148, text);
  block[154] = '\0';
  return block;
}

std::string archive_of(const std::vector<Entry>& entries) {
  std::string out;
  for (const Entry& entry : entries) {
    out += header_of(entry) + entry.content;
    out.append((512 - entry.content.size() % 512) % 512, '\0');
  }
  return out + std::string(1024, '\0');
}

Status read_all(const std::string& bytes, Kept& kept, std::int64_t most = 1 << 20) {
  TarReader reader(kept, most);
  MUSTER_RETURN_IF_ERROR(reader.feed(bytes));
  return reader.finish();
}

TEST_CASE("a size of 8 GiB and more comes in base 256") {
  const auto begun = [](const std::string& low, Kept& kept) {
    const Entry entry{.name = "model", .size = std::string("\x80\0\0\0", 4) + low};
    return TarReader(kept, std::int64_t{1} << 42).feed(header_of(entry));
  };
  Kept kept;
  REQUIRE(begun(std::string("\0\0\0\x02\0\0\0\xff", 8), kept));
  CHECK(kept.expected == (std::int64_t{1} << 33) + 255);
  for (const std::string& wrong : {std::string("\x80\0\0\0\0\0\0\0", 8), std::string(8, '\xff'),
                                   std::string("\x01\0\0\0\0\0\0\0", 8)}) {
    CHECK_FALSE(begun(wrong, kept));
  }
  CHECK(kept.files.size() == 1);
}

TEST_CASE("files come out as they went in, wherever the stream is cut") {
  const std::vector<Entry> entries{{"a", ""},
                                   {"b", std::string(512, 'b'), '\0'},
                                   {"c/d", std::string(1300, 'c')},
                                   {"last", "x", '0', "some/where"}};
  const std::string bytes = archive_of(entries);
  Rng rng(test::seed());
  for (int round = 0; round < 100; ++round) {
    Kept kept;
    TarReader reader(kept, 1 << 20);
    for (std::size_t at = 0; at < bytes.size();) {
      const auto piece = std::string_view(bytes).substr(at, 1 + rng() % 700);
      REQUIRE(reader.feed(piece));
      at += piece.size();
    }
    REQUIRE(reader.finish());
    REQUIRE(kept.files.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) CHECK(kept.files[i].second == entries[i].content);
    CHECK(kept.files[3].first == "some/where/last");
  }
}

TEST_CASE("names that could leave the directory are refused before anything is written") {
  for (const char* name :
       {"/etc/passwd", "..", "../x", "a/../b", "a/..", "./a", "a//b", "a/", "", "a\nb", "a\\b"}) {
    Kept kept;
    const Status status = read_all(archive_of({{name, "x"}}), kept);
    CHECK_MESSAGE(!status, name);
    CHECK(kept.files.empty());
  }
  Kept kept;
  CHECK_FALSE(read_all(archive_of({{"x", "x", '0', ".."}}), kept));
}

TEST_CASE("links, devices, directories and extensions are refused") {
  for (const char type : std::string("123456gxLKS")) {
    Kept kept;
    CHECK_FALSE(read_all(archive_of({{"x", "", type}}), kept));
    CHECK(kept.files.empty());
  }
}

TEST_CASE("a damaged or cut archive is never taken for a whole one") {
  const std::string whole = archive_of({{"a", "hello"}, {"b", std::string(600, 'b')}});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    Kept kept;
    CHECK_FALSE(read_all(whole.substr(0, length), kept));
  }
  for (std::size_t at = 0; at < 512; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    Kept kept;
    CHECK_FALSE(read_all(damaged, kept));
  }
  Kept kept;
  CHECK_FALSE(read_all(whole + std::string(512, 'x'), kept));
}

TEST_CASE("more than agreed is refused: bytes, and the same name twice") {
  Kept kept;
  const Status large = read_all(archive_of({{"a", std::string(600, 'a')}, {"b", "x"}}), kept, 600);
  REQUIRE_FALSE(large);
  CHECK(large.error().code() == ErrorCode::kTooLarge);
  CHECK_FALSE(read_all(archive_of({{"a", "1"}, {"a", "2"}}), kept));
}

}  // namespace
}  // namespace muster::cli
