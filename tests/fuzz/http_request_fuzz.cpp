// Bytes of a client of the workers' endpoint, before anybody knows what they ask for: the first
// byte of the input says in pieces of which size the others come. Whatever a client sends, a
// request is within the server's bounds and has the form that handlers are promised, or it has a
// refusal.
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/system/system_error.hpp>
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "common/http/request_parser.h"

using namespace muster;
using boost::system::error_code;

namespace {

/// A stream as Beast reads it.
struct Pieces {
  std::string_view rest;
  std::size_t bytes = 1;  ///< of each

  template <typename Buffers>
  std::size_t read_some(const Buffers& into, error_code& code) {
    code = {};
    if (rest.empty()) code = boost::asio::error::eof;
    const std::size_t most = std::min(bytes, rest.size());
    const std::size_t taken =
        boost::asio::buffer_copy(into, boost::asio::buffer(rest.data(), most));
    rest.remove_prefix(taken);
    return taken;
  }
  template <typename Buffers>
  std::size_t read_some(const Buffers& into) {
    error_code code;
    const std::size_t taken = read_some(into, code);
    if (code) throw boost::system::system_error(code);
    return taken;
  }
};

void check_request(const http::Request& request, const http::ServerOptions& options,
                   std::size_t buffer_bytes) {
  MUSTER_CHECK(!request.method.empty());
  MUSTER_CHECK(request.path.find('?') == std::string::npos);
  MUSTER_CHECK(request.body.size() <= options.body_bytes_max);
  std::size_t header_bytes = request.method.size() + request.path.size() + request.query.size();
  for (const auto& [name, value] : request.headers) {
    MUSTER_CHECK(!name.empty() &&
                 name.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ:\r\n") == std::string::npos);
    MUSTER_CHECK(value.find_first_of("\r\n") == std::string::npos);
    header_bytes += name.size() + value.size();
  }
  // Fields behind the last chunk count as headers, too; they are in the buffer as a whole.
  MUSTER_CHECK(header_bytes <= options.header_bytes_max + buffer_bytes);
  MUSTER_CHECK(request.bearer_token().size() <= header_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  http::ServerOptions options;
  // Small, so that inputs of some KiB are beyond them, too.
  options.header_bytes_max = 512;
  options.body_bytes_max = 256;
  Pieces stream{{reinterpret_cast<const char*>(bytes) + 1, size - 1}, std::size_t{bytes[0]} + 1};
  boost::beast::flat_buffer buffer(options.header_bytes_max + options.body_bytes_max + 1024);
  for (int requests = 0; requests < 64; ++requests) {
    http::RequestParser parser;
    http::bound_request(parser, options);
    error_code code;
    boost::beast::http::read(stream, buffer, parser, code);
    if (code) {
      const auto refusal = http::refusal_of_request(code, options);
      MUSTER_CHECK(!refusal || refusal->status == 400 || refusal->status == 413 ||
                   refusal->status == 431);
      break;
    }
    const bool goes_on = parser.get().keep_alive();
    check_request(http::take_request(parser), options, buffer.max_size());
    if (!goes_on) break;
  }
  return 0;
}
