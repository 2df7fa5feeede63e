#include "common/http/request_parser.h"

#include <cstdint>
#include <string>
#include <utility>

#include "common/http/header_fields.h"

namespace muster::http {
namespace {

namespace bhttp = boost::beast::http;

}  // namespace

void bound_request(RequestParser& parser, const ServerOptions& options) {
  parser.header_limit(static_cast<std::uint32_t>(options.header_bytes_max));
  parser.body_limit(options.body_bytes_max);
}

Request take_request(RequestParser& parser) {
  auto message = parser.release();
  Request request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const std::size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  request.headers = headers_of(message);
  request.body = std::move(message.body());
  return request;
}

std::optional<Response> refusal_of_request(const boost::system::error_code& code,
                                           const ServerOptions& options) {
  if (code == bhttp::error::header_limit || code == bhttp::error::buffer_overflow) {
    return Response{431, "text/plain", "the header is too large\n", {}};
  }
  if (code == bhttp::error::body_limit) {
    return Response{
        413,
        "text/plain",
        "the body is larger than " + std::to_string(options.body_bytes_max) + " bytes\n",
        {}};
  }
  if (code == bhttp::error::end_of_stream || code == bhttp::error::partial_message ||
      code.category() != bhttp::make_error_code(bhttp::error::bad_version).category()) {
    return std::nullopt;
  }
  return Response{400, "text/plain", "not an HTTP request: " + code.message() + "\n", {}};
}

}  // namespace muster::http
