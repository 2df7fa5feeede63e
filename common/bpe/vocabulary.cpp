#include "common/bpe/vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "common/bpe/pieces.h"
#include "common/check.h"
#include "common/contract.h"
#include "common/json.h"
#include "common/model_files.h"
#include "common/utf8.h"

namespace muster::bpe {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
/// Longer pieces are cut: what encoding one takes of memory is about 60 times its bytes.
constexpr std::size_t kMaxPieceBytes = std::size_t{1} << 20;

/// Bytes that stand for themselves in the files; the others stand there as the characters from
/// U+0100 on, in ascending order.
constexpr bool is_plain(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr unsigned kCharacters = 256 + 68;

/// By code point the byte that it stands for, or -1.
constexpr std::array<int, kCharacters> bytes_by_character() {
  std::array<int, kCharacters> bytes{};
  bytes.fill(-1);
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes[is_plain(byte) ? byte : next++] = static_cast<int>(byte);
  }
  return bytes;
}
constexpr auto kByteOfCharacter = bytes_by_character();

/// The bytes that a token's spelling in the files stands for; nothing when it is none.
std::optional<std::string> bytes_spelt(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const std::size_t length = utf8_length(spelling);
    if (length == 0) return std::nullopt;
    const char32_t code = utf8_code_point(spelling.substr(0, length));
    if (code >= kCharacters || kByteOfCharacter[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[code]);
    spelling.remove_prefix(length);
  }
  return bytes;
}

Error bad_file(std::string_view file, const std::string& message) {
  return Error(ErrorCode::kInvalid, std::string(file) + ": " + message);
}

std::string in_quotes(std::string_view spelling) {
  return "\"" + std::string(spelling.substr(0, 64)) + "\"";
}

}  // namespace

std::uint64_t Vocabulary::key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

Status Vocabulary::read_tokens(std::string_view text) {
  const auto json = parse_json(text);
  if (!json) return bad_file(contract::kVocabularyFile, json.error().message());
  if (!json->is_object() || json->empty() || json->size() > kMaxTokens) {
    return bad_file(
        contract::kVocabularyFile,
        "must be an object of 1 to " + std::to_string(kMaxTokens) + " tokens and their numbers");
  }
  bytes_.resize(json->size());
  std::vector<bool> is_taken(json->size());
  for (const auto& [spelling, number] : json->items()) {
    const auto bytes = bytes_spelt(spelling);
    if (!bytes || bytes->empty()) {
      return bad_file(contract::kVocabularyFile,
                      in_quotes(spelling) +
                          " is no token of byte-level BPE, where every byte is "
                          "spelt as one of 256 characters");
    }
    const auto id = number.is_number_unsigned() ? number.get<std::uint64_t>() : UINT64_MAX;
    if (id >= bytes_.size() || is_taken[id]) {
      return bad_file(contract::kVocabularyFile,
                      "the number of " + in_quotes(spelling) + " is " +
                          dump_json(number).substr(0, 32) + "; numbers must be from 0 to " +
                          std::to_string(bytes_.size() - 1) + ", each once");
    }
    is_taken[id] = true;
    bytes_[id] = *bytes;
    tokens_.emplace(*bytes, static_cast<std::int32_t>(id));
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = find(std::string(1, static_cast<char>(byte)));
    if (!found) {
      return bad_file(
          contract::kVocabularyFile,
          "has no token for the single byte " + std::to_string(byte) + "; all 256 must be there");
    }
    single_[byte] = *found;
  }
  return {};
}

Status Vocabulary::add_merge(std::string_view line, const std::string& at) {
  const std::size_t space = line.find(' ');
  if (space == line.npos || line.find(' ', space + 1) != line.npos) {
    return bad_file(contract::kMergesFile, at + "must be two tokens with a space between them");
  }
  const std::string_view spelt[] = {line.substr(0, space), line.substr(space + 1)};
  std::string bytes;
  std::int32_t parts[2] = {};
  for (int side = 0; side < 2; ++side) {
    const auto part = bytes_spelt(spelt[side]);
    const auto token = part ? find(*part) : std::nullopt;
    if (!token) {
      return bad_file(contract::kMergesFile, at + in_quotes(spelt[side]) + " is no token of " +
                                                 std::string(contract::kVocabularyFile));
    }
    parts[side] = *token;
    bytes += *part;
  }
  const auto token = find(bytes);
  if (!token) {
    return bad_file(contract::kMergesFile, at + in_quotes(line) + " make together no token of " +
                                               std::string(contract::kVocabularyFile));
  }
  const Merge merge{static_cast<std::int32_t>(merges_.size()), *token};
  if (!merges_.emplace(key_of(parts[0], parts[1]), merge).second) {
    return bad_file(contract::kMergesFile, at + in_quotes(line) + " stands there twice");
  }
  return {};
}

Status Vocabulary::read_merges(std::string_view text) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    // A merge may begin with "#", too; it has no colon behind "version".
    if (line.empty() || (number == 1 && line.starts_with("#version:"))) continue;
    MUSTER_RETURN_IF_ERROR(add_merge(line, "line " + std::to_string(number) + ": "));
  }
  return {};
}

Result<Vocabulary> Vocabulary::parse(const VocabularyText& text) {
  Vocabulary vocabulary;
  MUSTER_RETURN_IF_ERROR(vocabulary.read_tokens(text.tokens));
  MUSTER_RETURN_IF_ERROR(vocabulary.read_merges(text.merges));
  return vocabulary;
}

Result<Vocabulary> Vocabulary::load(const std::string& directory, const ReadFile& read) {
  const auto with_code = [](const Error& error) {
    return error.exit_code() != 0 ? error : error.with_exit_code(contract::exit_code::kData);
  };
  VocabularyFiles files;
  for (const auto& [name, text] : {std::pair(contract::kVocabularyFile, &files.tokens),
                                   std::pair(contract::kMergesFile, &files.merges)}) {
    auto content = read(directory + "/" + std::string(name), kMaxFileBytes);
    if (!content) return with_code(content.error());
    *text = *std::move(content);
  }
  auto parsed = parse({files.tokens, files.merges});
  if (!parsed) {
    const Error& error = parsed.error();
    return with_code(Error(error.code(), directory + "/" + error.message()));
  }
  parsed->files_ = std::move(files);
  return parsed;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view bytes) const {
  const auto found = tokens_.find(std::string(bytes));
  return found == tokens_.end() ? std::nullopt : std::optional(found->second);
}

const std::string& Vocabulary::bytes_of(std::int32_t token) const {
  MUSTER_CHECK(token >= 0 && static_cast<std::size_t>(token) < bytes_.size());
  return bytes_[static_cast<std::size_t>(token)];
}

/// Makes one piece after the other to tokens, in memory that it keeps. Of all pairs that stand side
/// by side the one with the least rank becomes one token, the leftmost of equals first, until none
/// is left.
class Vocabulary::Encoder {
 public:
  explicit Encoder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  void encode(std::string_view piece, std::vector<std::int32_t>& out) {
    symbols_.clear();
    waiting_.clear();
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const auto byte = static_cast<unsigned char>(piece[i]);
      symbols_.push_back({vocabulary_.single_[byte], i - 1, i + 1});
    }
    for (std::size_t i = 0; i < symbols_.size(); ++i) offer(i);
    while (!waiting_.empty()) {
      std::pop_heap(waiting_.begin(), waiting_.end(), is_later);
      const Pair pair = waiting_.back();
      waiting_.pop_back();
      merge(pair);
    }
    for (std::size_t i = 0; i < symbols_.size(); i = symbols_[i].next) {
      out.push_back(symbols_[i].token);
    }
  }

 private:
  static constexpr std::int32_t kGone = -1;
  /// A symbol that was taken up by the one before it is kGone; `before` of the first wraps around.
  struct Symbol {
    std::int32_t token;
    std::size_t before, next;
  };
  /// The symbol at `at` and the one behind it, while these are the tokens there.
  struct Pair {
    std::int32_t rank;
    std::size_t at;
    std::int32_t left, right, merged;
  };
  static bool is_later(const Pair& a, const Pair& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }

  void offer(std::size_t at) {
    const std::size_t next = symbols_[at].next;
    if (next >= symbols_.size()) return;
    const std::int32_t left = symbols_[at].token, right = symbols_[next].token;
    const auto found = vocabulary_.merges_.find(key_of(left, right));
    if (found == vocabulary_.merges_.end()) return;
    waiting_.push_back({found->second.rank, at, left, right, found->second.token});
    std::push_heap(waiting_.begin(), waiting_.end(), is_later);
  }

  void merge(const Pair& pair) {
    Symbol& left = symbols_[pair.at];
    if (left.token != pair.left || left.next >= symbols_.size()) return;
    Symbol& right = symbols_[left.next];
    if (right.token != pair.right) return;
    left.token = pair.merged;
    right.token = kGone;
    left.next = right.next;
    if (left.next < symbols_.size()) symbols_[left.next].before = pair.at;
    offer(pair.at);
    if (left.before < symbols_.size()) offer(left.before);
  }

  const Vocabulary& vocabulary_;
  std::vector<Symbol> symbols_;
  std::vector<Pair> waiting_;  ///< a heap, the next one first
};

void Vocabulary::encode(std::string_view text, std::vector<std::int32_t>& out) const {
  Encoder encoder(*this);
  while (!text.empty()) {
    std::string_view piece = text.substr(0, first_piece(text));
    text.remove_prefix(piece.size());
    while (!piece.empty()) {
      encoder.encode(piece.substr(0, kMaxPieceBytes), out);
      piece.remove_prefix(std::min(piece.size(), kMaxPieceBytes));
    }
  }
}

std::string Vocabulary::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (const std::int32_t token : tokens) text += bytes_of(token);
  return text;
}

}  // namespace muster::bpe
