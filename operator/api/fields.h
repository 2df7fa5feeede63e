// Checks shared by the decoders of this module: names, enumerations, one-ofs, lists. Internal to
// operator/api; every failure is a sentence that says what would be right.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/decimal.h"

namespace muster::api {

/// The kinds of names Kubernetes knows, and ours.
enum class NameRule {
  kLabel,         ///< DNS-1123 label, 1 to 63 characters
  kServiceLabel,  ///< the same, starting with a letter (DNS-1035)
  kSubdomain,     ///< DNS-1123 subdomain, 1 to 253
  kQualified,     ///< [subdomain/]name, name 1 to 63
  kDomainPath,    ///< subdomain/name: the prefix is required
  kLabelValue,    ///< empty or 1 to 63 characters
  kEnvName,       ///< [A-Za-z_][A-Za-z0-9_.-]*, 1 to 256
  kPortName,      ///< IANA service name, 1 to 15, lower case, at least one letter
  kConfigKey,     ///< key of a ConfigMap or Secret, 1 to 253
  kAbsolutePath,  ///< "/...", no ".", "..", ':' or "//", 1 to 1,024
  kRelativePath,  ///< no leading "/", no "." or "..", 1 to 1,024
  kImage,         ///< [HOST[:PORT]/]NAME[:TAG][@sha256:...], 1 to 255 before the @
};
bool matches(NameRule rule, std::string_view text);

/// A number that is kept as it was written, such as "0.1" or "1e-3".
inline constexpr std::size_t kMaxDecimalBytes = 32;

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether an absolute `path` is `directory` or lies in it; both without a slash at the end.
bool is_below(const std::string& path, const std::string& directory);

/// Of a spec all is read that can be, also where a part of it is refused: what was admitted by
/// another version of the operator is served as far as this one understands it.
class SpecReader : public JsonReader {
 public:
  SpecReader(const Json& object, std::string path)
      : JsonReader(object, std::move(path), AfterError::kReadsOn) {}
};

/// Reads a string that follows `rule`; an empty one is refused (but by kLabelValue).
void optional_name(JsonReader& in, std::string_view field, std::string& out, NameRule rule);
void required_name(JsonReader& in, std::string_view field, std::string& out, NameRule rule);

/// Reads a decimal from 0 on that is written as a string.
inline constexpr std::size_t kMaxBillionthsBytes = 20;
void read_billionths(JsonReader& in, const char* field, std::optional<Billionths>& out);

/// Reads one of `words`.
void optional_enum(JsonReader& in, std::string_view field, std::string& out,
                   std::initializer_list<std::string_view> words);

/// The name of the only member of a one-of object; fails (and returns "") when there is none, more
/// than one, or another than `names`.
std::string one_of(JsonReader& in, std::initializer_list<std::string_view> names);

/// Reads a list of at most `max_items`, item by item with its path ("spec.worker.env[2]").
using ReadItem = std::function<Status(const Json& item, const std::string& path)>;
void read_list(JsonReader& in, std::string_view field, std::size_t max_items, const ReadItem& read);

/// Reads the nested object `field`, when there is one.
using ReadObject = std::function<Status(const Json& object, const std::string& path)>;
void read_object(JsonReader& in, std::string_view field, const ReadObject& read);

/// Reads a list of strings of at most `max_bytes` each.
void read_strings(JsonReader& in, std::string_view field, std::size_t max_items,
                  std::size_t max_bytes, std::vector<std::string>& out);

/// Reads a quantity that may be written as a string or as an integer, as in Kubernetes. `json` is
/// the reader's object.
using ParseQuantity = std::function<Result<std::int64_t>(const std::string& text)>;
void read_quantity(JsonReader& in, const Json& json, const char* field, std::int64_t& out,
                   const ParseQuantity& parse);

/// Records `text` as seen; an error at `path` when it was there before.
Status add_unique(std::vector<std::string>& seen, const std::string& text, const std::string& path,
                  std::string_view what);

/// Fields of a spec that are passed over at most.
inline constexpr int kPassedOverMost = 32;
/// Takes the field out of an object that JsonReader::no_other_fields has complained of in its spec;
/// whether there was one.
bool take_out_unknown(Json& json, const std::string& complaint);

/// What `read` gives of an object of the API server without the fields of its spec that only a
/// newer version knows, whose schema has admitted them. `verdict_of` that is the Status of its
/// spec.
template <typename Read, typename VerdictOf>
auto read_known(const Json& json, const Read& read, const VerdictOf& verdict_of) {
  auto parts = read(json);
  Json known;
  for (int i = 0; !verdict_of(parts) && i < kPassedOverMost; ++i) {
    if (known.is_null()) known = json;
    if (!take_out_unknown(known, verdict_of(parts).error().message())) break;
    parts = read(known);
  }
  return parts;
}

/// A copy in which members that are null are left out: null counts as absent everywhere.
Json without_nulls(const Json& value);

/// `text` cut to at most `max_bytes` without splitting a UTF-8 character.
std::string cut(const std::string& text, std::size_t max_bytes);

/// `text` between quotes, cut for an error message.
std::string in_quotes(std::string_view text);

}  // namespace muster::api
