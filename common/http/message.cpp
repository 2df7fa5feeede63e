#include "common/http/message.h"

#include <charconv>

namespace muster::http {
namespace {

constexpr std::size_t kMaxUrlBytes = 2048;

Error bad_url(std::string_view text, std::string_view why) {
  return Error(ErrorCode::kInvalid, "\"" + std::string(text.substr(0, 128)) + "\" " +
                                        std::string(why) +
                                        "; a URL like http://127.0.0.1:8080 is needed");
}

bool parse_port(std::string_view text, int& port) {
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), port);
  return wrong == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
}

/// Whether `text` can stand in a request line or host header as it is.
bool is_plain(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c >= 0x7f) return false;
  }
  return true;
}

}  // namespace

std::string_view Request::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

std::string_view Request::bearer_token() const {
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view value = header("authorization");
  return value.starts_with(kScheme) ? value.substr(kScheme.size()) : std::string_view();
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kMaxUrlBytes) return bad_url(text, "is longer than 2048 bytes");
  if (!is_plain(text)) return bad_url(text, "contains a blank, control or non-ASCII character");
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
    url.tls = true;
  } else {
    return bad_url(text, "begins with neither http:// nor https://");
  }
  const std::size_t slash = rest.find('/');
  url.path = slash == std::string_view::npos ? "/" : std::string(rest.substr(slash));
  std::string_view authority = rest.substr(0, slash);
  if (authority.find('@') != std::string_view::npos) return bad_url(text, "carries a user name");
  std::string_view port_text;
  if (authority.starts_with('[')) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad_url(text, "lacks the closing bracket");
    url.host = authority.substr(1, close - 1);
    port_text = authority.substr(close + 1);
  } else {
    const std::size_t colon = authority.find(':');
    url.host = authority.substr(0, colon);
    port_text = colon == std::string_view::npos ? std::string_view() : authority.substr(colon);
  }
  if (url.host.empty()) return bad_url(text, "names no host");
  url.port = url.tls ? 443 : 80;
  if (!port_text.empty() &&
      (port_text.front() != ':' || !parse_port(port_text.substr(1), url.port))) {
    return bad_url(text, "has a port that is not a number from 1 to 65535");
  }
  return url;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  }
  // The volatile read keeps the compiler from leaving the loop early.
  volatile unsigned result = difference;
  return result == 0;
}

}  // namespace muster::http
