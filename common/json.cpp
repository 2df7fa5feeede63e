#include "common/json.h"

#include <algorithm>

#include "common/json_cut.h"
#include "common/utf8.h"

namespace muster {
namespace {

enum class TooDeep { kRefused, kLeftOut };

/// Builds the document while counting depth, refusing a key twice in one object, and leaving out
/// what it is told to.
class StrictHandler : public nlohmann::json_sax<Json> {
 public:
  StrictHandler(std::span<const LeftOut> left_out, TooDeep too_deep)
      : left_out_(left_out), too_deep_(too_deep) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none.
  bool start_object(std::size_t) override { return open(Json::value_t::object); }
  bool key(string_t& value) override {
    if (leaving_out()) return true;
    if (is_left_out(left_out_, open_.back().name, value)) {
      left_out_below_ = depth_;
      return true;
    }
    auto [member, is_new] = open_.back().value->get_ref<Json::object_t&>().emplace(value, nullptr);
    if (!is_new) {
      error_ = "the key \"" + value.substr(0, 64) + "\" stands twice in one object";
      return false;
    }
    member_ = {&member->second, member->first};
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::value_t::array); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    error_ =
        "not JSON at byte " + std::to_string(position) + ", near \"" + token.substr(0, 32) + "\"";
    return false;
  }

  Json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  static constexpr int kNothing = -1;

  /// A value that is being built, and the name that it, or the list around it, stands under.
  struct Place {
    Json* value = nullptr;
    std::string_view name;
  };

  /// Whether the list that is being built has all that is wanted of it.
  bool is_full() const {
    if (open_.empty() || !open_.back().value->is_array()) return false;
    const auto& [list, name] = open_.back();
    return std::any_of(left_out_.begin(), left_out_.end(), [&](const LeftOut& one) {
      return one.parent == name && list->size() >= one.most;
    });
  }

  bool leaving_out() const { return left_out_below_ != kNothing; }

  /// The value of a key that is left out ends where its depth is reached again.
  void end_of_value() {
    if (left_out_below_ == depth_) left_out_below_ = kNothing;
  }

  /// Where a value goes that is not left out. Only the innermost container grows, so pointers to
  /// those around it stay good.
  Place place(Json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return {&root_, {}};
    }
    const auto [around, name] = open_.back();
    if (around->is_array()) {
      around->push_back(std::move(value));
      return {&around->back(), name};
    }
    *member_.value = std::move(value);
    return member_;
  }

  bool put(Json value) {
    if (leaving_out()) {
      end_of_value();
    } else if (!is_full()) {
      place(std::move(value));
    }
    return true;
  }

  bool open(Json::value_t type) {
    const bool is_too_deep = depth_ >= kMaxJsonDepth && too_deep_ == TooDeep::kLeftOut;
    if (!leaving_out() && (is_full() || is_too_deep)) left_out_below_ = depth_;
    const int most = leaving_out() ? kMaxLeftOutDepth : kMaxJsonDepth;
    if (!leaving_out()) open_.push_back(place(Json(type)));
    if (++depth_ <= most) return true;
    error_ = "nested more than " + std::to_string(most) + " deep";
    return false;
  }

  bool close() {
    --depth_;
    if (leaving_out()) {
      end_of_value();
    } else {
      open_.pop_back();
    }
    return true;
  }

  const std::span<const LeftOut> left_out_;
  const TooDeep too_deep_;
  Json root_;
  std::vector<Place> open_;
  Place member_;  ///< whose value comes next, inside of an object
  int depth_ = 0;
  int left_out_below_ = kNothing;  ///< depth of the object whose member is being left out
  std::string error_;
};

Result<Json> parsed(std::string_view text, StrictHandler handler) {
  if (!Json::sax_parse(text.begin(), text.end(), &handler)) {
    return Error(ErrorCode::kInvalid, handler.error().empty() ? "not JSON" : handler.error());
  }
  return std::move(handler.root());
}

}  // namespace

Result<Json> parse_json(std::string_view text, std::span<const LeftOut> left_out) {
  return parsed(text, StrictHandler(left_out, TooDeep::kRefused));
}

Result<Json> parse_told_json(std::string_view text, std::span<const LeftOut> left_out) {
  if (!left_out.empty()) {
    auto cut = parsed(cut_left_out(text, left_out), StrictHandler(left_out, TooDeep::kLeftOut));
    if (cut) return cut;
  }
  auto told = parsed(text, StrictHandler(left_out, TooDeep::kLeftOut));
  if (told || is_utf8(text)) return told;
  return parsed(to_utf8(text), StrictHandler(left_out, TooDeep::kLeftOut));
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& member(const Json& object, std::initializer_list<std::string_view> path) {
  static const Json kNone;
  const Json* at = &object;
  for (const std::string_view name : path) {
    if (!at->is_object()) return kNone;
    const auto found = at->find(name);
    if (found == at->end()) return kNone;
    at = &*found;
  }
  return *at;
}

std::string text_at(const Json& object, std::initializer_list<std::string_view> path) {
  const Json& found = member(object, path);
  return found.is_string() ? found.get<std::string>() : std::string();
}

JsonReader::JsonReader(const Json& object, std::string path, AfterError after)
    : object_(object), path_(std::move(path)), after_(after) {
  if (!object_.is_object()) fail("", "must be an object");
}

std::string JsonReader::path_of(std::string_view field) const {
  if (field.empty()) return path_;
  return path_.empty() ? std::string(field) : path_ + "." + std::string(field);
}

bool JsonReader::has(std::string_view field) const {
  if (!object_.is_object()) return false;
  const auto found = object_.find(field);
  return found != object_.end() && !found->is_null();
}

void JsonReader::fail(std::string_view field, std::string_view message) {
  if (error_) return;
  const std::string where = path_of(field);
  error_ = Error(ErrorCode::kInvalid,
                 where.empty() ? std::string(message) : where + ": " + std::string(message));
}

void JsonReader::take(const Status& nested) {
  if (!error_ && !nested) error_ = nested.error();
}

Status JsonReader::status() const {
  if (error_) return *error_;
  return {};
}

const Json* JsonReader::find(std::string_view field) {
  known_.emplace_back(field);
  if (!goes_on() || !has(field)) return nullptr;
  return &*object_.find(field);
}

template <typename T, typename Read>
void JsonReader::read(std::string_view field, bool is_required, T& out, Read reader) {
  const Json* value = find(field);
  if (value != nullptr) {
    reader(*value, out);
  } else if (is_required && !error_) {
    fail(field, "is required");
  }
}

namespace {

/// Empty when `value` is an integer within `range`, else what is wrong. `out` is the integer of the
/// range that is nearest to it; of what is none it stays.
std::string read_integer(const Json& value, JsonReader::Range range, std::int64_t& out) {
  const bool over =
      value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t(INT64_MAX);
  if (!value.is_number_integer() || over) {
    if (!over) return "must be an integer";
  }
  const std::int64_t number = over ? INT64_MAX : value.get<std::int64_t>();
  out = std::clamp(number, range.least, range.most);
  if (over || out != number) {
    return "must be from " + std::to_string(range.least) + " to " + std::to_string(range.most) +
           ", not " + value.dump().substr(0, 32);
  }
  return {};
}

}  // namespace

#define MUSTER_READ_FIELDS(METHOD, IS_REQUIRED)                                                    \
  void JsonReader::METHOD(std::string_view field, std::int64_t& out, Range range) {                \
    read(field, IS_REQUIRED, out, [&](const Json& value, std::int64_t& target) {                   \
      std::int64_t number = target;                                                                \
      if (auto wrong = read_integer(value, range, number); !wrong.empty()) fail(field, wrong);     \
      if (goes_on()) target = number;                                                              \
    });                                                                                            \
  }                                                                                                \
  void JsonReader::METHOD(std::string_view field, int& out, Range range) {                         \
    std::int64_t wide = out;                                                                       \
    METHOD(field, wide,                                                                            \
           Range{std::max<std::int64_t>(range.least, INT32_MIN),                                   \
                 std::min<std::int64_t>(range.most, INT32_MAX)});                                  \
    out = static_cast<int>(wide);                                                                  \
  }                                                                                                \
  void JsonReader::METHOD(std::string_view field, bool& out) {                                     \
    read(field, IS_REQUIRED, out, [&](const Json& value, bool& target) {                           \
      if (!value.is_boolean()) return fail(field, "must be true or false");                        \
      target = value.get<bool>();                                                                  \
    });                                                                                            \
  }                                                                                                \
  void JsonReader::METHOD(std::string_view field, std::string& out, std::size_t max_bytes) {       \
    read(field, IS_REQUIRED, out, [&](const Json& value, std::string& target) {                    \
      if (!value.is_string()) return fail(field, "must be a string");                              \
      const auto& text = value.get_ref<const std::string&>();                                      \
      if (text.size() > max_bytes) {                                                               \
        return fail(field, "is longer than " + std::to_string(max_bytes) + " bytes");              \
      }                                                                                            \
      if (text.find('\0') != std::string::npos) return fail(field, "must not contain a NUL byte"); \
      target = text;                                                                               \
    });                                                                                            \
  }
MUSTER_READ_FIELDS(optional, false)
MUSTER_READ_FIELDS(required, true)
#undef MUSTER_READ_FIELDS

void JsonReader::words(std::string_view field, std::string& out, std::size_t max_bytes) {
  const Json* value = find(field);
  if (value == nullptr || !value->is_string()) return;
  out = utf8_head(value->get_ref<const std::string&>(), max_bytes);
  std::replace(out.begin(), out.end(), '\0', '?');
}

const Json* JsonReader::object(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr || value->is_object()) return value;
  fail(field, "must be an object");
  return nullptr;
}

const Json* JsonReader::array(std::string_view field, std::size_t max_items) {
  const Json* value = find(field);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    fail(field, "must be a list");
    return nullptr;
  }
  if (value->size() > max_items) {
    fail(field, "has more than " + std::to_string(max_items) + " items");
    return nullptr;
  }
  return value;
}

void JsonReader::no_other_fields() {
  if (error_) return;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      std::string names;
      for (const auto& name : known_) names += (names.empty() ? "" : ", ") + name;
      return fail(key.substr(0, 64), "unknown field; known here: " + names);
    }
  }
}

}  // namespace muster
