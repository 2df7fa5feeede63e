// One HTTP exchange on somebody's IO context: connect, TLS, request, answer, under one deadline.
// Internal to common/http.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/http/client.h"
#include "common/http/tls_context.h"

namespace muster::http {

/// Owned by its own pending operations. Threads: the one that runs the IO context.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  using Done = std::function<void(Result<Response>)>;

  /// Errors: kInvalid: the call cannot be sent as it is.
  static Result<std::shared_ptr<Exchange>> make(boost::asio::io_context& io, const Call& call,
                                                Done done);
  Exchange(boost::asio::io_context& io, const Call& call, Url url, TlsContext tls, Done done);

  /// `done` is called exactly once, unless the IO context stops before.
  void start();

 private:
  using tcp = boost::asio::ip::tcp;
  using error_code = boost::system::error_code;
  using TlsStream = boost::beast::ssl_stream<boost::beast::tcp_stream>;

  template <typename Use>
  void with_stream(Use use) {
    if (auto* const tls = std::get_if<TlsStream>(&stream_)) return use(*tls);
    use(std::get<boost::beast::tcp_stream>(stream_));
  }
  boost::beast::tcp_stream& tcp_stream();
  std::string peer() const;
  void finish(Result<Response> result);
  void fail(const std::string& what, const error_code& code);
  void connect();
  void shake_hands();
  void write();
  void read();
  void read_body();
  Response take_response();

  Url url_;
  std::string address_;  ///< or the name that it is looked up by
  std::string server_name_;
  std::size_t body_bytes_max_;
  milliseconds timeout_;
  TlsContext tls_;  ///< outlives the stream below; nullptr = plain
  Done done_;
  tcp::resolver resolver_;
  std::variant<std::monostate, boost::beast::tcp_stream, TlsStream> stream_;
  std::vector<tcp::endpoint> endpoints_;
  boost::beast::http::request<boost::beast::http::string_body> request_;
  boost::beast::http::response_parser<boost::beast::http::string_body> parser_;
  boost::beast::flat_buffer buffer_;
};

}  // namespace muster::http
