// What the server reads a request with, and what it says to bytes that are none. Internal to
// common/http.
#pragma once

#include <boost/beast/http.hpp>
#include <optional>

#include "common/http/message.h"
#include "common/http/server.h"

namespace muster::http {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

/// Before anything is read: no more than `options` allow.
void bound_request(RequestParser& parser, const ServerOptions& options);

/// Of a parser that is done, once.
Request take_request(RequestParser& parser);

/// What is answered where reading ended with `code`; nothing: the client has gone, or its time is
/// over.
std::optional<Response> refusal_of_request(const boost::system::error_code& code,
                                           const ServerOptions& options);

}  // namespace muster::http
