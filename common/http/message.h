// What server and client of common/http say: one request, one response, a URL.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"

namespace muster::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  ///< "GET", "POST"
  std::string path;    ///< without the query
  std::string query;   ///< behind the question mark, undecoded
  Headers headers;     ///< names in lower case
  std::string body;

  /// First value of the header `lower_case_name`; empty when it is absent.
  std::string_view header(std::string_view lower_case_name) const;
  /// Token of "Authorization: Bearer TOKEN"; empty when there is none.
  std::string_view bearer_token() const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  Headers headers;  ///< besides content type and length
};

struct Url {
  bool tls = false;
  std::string host;
  int port = 0;
  std::string path;  ///< begins with '/'; the query stays in it
};

/// Reads "http://host[:port][/path]", IPv6 hosts in brackets. Errors: kInvalid with a sentence.
Result<Url> parse_url(std::string_view text);

/// Compares in a time that depends on the lengths alone.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace muster::http
