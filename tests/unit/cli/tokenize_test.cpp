#include "cli/tokenize_command.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "common/contract.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

const bpe::Vocabulary& small_vocabulary() {
  static const bpe::Vocabulary kVocabulary = *bpe::Vocabulary::load("tests/unit/bpe/vocabulary");
  return kVocabulary;
}

TEST_CASE("texts stand one behind the other, each behind what parts them") {
  const bpe::Vocabulary& vocabulary = small_vocabulary();
  std::vector<std::int32_t> tokens;
  add_text(vocabulary, "To be", tokens);
  add_text(vocabulary, "", tokens);
  add_text(vocabulary, "or not", tokens);
  CHECK(vocabulary.decode(tokens) == "<|endoftext|>To be<|endoftext|><|endoftext|>or not");
  CHECK(tokens.front() == *vocabulary.find(bpe::kEndOfText));
}

TEST_CASE("a shard has tokens of two bytes, or of four where the vocabulary needs them") {
  const std::vector<std::int32_t> tokens{1, 258, 65'535};
  const auto narrow = make_shard(tokens, 65'536);
  REQUIRE(narrow.has_value());
  REQUIRE(narrow->size() == 1024 + 6);
  CHECK(narrow->substr(0, 12) == std::string("\x88\xd8\x34\x01\1\0\0\0\3\0\0\0", 12));
  CHECK(narrow->substr(12, 1012) == std::string(1012, '\0'));
  CHECK(narrow->substr(1024) == std::string("\1\0\2\1\xff\xff", 6));
  const auto wide = make_shard(tokens, 65'537);
  REQUIRE(wide.has_value());
  CHECK(wide->substr(0, 12) == std::string("\xa1\xd9\x34\x01\7\0\0\0\3\0\0\0", 12));
  CHECK(wide->substr(1024) == std::string("\1\0\0\0\2\1\0\0\xff\xff\0\0", 12));
}

TEST_CASE("a shard takes the place of none of its texts, by whatever name") {
  const test::TemporaryDirectory directory;
  const std::string book = directory.path + "/book.txt", link = directory.path + "/link.txt";
  const std::string shard = directory.path + "/train.bin";
  std::ofstream(book) << "To be";
  std::filesystem::create_symlink(book, link);
  const auto tokenized = [](std::vector<std::string> texts, const std::string& output) {
    return tokenize_command({std::move(texts), "tests/unit/bpe/vocabulary", output});
  };
  CHECK(tokenized({book}, book) == contract::exit_code::kUsage);
  CHECK(tokenized({directory.path + "/absent", link}, book) == contract::exit_code::kUsage);
  CHECK(test::content_of(book) == "To be");
  CHECK(tokenized({book}, shard) == contract::exit_code::kComplete);
  const std::string made = test::content_of(shard);
  // As when all that lies there is named.
  CHECK(tokenized({book, shard}, shard) == contract::exit_code::kUsage);
  CHECK(test::content_of(shard) == made);
  CHECK(tokenized({book}, shard) == contract::exit_code::kComplete);
}

TEST_CASE("a shard of nothing is refused") {
  const auto none = make_shard({}, 256);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().exit_code() == contract::exit_code::kData);
}

}  // namespace
}  // namespace muster::cli
