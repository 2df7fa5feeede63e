// Header fields of the library as messages have them. Internal to common/http.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <string>
#include <utility>

#include "common/http/message.h"

namespace muster::http {

inline Headers headers_of(const boost::beast::http::fields& fields) {
  Headers headers;
  for (const auto& field : fields) {
    std::string name(field.name_string());
    for (char& c : name) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
    headers.emplace_back(std::move(name), std::string(field.value()));
  }
  return headers;
}

}  // namespace muster::http
