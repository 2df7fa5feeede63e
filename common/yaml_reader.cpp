#include "common/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cerrno>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <vector>

#include "common/contract.h"
#include "common/json.h"
#include "common/utf8.h"

namespace muster {
namespace {

/// Carries a refusal out of yaml-cpp's event callbacks; never leaves this file.
struct Refusal {
  int line;  ///< from 1
  std::string sentence;
};

bool all_digits(std::string_view text, std::string_view digits) {
  return !text.empty() && text.find_first_not_of(digits) == std::string_view::npos;
}

constexpr std::string_view kDecimal = "0123456789";
/// Of a file; all but one are empty.
constexpr int kMostDocuments = 17;

/// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
bool is_float(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view power = text.substr(exponent + 1);
    if (!power.empty() && (power[0] == '-' || power[0] == '+')) power.remove_prefix(1);
    if (!all_digits(power, kDecimal)) return false;
    text = text.substr(0, exponent);
  }
  const std::size_t point = text.find('.');
  if (point == std::string_view::npos) return all_digits(text, kDecimal);
  const std::string_view whole = text.substr(0, point), fraction = text.substr(point + 1);
  if (whole.empty()) return all_digits(fraction, kDecimal);
  return all_digits(whole, kDecimal) && (fraction.empty() || all_digits(fraction, kDecimal));
}

template <typename T>
std::optional<T> number(std::string_view text, int base) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// An integer of the core schema; nullopt when the text has not that form.
std::optional<Json> integer(int line, std::string_view text) {
  std::string_view digits = text;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  int base = 0;
  if (all_digits(digits, kDecimal)) {
    base = 10;
  } else if (text.starts_with("0o") && all_digits(text.substr(2), "01234567")) {
    base = 8, digits = text.substr(2);
  } else if (text.starts_with("0x") && all_digits(text.substr(2), "0123456789abcdefABCDEF")) {
    base = 16, digits = text.substr(2);
  }
  if (base == 0) return std::nullopt;
  if (base == 10 && digits.size() > 1 && digits[0] == '0') {
    if (!all_digits(digits, "01234567")) {
      throw Refusal{line, std::string(text) +
                              " begins with 0 and is no octal number; write it without the 0, or "
                              "in quotes"};
    }
    base = 8;
  }
  const std::string signed_digits = (negative ? "-" : "") + std::string(digits);
  const auto value = number<std::int64_t>(signed_digits, base);
  if (!value) throw Refusal{line, std::string(text) + " does not fit a 64-bit integer"};
  return Json(*value);
}

Json plain_scalar(int line, const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return {};
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (auto value = integer(line, text)) return *value;
  if (is_float(text)) {
    std::string_view digits = text;
    if (digits[0] == '+') digits.remove_prefix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) {
      throw Refusal{line, text + " does not fit a 64-bit floating point number"};
    }
    return value;
  }
  const std::string_view unsigned_text =
      text[0] == '-' || text[0] == '+' ? std::string_view(text).substr(1) : text;
  if (unsigned_text == ".inf" || unsigned_text == ".Inf" || unsigned_text == ".INF" ||
      text == ".nan" || text == ".NaN" || text == ".NAN") {
    throw Refusal{line, text + " is no value that JSON can hold"};
  }
  return text;
}

/// Builds one JSON value out of the events of one document.
class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const YamlBounds& bounds) : bounds_(bounds) {}
  void OnDocumentStart(const YAML::Mark& mark) override { line_ = std::max(0, mark.line) + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark.line + 1, nullptr, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Refusal{mark.line + 1, "an alias stands inside its anchor"};
    count(mark.line + 1, found->second.nodes);
    add_counted(mark.line + 1, Node(found->second), YAML::NullAnchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const int line = mark.line + 1;
    // An escape can write what no text holds ("\\uD800").
    if (!is_utf8(value)) throw Refusal{line, "an escape makes bytes that are not UTF-8"};
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return add(line, value, anchor);
    if (!tag.empty() && tag != "?") refuse_tag(line, tag);
    // A key is its text: `on: 1` and `1: x` name fields, whatever type the text would have.
    if (wants_key()) return add(line, value, anchor);
    add(line, plain_scalar(line, value), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark.line + 1, tag, "tag:yaml.org,2002:seq", Json::array(), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark.line + 1, tag, "tag:yaml.org,2002:map", Json::object(), anchor);
  }
  void OnMapEnd() override { close(); }

  Json take() { return std::move(root_); }
  bool has_value() const { return has_root_; }
  /// Where the document begins.
  int line() const { return line_; }

 private:
  struct Node {
    Json value;
    std::size_t nodes = 1;
    int depth = 1;
  };
  struct Frame {
    int line;
    YAML::anchor_t anchor;
    Node node;
    bool has_key = false;
    std::string key;
  };

  [[noreturn]] static void refuse_tag(int line, const std::string& tag) {
    throw Refusal{line,
                  "the tag " + tag.substr(0, 60) + " is not supported; write the value plain"};
  }

  bool wants_key() const {
    return !frames_.empty() && frames_.back().node.value.is_object() && !frames_.back().has_key;
  }

  void count(int line, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > bounds_.nodes_max) {
      throw Refusal{line, "more than " + std::to_string(bounds_.nodes_max) +
                              " values (aliases written out); a " + std::string(bounds_.what) +
                              " is smaller"};
    }
  }

  void open(int line, const std::string& tag, std::string_view own_tag, Json empty,
            YAML::anchor_t anchor) {
    if (!tag.empty() && tag != "?" && tag != "!" && tag != own_tag) refuse_tag(line, tag);
    if (wants_key()) throw Refusal{line, "a key must be a word, not a list or a map"};
    count(line, 1);
    check_depth(line, 1);
    frames_.push_back({line, anchor, {std::move(empty), 1, 1}, false, {}});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    add_counted(frame.line, std::move(frame.node), frame.anchor);
  }

  void add(int line, Json value, YAML::anchor_t anchor) {
    count(line, 1);
    add_counted(line, {std::move(value), 1, 0}, anchor);
  }

  void check_depth(int line, int depth) const {
    if (static_cast<int>(frames_.size()) + depth > bounds_.depth_max) {
      throw Refusal{line, "nested deeper than " + std::to_string(bounds_.depth_max) + " levels"};
    }
  }

  void add_counted(int line, Node node, YAML::anchor_t anchor) {
    check_depth(line, node.depth);
    if (anchor != YAML::NullAnchor) anchors_.insert_or_assign(anchor, node);
    if (frames_.empty()) {
      root_ = std::move(node.value);
      has_root_ = true;
      return;
    }
    Frame& parent = frames_.back();
    if (wants_key()) return take_key(line, parent, node.value);
    parent.node.nodes += node.nodes;
    parent.node.depth = std::max(parent.node.depth, node.depth + 1);
    if (parent.node.value.is_array()) {
      parent.node.value.push_back(std::move(node.value));
    } else {
      parent.node.value[parent.key] = std::move(node.value);
      parent.has_key = false;
    }
  }

  static void take_key(int line, Frame& parent, const Json& key) {
    if (!key.is_string()) throw Refusal{line, "a key must be a word"};
    parent.key = key.get<std::string>();
    parent.has_key = true;
    if (parent.key == "<<") {
      throw Refusal{line, "merge keys (<<) are not supported; write the fields out"};
    }
    if (parent.node.value.contains(parent.key)) {
      throw Refusal{line, "the key \"" + parent.key.substr(0, 100) + "\" stands here twice"};
    }
  }

  const YamlBounds& bounds_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchors_;
  std::size_t nodes_ = 0;
  Json root_;
  bool has_root_ = false;
  int line_ = 1;
};

/// The line of the first byte that is neither text nor white space, or 0. yaml-cpp takes 0x04 for
/// the end of the input, so what follows it would be dropped without a word.
int line_of_control_character(std::string_view text) {
  int line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7f) return line;
  }
  return 0;
}

Error refusal(const std::string& name, int line, const std::string& sentence) {
  return Error(ErrorCode::kInvalid, name + ":" + std::to_string(line) + ": " + sentence)
      .with_exit_code(contract::exit_code::kInvalidSpec);
}

bool is_queue(const Json& document) {
  return document.is_object() &&
         document.value("kind", Json()) == Json(contract::kKindTrainingQueue);
}

/// The one document of `input` that is not null, as what stands behind a "---" at the end is; null
/// where all are. Throws.
Json only_document(std::istream& input, const YamlBounds& bounds) {
  // Never YAML::LoadAll: version 0.7 loops for ever on some malformed input.
  YAML::Parser parser(input);
  Json only;
  for (int documents = 0;; ++documents) {
    Builder builder(bounds);
    if (!parser.HandleNextDocument(builder) || !builder.has_value()) {
      if (documents > 0) return only;
      throw Refusal{1,
                    "is empty; a " + std::string(bounds.what) + " starts with apiVersion and kind"};
    }
    Json document = builder.take();
    if (documents == kMostDocuments || (!only.is_null() && !document.is_null())) {
      const bool has_queue = is_queue(only) || is_queue(document);
      throw Refusal{builder.line(),
                    has_queue ? "holds more than one document, and a TrainingQueue among them, "
                                "which is for kubectl apply; keep one TrainingJob and remove the "
                                "rest"
                              : "holds more than one document; keep one and remove the rest"};
    }
    if (!document.is_null()) only = std::move(document);
  }
}

}  // namespace

Result<Json> parse_yaml(std::string_view text, const std::string& name, const YamlBounds& bounds) {
  const std::string what(bounds.what);
  if (text.size() > bounds.bytes_max) {
    return refusal(name, 1,
                   "has " + std::to_string(text.size()) + " bytes; a " + what + " has at most " +
                       std::to_string(bounds.bytes_max));
  }
  if (!is_utf8(text)) return refusal(name, 1, "is not UTF-8 text");
  if (const int line = line_of_control_character(text); line > 0) {
    return refusal(name, line, "holds a control character; YAML is text");
  }
  std::istringstream input{std::string(text)};
  try {
    return only_document(input, bounds);
  } catch (const Refusal& refused) {
    return refusal(name, refused.line, refused.sentence);
  } catch (const YAML::Exception& exception) {
    return refusal(name, std::max(0, exception.mark.line) + 1, "is not YAML: " + exception.msg);
  } catch (const std::exception& exception) {
    return refusal(name, 1, std::string("cannot be read as YAML: ") + exception.what());
  }
}

}  // namespace muster
