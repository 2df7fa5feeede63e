#include "common/http/exchange.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/strand.hpp>

#include "common/http/header_fields.h"

namespace muster::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

Error to_error(const std::string& what, const boost::system::error_code& code) {
  const std::string message = what + ": " + code.message();
  if (code == beast::error::timeout) {
    return {ErrorCode::kDeadlineExceeded, what + ": no answer in time"};
  }
  if (code == bhttp::error::body_limit) {
    return {ErrorCode::kTooLarge, what + ": the answer is larger than allowed"};
  }
  const bool is_cut = code == bhttp::error::end_of_stream || code == bhttp::error::partial_message;
  if (!is_cut && code.category() == bhttp::make_error_code(bhttp::error::bad_version).category()) {
    return {ErrorCode::kCorrupt, message};
  }
  return {ErrorCode::kUnavailable, message};
}

bool is_header_text(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c >= 0x7f) return false;
  }
  return true;
}

Status check(const Call& call) {
  bool fits = is_header_text(call.bearer_token) && is_header_text(call.method);
  for (const auto& [name, value] : call.headers) {
    fits = fits && !name.empty() && is_header_text(name) && is_header_text(value);
  }
  if (fits) return {};
  return Error(ErrorCode::kInvalid, "a header must not contain control characters");
}

}  // namespace

Result<std::shared_ptr<Exchange>> Exchange::make(asio::io_context& io, const Call& call,
                                                 Done done) {
  MUSTER_ASSIGN_OR_RETURN(Url url, parse_url(call.url));
  MUSTER_RETURN_IF_ERROR(check(call));
  TlsContext tls;
  if (url.tls) {
    auto made = make_client_context(call.ca_certificate);
    if (!made) return made.error().with(call.url);
    tls = std::move(*made);
  }
  auto exchange =
      std::make_shared<Exchange>(io, call, std::move(url), std::move(tls), std::move(done));
  if (auto* const stream = std::get_if<TlsStream>(&exchange->stream_)) {
    MUSTER_RETURN_IF_ERROR(expect_name(stream->native_handle(), exchange->server_name_));
  }
  return exchange;
}

Exchange::Exchange(asio::io_context& io, const Call& call, Url url, TlsContext tls, Done done)
    : url_(std::move(url)),
      address_(call.address.empty() ? url_.host : call.address),
      server_name_(call.server_name.empty() ? url_.host : call.server_name),
      body_bytes_max_(call.body_bytes_max),
      timeout_(call.timeout),
      tls_(std::move(tls)),
      done_(std::move(done)),
      resolver_(io) {
  if (tls_) {
    stream_.emplace<TlsStream>(asio::make_strand(io), *tls_);
  } else {
    stream_.emplace<beast::tcp_stream>(asio::make_strand(io));
  }
  request_.version(11);
  request_.method_string(call.method);
  request_.target(url_.path);
  const bool is_v6 = url_.host.find(':') != std::string::npos;
  request_.set(bhttp::field::host,
               (is_v6 ? "[" + url_.host + "]" : url_.host) + ":" + std::to_string(url_.port));
  request_.set(bhttp::field::connection, "close");
  if (!call.bearer_token.empty()) {
    request_.set(bhttp::field::authorization, "Bearer " + call.bearer_token);
  }
  for (const auto& [name, value] : call.headers) request_.set(name, value);
  if (!call.body.empty()) request_.set(bhttp::field::content_type, "application/json");
  request_.body() = call.body;
  request_.prepare_payload();
  parser_.body_limit(call.body_bytes_max);
}

void Exchange::start() {
  tcp_stream().expires_after(timeout_);
  error_code wrong;
  const auto address = asio::ip::make_address(address_, wrong);
  if (!wrong) {
    endpoints_.emplace_back(address, static_cast<std::uint16_t>(url_.port));
    return connect();
  }
  resolver_.async_resolve(
      address_, std::to_string(url_.port),
      [self = shared_from_this()](error_code code, const tcp::resolver::results_type& found) {
        if (code) return self->fail("look up " + self->address_, code);
        for (const auto& entry : found) self->endpoints_.push_back(entry.endpoint());
        self->connect();
      });
}

beast::tcp_stream& Exchange::tcp_stream() {
  if (auto* const tls = std::get_if<TlsStream>(&stream_)) return tls->next_layer();
  return std::get<beast::tcp_stream>(stream_);
}

std::string Exchange::peer() const { return url_.host + ":" + std::to_string(url_.port); }

void Exchange::finish(Result<Response> result) {
  tcp_stream().close();
  if (const Done done = std::exchange(done_, nullptr)) done(std::move(result));
}

void Exchange::fail(const std::string& what, const error_code& code) {
  finish(to_error(what, code));
}

void Exchange::connect() {
  tcp_stream().async_connect(endpoints_,
                             [self = shared_from_this()](error_code code, const tcp::endpoint&) {
                               if (code) return self->fail("connect to " + self->peer(), code);
                               if (self->tls_) return self->shake_hands();
                               self->write();
                             });
}

void Exchange::shake_hands() {
  std::get<TlsStream>(stream_).async_handshake(
      asio::ssl::stream_base::client, [self = shared_from_this()](error_code code) {
        if (!code) return self->write();
        const std::string what = "TLS with " + self->peer();
        const std::string untrusted = verification_error(
            std::get<TlsStream>(self->stream_).native_handle(), self->server_name_);
        if (untrusted.empty()) return self->fail(what, code);
        self->finish(Error(ErrorCode::kUnavailable, what + ": " + untrusted));
      });
}

void Exchange::write() {
  with_stream([this](auto& stream) {
    bhttp::async_write(stream, request_, [self = shared_from_this()](error_code code, std::size_t) {
      // A server may refuse before it has read everything; its answer says why.
      if (code && code != asio::error::broken_pipe && code != asio::error::connection_reset) {
        return self->fail("send to " + self->peer(), code);
      }
      self->read();
    });
  });
}

/// The header is read by itself because Beast 1.74 forgets the body limit of an answer that gives
/// its length.
void Exchange::read() {
  with_stream([this](auto& stream) {
    bhttp::async_read_header(
        stream, buffer_, parser_, [self = shared_from_this()](error_code code, std::size_t) {
          const std::string what = "read the answer of " + self->peer();
          if (code) return self->fail(what, code);
          const auto length = self->parser_.content_length();
          if (length && *length > self->body_bytes_max_) {
            return self->fail(what, bhttp::make_error_code(bhttp::error::body_limit));
          }
          self->read_body();
        });
  });
}

void Exchange::read_body() {
  with_stream([this](auto& stream) {
    bhttp::async_read(stream, buffer_, parser_,
                      [self = shared_from_this()](error_code code, std::size_t) {
                        if (code) return self->fail("read the answer of " + self->peer(), code);
                        self->finish(self->take_response());
                      });
  });
}

Response Exchange::take_response() {
  auto& message = parser_.get();
  Response response;
  response.status = static_cast<int>(message.result_int());
  response.content_type = std::string(message[bhttp::field::content_type]);
  response.headers = headers_of(message);
  response.body = std::move(message.body());
  return response;
}

}  // namespace muster::http
