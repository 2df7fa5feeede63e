#include "operator/api/fields.h"

#include <algorithm>
#include <charconv>

#include "common/utf8.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_alnum(char c) { return is_lower(c) || is_digit(c) || (c >= 'A' && c <= 'Z'); }

/// Lower-case letters, digits and '-', the latter not at the ends; of any length.
bool is_label_of_any_length(std::string_view text) {
  if (text.empty() || text.front() == '-' || text.back() == '-') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '-'; });
}

bool is_label(std::string_view text) { return text.size() <= 63 && is_label_of_any_length(text); }

/// Kubernetes bounds the whole of a subdomain, not its parts.
bool is_subdomain(std::string_view text) {
  if (text.size() > 253) return false;
  for (;;) {
    const std::size_t dot = text.find('.');
    if (!is_label_of_any_length(text.substr(0, dot))) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

/// 1 to 63 of letters, digits, '-', '_', '.', with a letter or digit at both ends.
bool is_label_word(std::string_view text) {
  if (text.empty() || text.size() > 63 || !is_alnum(text.front()) || !is_alnum(text.back())) {
    return false;
  }
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_qualified(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return is_label_word(text);
  return is_subdomain(text.substr(0, slash)) && is_label_word(text.substr(slash + 1));
}

bool is_env_name(std::string_view text) {
  if (text.empty() || text.size() > 256 || is_digit(text.front()) || text.front() == '.' ||
      text.front() == '-') {
    return false;
  }
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '_' || c == '.' || c == '-'; });
}

bool is_port_name(std::string_view text) {
  return text.size() <= 15 && is_label(text) && text.find("--") == std::string_view::npos &&
         std::any_of(text.begin(), text.end(), is_lower);
}

bool is_config_key(std::string_view text) {
  if (text.empty() || text.size() > 253 || text == "." || text.substr(0, 2) == "..") return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    // Bytes of a longer UTF-8 character are not blanks.
    return static_cast<unsigned char>(c) > ' ' && c != 0x7f;
  });
}

/// No piece between slashes is "." or begins with "..".
bool stays_below(std::string_view text) {
  for (;;) {
    const std::size_t slash = text.find('/');
    const std::string_view piece = text.substr(0, slash);
    if (piece == "." || piece.starts_with("..")) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool is_path(std::string_view text) {
  return !text.empty() && text.size() <= 1024 && is_printable(text) && stays_below(text) &&
         text.find("//") == std::string_view::npos && text.find(':') == std::string_view::npos;
}

/// Lower-case words of letters and digits, joined by '.', '_', "__" or any number of '-'.
bool is_image_name(std::string_view text) {
  const auto is_word = [](char c) { return is_lower(c) || is_digit(c); };
  for (;;) {
    const auto word_end = std::find_if_not(text.begin(), text.end(), is_word);
    if (word_end == text.begin()) return false;
    if (word_end == text.end()) return true;
    text.remove_prefix(static_cast<std::size_t>(word_end - text.begin()));
    const auto joint_end = std::find_if(text.begin(), text.end(), is_word);
    const auto length = static_cast<std::size_t>(joint_end - text.begin());
    const std::string_view joint = text.substr(0, length);
    const bool joins = joint == "." || joint == "_" || joint == "__" ||
                       joint.find_first_not_of('-') == std::string_view::npos;
    if (!joins) return false;
    text.remove_prefix(length);
  }
}

/// HOST or HOST:PORT, as it may stand before the first slash of an image.
bool is_registry(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view host = text.substr(0, colon);
  if (host.empty() || !is_alnum(host.front()) || !std::all_of(host.begin(), host.end(), [](char c) {
        return is_alnum(c) || c == '-' || c == '.';
      })) {
    return false;
  }
  if (colon == std::string_view::npos) return true;
  const std::string_view port = text.substr(colon + 1);
  return !port.empty() && port.size() <= 5 && std::all_of(port.begin(), port.end(), is_digit);
}

bool is_tag(std::string_view text) {
  if (text.empty() || text.size() > 128 || text.front() == '-' || text.front() == '.') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

/// sha256: and 64 hexadecimal digits.
bool is_digest(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256:";
  return text.size() == kPrefix.size() + 64 && text.starts_with(kPrefix) &&
         text.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

/// [HOST[:PORT]/]NAME[/NAME...][:TAG][@DIGEST], all before the digest at most 255 characters.
bool is_image(std::string_view text) {
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    if (!is_digest(text.substr(at + 1))) return false;
    text = text.substr(0, at);
  }
  if (text.size() > 255) return false;
  const std::size_t colon = text.rfind(':');
  const std::size_t last_slash = text.rfind('/');
  if (colon != std::string_view::npos &&
      (last_slash == std::string_view::npos || colon > last_slash)) {
    if (!is_tag(text.substr(colon + 1))) return false;
    text = text.substr(0, colon);
  }
  if (const std::size_t slash = text.find('/');
      slash != std::string_view::npos && is_registry(text.substr(0, slash))) {
    text.remove_prefix(slash + 1);
  }
  for (;;) {
    const std::size_t slash = text.find('/');
    if (!is_image_name(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

std::string_view sentence_of(NameRule rule) {
  switch (rule) {
    case NameRule::kLabel:
      return "must be 1 to 63 lower-case letters, digits or '-', with a letter or digit at both "
             "ends";
    case NameRule::kServiceLabel:
      return "must be lower-case letters, digits or '-', start with a letter and end with a letter "
             "or digit";
    case NameRule::kSubdomain:
      return "must be 1 to 253 lower-case letters, digits, '-' or '.', with a letter or digit at "
             "the ends of each part";
    case NameRule::kQualified:
      return "must be a name like \"disk\" or \"example.com/disk\"";
    case NameRule::kDomainPath:
      return "must be a name with a domain, like \"muster.dev/operator\"";
    case NameRule::kLabelValue:
      return "must be at most 63 letters, digits, '-', '_' or '.', with a letter or digit at both "
             "ends";
    case NameRule::kEnvName:
      return "must be 1 to 256 letters, digits, '_', '.' or '-', and start with a letter or '_'";
    case NameRule::kPortName:
      return "must be 1 to 15 lower-case letters, digits or single '-', with at least one letter";
    case NameRule::kConfigKey:
      return "must be 1 to 253 letters, digits, '-', '_' or '.'";
    case NameRule::kAbsolutePath:
      return "must be an absolute path of at most 1024 bytes without \".\", \"..\", \"//\", ':' or "
             "blanks";
    case NameRule::kRelativePath:
      return "must be a relative path of at most 1024 bytes without \".\", \"..\", \"//\", ':' or "
             "blanks";
    case NameRule::kImage:
      return "must be an image like \"registry.example.com/team/image:tag\", at most 255 "
             "characters "
             "before its digest";
  }
  return "";
}

constexpr std::size_t kMaxNameBytes = 4096;

void read_name(JsonReader& in, std::string_view field, std::string& out, NameRule rule) {
  if (!in.has(field) || !in.status()) return;
  if (!matches(rule, out)) {
    in.fail(field, std::string(sentence_of(rule)) + ", not " + in_quotes(out));
  }
}

std::string join_words(std::initializer_list<std::string_view> words) {
  std::string text;
  std::size_t index = 0;
  for (const auto& word : words) {
    if (index > 0) text += index + 1 == words.size() ? " or " : ", ";
    text += word;
    ++index;
  }
  return text;
}

}  // namespace

bool matches(NameRule rule, std::string_view text) {
  switch (rule) {
    case NameRule::kLabel:
      return is_label(text);
    case NameRule::kServiceLabel:
      return is_label(text) && is_lower(text.front());
    case NameRule::kSubdomain:
      return is_subdomain(text);
    case NameRule::kQualified:
      return is_qualified(text);
    case NameRule::kDomainPath:
      return text.find('/') != std::string_view::npos && is_qualified(text);
    case NameRule::kLabelValue:
      return text.empty() || is_label_word(text);
    case NameRule::kEnvName:
      return is_env_name(text);
    case NameRule::kPortName:
      return is_port_name(text);
    case NameRule::kConfigKey:
      return is_config_key(text);
    case NameRule::kAbsolutePath:
      return is_path(text) && text.front() == '/' && text.size() > 1 && text.back() != '/';
    case NameRule::kRelativePath:
      return is_path(text) && text.front() != '/' && text.back() != '/';
    case NameRule::kImage:
      return is_image(text);
  }
  return false;
}

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

void optional_name(JsonReader& in, std::string_view field, std::string& out, NameRule rule) {
  in.optional(field, out, kMaxNameBytes);
  read_name(in, field, out, rule);
}

void required_name(JsonReader& in, std::string_view field, std::string& out, NameRule rule) {
  in.required(field, out, kMaxNameBytes);
  read_name(in, field, out, rule);
}

void optional_enum(JsonReader& in, std::string_view field, std::string& out,
                   std::initializer_list<std::string_view> words) {
  in.optional(field, out, kMaxNameBytes);
  if (!in.has(field) || !in.status()) return;
  if (std::find(words.begin(), words.end(), std::string_view(out)) == words.end()) {
    in.fail(field, "must be " + join_words(words) + ", not " + in_quotes(out));
  }
}

std::string one_of(JsonReader& in, std::initializer_list<std::string_view> names) {
  std::string found;
  int count = 0;
  for (const auto& name : names) {
    if (!in.has(name)) continue;
    found = name;
    ++count;
  }
  if (count != 1) {
    in.fail("", names.size() == 1 ? "must have the member " + join_words(names)
                                  : "must have exactly one of " + join_words(names));
    return "";
  }
  return found;
}

void read_list(JsonReader& in, std::string_view field, std::size_t max_items,
               const ReadItem& read) {
  const Json* list = in.array(field, max_items);
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->size() && in.goes_on(); ++i) {
    in.take(read((*list)[i], in.path_of(field) + "[" + std::to_string(i) + "]"));
  }
}

void read_object(JsonReader& in, std::string_view field, const ReadObject& read) {
  if (const Json* object = in.object(field)) in.take(read(*object, in.path_of(field)));
}

void read_strings(JsonReader& in, std::string_view field, std::size_t max_items,
                  std::size_t max_bytes, std::vector<std::string>& out) {
  out.clear();
  read_list(in, field, max_items, [&](const Json& item, const std::string& path) -> Status {
    if (!item.is_string()) return Error(ErrorCode::kInvalid, path + ": must be a string");
    const auto& text = item.get_ref<const std::string&>();
    if (text.size() > max_bytes) {
      return Error(ErrorCode::kInvalid,
                   path + ": is longer than " + std::to_string(max_bytes) + " bytes");
    }
    if (text.find('\0') != std::string::npos) {
      return Error(ErrorCode::kInvalid, path + ": must not contain a NUL byte");
    }
    out.push_back(text);
    return {};
  });
}

Status add_unique(std::vector<std::string>& seen, const std::string& text, const std::string& path,
                  std::string_view what) {
  if (std::find(seen.begin(), seen.end(), text) != seen.end()) {
    return Error(ErrorCode::kInvalid, path + ": " + std::string(what) + " " + in_quotes(text) +
                                          " stands twice; each may stand once");
  }
  seen.push_back(text);
  return {};
}

void read_quantity(JsonReader& in, const Json& json, const char* field, std::int64_t& out,
                   const ParseQuantity& parse) {
  std::string text;
  const auto found = json.is_object() ? json.find(field) : json.end();
  std::int64_t number = 0;
  if (found != json.end() && found->is_number_integer()) {
    in.optional(field, number, {0, kMaxExactInteger});
    text = std::to_string(number);
  } else {
    if (found != json.end() && found->is_number()) {
      in.fail(field, "must be an integer or a quantity in quotes, such as \"1500m\"");
    }
    in.optional(field, text, 64);
  }
  if (!in.has(field) || !in.status()) return;
  const auto amount = parse(text);
  if (!amount) return in.fail(field, amount.error().message());
  out = *amount;
}

void read_billionths(JsonReader& in, const char* field, std::optional<Billionths>& out) {
  std::string text;
  in.optional(field, text, kMaxBillionthsBytes);
  if (!in.has(field) || !in.status()) return;
  const auto value = parse_billionths(text);
  if (!value || *value < 0)
    return in.fail(field, "must be a decimal from 0 to 9000000000, such as \"12.5\"");
  out = value;
}

Json without_nulls(const Json& value) {
  if (value.is_object()) {
    Json copy = Json::object();
    for (const auto& [key, member] : value.items()) {
      if (!member.is_null()) copy[key] = without_nulls(member);
    }
    return copy;
  }
  if (value.is_array()) {
    Json copy = Json::array();
    for (const auto& item : value) copy.push_back(without_nulls(item));
    return copy;
  }
  return value;
}

bool take_out_unknown(Json& json, const std::string& complaint) {
  const std::size_t end = complaint.find(": unknown field;");
  if (end == std::string::npos || !complaint.starts_with("spec.")) return false;
  Json* at = &json;
  std::string_view path = std::string_view(complaint).substr(0, end);
  while (true) {
    if (path.starts_with('[')) {
      std::size_t index = 0;
      std::from_chars(path.data() + 1, path.data() + path.size(), index);
      path.remove_prefix(std::min(path.find(']') + 1, path.size()));
      if (!at->is_array() || index >= at->size()) return false;
      at = &(*at)[index];
    }
    if (path.starts_with('.')) path.remove_prefix(1);
    if (!at->is_object()) return false;
    // Its name may have a dot itself.
    if (at->erase(std::string(path)) == 1) return true;
    const std::size_t end_of_name = path.find_first_of(".[");
    const auto next = at->find(std::string(path.substr(0, end_of_name)));
    if (end_of_name == std::string_view::npos || next == at->end()) return false;
    at = &*next;
    path.remove_prefix(end_of_name);
  }
}

std::string cut(const std::string& text, std::size_t max_bytes) {
  return std::string(utf8_head(text, max_bytes));
}

std::string in_quotes(std::string_view text) { return "\"" + cut(std::string(text), 64) + "\""; }

}  // namespace muster::api
