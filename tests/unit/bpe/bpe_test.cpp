// A text becomes the tokens that Hugging Face's tokenizers make of it, and comes back.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "common/bpe/pieces.h"
#include "common/bpe/unicode_classes.h"
#include "common/bpe/vocabulary.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"
#include "common/rng.h"
#include "common/sha256.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::bpe;

namespace {

using Tokens = std::vector<std::int32_t>;

constexpr const char* kDirectory = "tests/unit/bpe/vocabulary";

const Vocabulary& vocabulary() {
  static const Vocabulary kVocabulary = *Vocabulary::load(kDirectory);
  return kVocabulary;
}

Tokens encoded(std::string_view text) {
  Tokens tokens;
  vocabulary().encode(text, tokens);
  return tokens;
}

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    pieces.emplace_back(text.substr(0, first_piece(text)));
    text.remove_prefix(pieces.back().size());
  }
  return pieces;
}

/// Byte-pair encoding as it is defined: look for the pair of least rank, join it everywhere from
/// left to right, begin again.
Tokens joined_one_by_one(std::string_view piece,
                         const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> parts;
  for (const char byte : piece) parts.emplace_back(1, byte);
  for (;;) {
    std::size_t least = merges.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
      least = std::min(least, static_cast<std::size_t>(found - merges.begin()));
    }
    if (least == merges.size()) break;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (parts[i] != merges[least].first || parts[i + 1] != merges[least].second) continue;
      parts[i] += parts[i + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  Tokens tokens;
  for (const std::string& part : parts) tokens.push_back(*vocabulary().find(part));
  return tokens;
}

/// What the tests' own files are made of, to be broken in one place.
struct Files {
  std::string tokens, merges;
};

/// All single bytes, "ab" and "abc".
Files small_files() {
  Files files{"{", "#version: 0.2\na b\nab c\n"};
  int next = 0;
  std::uint32_t character = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_plain =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    const std::uint32_t code = is_plain ? byte : character++;
    char spelt[16];
    std::snprintf(spelt, sizeof spelt, "\"\\u%04x\"", static_cast<unsigned>(code));
    files.tokens += std::string(spelt) + ":" + std::to_string(next++) + ",";
  }
  files.tokens += "\"ab\":256,\"abc\":257}";
  return files;
}

std::string refused(const Files& files) {
  const auto parsed = Vocabulary::parse({files.tokens, files.merges});
  REQUIRE_FALSE(parsed.has_value());
  CHECK(parsed.error().code() == ErrorCode::kInvalid);
  return parsed.error().message();
}

std::string with(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("texts have the tokens that Hugging Face's tokenizers give them") {
  const auto golden = parse_json(*read_file("tests/unit/bpe/golden.json", 1 << 20));
  REQUIRE_MESSAGE(golden, golden.error().message());
  REQUIRE(golden->size() > 200);
  for (const Json& one : *golden) {
    const auto text = one["text"].get<std::string>();
    CAPTURE(text);
    const auto tokens = one["tokens"].get<Tokens>();
    CHECK(encoded(text) == tokens);
    CHECK(vocabulary().decode(tokens) == text);
  }
}

TEST_CASE("joining the least pair first is what the definition says, whatever the letters") {
  std::vector<std::pair<std::string, std::string>> merges;
  std::ifstream file(std::string(kDirectory) + "/merges.txt");
  std::string line;
  std::getline(file, line);
  // Letters of English alone are spelt as they are.
  while (std::getline(file, line)) {
    const std::size_t space = line.find(' ');
    if (line.find_first_not_of("abcdefghijklmnopqrstuvwxyz ") == line.npos) {
      merges.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
  }
  REQUIRE(merges.size() > 100);
  Rng rng(test::seed());
  for (int round = 0; round < 200; ++round) {
    std::string word;
    for (std::uint64_t i = rng.below(60) + 1; i > 0; --i) word += "etaoinshrdluthe"[rng.below(15)];
    CAPTURE(word);
    CHECK(encoded(word) == joined_one_by_one(word, merges));
  }
}

TEST_CASE("any bytes come back from their tokens, text or not") {
  Rng rng(test::seed());
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    const std::uint64_t kinds = rng.below(2) == 0 ? 256 : 12;
    for (std::uint64_t i = rng.below(50); i > 0; --i) {
      const auto drawn = rng.below(kinds);
      bytes += kinds == 256 ? static_cast<char>(drawn) : "a '\xc3\xa9\xe2\x80\xff\n1.s"[drawn];
    }
    const Tokens tokens = encoded(bytes);
    REQUIRE(vocabulary().decode(tokens) == bytes);
  }
}

TEST_CASE("bytes that are no UTF-8 are cut as characters that are neither letter nor number") {
  using Pieces = std::vector<std::string>;
  CHECK(pieces_of("a\xff\xfe"
                  "b") == Pieces{"a", "\xff\xfe", "b"});
  CHECK(pieces_of(" \xc3 \xa9") == Pieces{" \xc3", " \xa9"});
  CHECK(pieces_of("\xed\xa0\x80!") == Pieces{"\xed\xa0\x80!"});  // half of a surrogate pair
  CHECK(pieces_of("a\xe2\x80") == Pieces{"a", "\xe2\x80"});      // cut within a character
}

TEST_CASE("white space goes with what follows but for its last character") {
  using Pieces = std::vector<std::string>;
  CHECK(pieces_of("a  b") == Pieces{"a", " ", " b"});
  CHECK(pieces_of("a\n\nb") == Pieces{"a", "\n", "\n", "b"});
  CHECK(pieces_of("a \t ") == Pieces{"a", " \t "});
  CHECK(pieces_of("\u00a0\u00a0x") == Pieces{"\u00a0", "\u00a0", "x"});
  CHECK(pieces_of("we'll 're") == Pieces{"we", "'ll", " '", "re"});
}

TEST_CASE("a megabyte without a border is encoded, and a piece above the bound is cut") {
  Rng rng(test::seed());
  std::string letters;
  for (int i = 0; i < 1 << 20; ++i) letters += static_cast<char>('a' + rng.below(26));
  REQUIRE(first_piece(letters) == letters.size());
  CHECK(vocabulary().decode(encoded(letters)) == letters);
  const std::string spaces((std::size_t{1} << 20) + 5, ' ');
  const Tokens tokens = encoded(spaces);
  CHECK(vocabulary().decode(tokens) == spaces);
}

TEST_CASE("what is spelt like a special token is text, and the token is found by its bytes") {
  const auto border = vocabulary().find(kEndOfText);
  REQUIRE(border.has_value());
  const Tokens tokens = encoded("<|endoftext|>");
  CHECK(tokens.size() > 1);
  CHECK(std::find(tokens.begin(), tokens.end(), *border) == tokens.end());
  CHECK(vocabulary().decode(std::vector{*border}) == kEndOfText);
  CHECK_FALSE(vocabulary().find("no such token").has_value());
}

TEST_CASE("classes of characters are those of Unicode 14") {
  std::string classes;
  std::map<CharacterClass, int> count;
  for (char32_t code = 0; code < 0x110000; ++code) {
    classes += static_cast<char>('0' + static_cast<int>(class_of(code)));
    ++count[class_of(code)];
  }
  // As Python's unicodedata has them.
  CHECK(count[CharacterClass::kLetter] == 131756);
  CHECK(count[CharacterClass::kNumber] == 1791);
  CHECK(count[CharacterClass::kSpace] == 25);
  CHECK(to_hex(sha256(classes)) ==
        "f972bc93432239ff54bd80f38e6d7ec68fbc3b5121e0187ba50991c40653129a");
  CHECK(class_of(0x110000) == CharacterClass::kOther);
  CHECK(class_of(0xFFFFFFFF) == CharacterClass::kOther);
}

TEST_CASE("a small vocabulary is read, with or without a version and line ends of Windows") {
  const Files files = small_files();
  for (const std::string& merges :
       {files.merges, std::string("a b\nab c"), std::string("#version: 0.2\r\na b\r\nab c\r\n")}) {
    const auto parsed = Vocabulary::parse({files.tokens, merges});
    REQUIRE_MESSAGE(parsed, parsed.error().message());
    CHECK(parsed->size() == 258);
    Tokens tokens;
    parsed->encode("abcab", tokens);
    CHECK(tokens == Tokens{257, 256});
  }
}

TEST_CASE("files that are no vocabulary are refused with what would be one") {
  const Files good = small_files();
  const auto tokens = [&](const std::string& text) { return refused({text, good.merges}); };
  const auto merges = [&](const std::string& text) { return refused({good.tokens, text}); };
  CHECK(tokens("").starts_with("vocab.json: "));
  CHECK(tokens("[]") == "vocab.json: must be an object of 1 to 1048576 tokens and their numbers");
  CHECK(tokens(with(good.tokens, "\"abc\":257", "\"abc\":258")) ==
        "vocab.json: the number of \"abc\" is 258; numbers must be from 0 to 257, each once");
  CHECK(tokens(with(good.tokens, "\"abc\":257", "\"abc\":256"))
            .find("numbers must be from 0 to 257, each once") != std::string::npos);
  CHECK(tokens(with(good.tokens, "\"abc\":257", "\"abc\":\"257\""))
            .starts_with("vocab.json: the number of \"abc\" is \"257\""));
  CHECK(
      tokens(with(good.tokens, "\"abc\":257", "\"a c\":257")) ==
      "vocab.json: \"a c\" is no token of byte-level BPE, where every byte is spelt as one of 256 "
      "characters");
  CHECK(tokens(with(good.tokens, "\\u0041", "AA")) ==
        "vocab.json: has no token for the single byte 65; all 256 must be there");
  CHECK(merges("a b c\n") == "merges.txt: line 1: must be two tokens with a space between them");
  CHECK(merges("ab\n") == "merges.txt: line 1: must be two tokens with a space between them");
  CHECK(merges("a b\na bc\n") == "merges.txt: line 2: \"bc\" is no token of vocab.json");
  CHECK(merges("a b\nb c\n") == "merges.txt: line 2: \"b c\" make together no token of vocab.json");
  CHECK(merges("a b\na b\n") == "merges.txt: line 2: \"a b\" stands there twice");
  const auto missing = Vocabulary::load("tests/unit/bpe");
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().exit_code() == contract::exit_code::kData);
  CHECK(missing.error().message().starts_with("tests/unit/bpe/vocab.json: "));
  // Who reads knows better what a file that cannot be read means.
  const auto failed = Vocabulary::load("x", [](const std::string& path, std::size_t) {
    return Result<std::string>(
        Error(ErrorCode::kIo, path + ": fails").with_exit_code(contract::exit_code::kDisk));
  });
  REQUIRE_FALSE(failed.has_value());
  CHECK(failed.error().message() == "x/vocab.json: fails");
  CHECK(failed.error().exit_code() == contract::exit_code::kDisk);
}
