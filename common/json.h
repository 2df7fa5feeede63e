// nlohmann/json with its traps closed: no exceptions, no silent wrap of numbers, bounded depth, and
// an error that names the field ("spec.worker.count: must be an integer").
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster {

using Json = nlohmann::json;

/// Most levels of arrays and objects that parse_json builds (the library's dump recurses).
inline constexpr int kMaxJsonDepth = 64;
/// Most levels with those of which nothing is built. Of one object, Kubernetes' API server takes
/// and gives 10,000.
inline constexpr int kMaxLeftOutDepth = 20'000;

/// The member `name` of every object that stands, alone or in a list, under the name `parent`;
/// where `name` is empty, all its members but those that are `kept`. And of a list under the name
/// `parent` what comes after the first `most`.
struct LeftOut {
  std::string_view parent, name;
  std::span<const std::string_view> kept{};
  std::size_t most = SIZE_MAX;
};

/// Parses UTF-8 text. Refuses duplicate keys, depth over kMaxJsonDepth and anything after the
/// value. What is `left_out` is passed over, however deep it is: nothing is built of it. Errors:
/// kInvalid with the byte offset.
Result<Json> parse_json(std::string_view text, std::span<const LeftOut> left_out = {});

/// As parse_json, of what an API server tells of the objects of many: none of these may hide the
/// others. What is nested too deep is left out, too, and bytes that are no UTF-8 become '?'.
/// Members that are left out are mostly not read at all, but for where they end.
Result<Json> parse_told_json(std::string_view text, std::span<const LeftOut> left_out = {});

/// Compact text, keys sorted; bytes that are not UTF-8 become U+FFFD. Never throws.
std::string dump_json(const Json& value);

/// The member at a path of object fields, of a value that anybody may have written; null where
/// there is none.
const Json& member(const Json& object, std::initializer_list<std::string_view> path);
/// The same as text; "" when it is none.
std::string text_at(const Json& object, std::initializer_list<std::string_view> path);

/// Reads one object field by field and remembers the first error, with the path in front.
///
///   JsonReader in(json, "spec.worker");
///   in.optional("count", spec.count, {1, 4096});
///   in.required("image", spec.image);
///   in.no_other_fields();
///   MUSTER_RETURN_IF_ERROR(in.status());
///
/// After an error further calls do nothing, or read what can be read all the same. null counts as
/// absent.
class JsonReader {
 public:
  struct Range {
    std::int64_t least, most;
  };
  enum class AfterError {
    kStops,
    /// The first error stays. A number beyond its range is taken as the nearest in it; a value of
    /// the wrong type leaves what was there.
    kReadsOn,
  };

  JsonReader(const Json& object, std::string path, AfterError after = AfterError::kStops);

  bool has(std::string_view field) const;
  const std::string& path() const { return path_; }
  std::string path_of(std::string_view field) const;

  void optional(std::string_view field, std::int64_t& out, Range range);
  void optional(std::string_view field, int& out, Range range);
  void optional(std::string_view field, bool& out);
  void optional(std::string_view field, std::string& out, std::size_t max_bytes = 1024);
  /// Text that only people read, from whoever may write into the object: it is cut between two
  /// characters to `max_bytes`, a NUL becomes '?', and what is no string counts as absent.
  void words(std::string_view field, std::string& out, std::size_t max_bytes = 1024);
  void required(std::string_view field, std::int64_t& out, Range range);
  void required(std::string_view field, int& out, Range range);
  void required(std::string_view field, bool& out);
  void required(std::string_view field, std::string& out, std::size_t max_bytes = 1024);

  /// The member as an object or array (nullptr when absent); anything else is an error.
  const Json* object(std::string_view field);
  const Json* array(std::string_view field, std::size_t max_items);

  /// Every field not asked for until now is an error that names it.
  void no_other_fields();
  /// Records an error about `field` ("" = the object itself).
  void fail(std::string_view field, std::string_view message);
  /// Takes over the error of a nested reader or decoder.
  void take(const Status& nested);

  Status status() const;
  /// Whether further calls read.
  bool goes_on() const { return !error_ || after_ == AfterError::kReadsOn; }

 private:
  const Json* find(std::string_view field);
  template <typename T, typename Read>
  void read(std::string_view field, bool is_required, T& out, Read reader);

  const Json& object_;
  std::string path_;
  AfterError after_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace muster
