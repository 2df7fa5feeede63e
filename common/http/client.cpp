#include "common/http/client.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <mutex>
#include <optional>

namespace muster::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

Error to_error(const std::string& what, const error_code& code) {
  const std::string message = what + ": " + code.message();
  if (code == beast::error::timeout) {
    return Error(ErrorCode::kDeadlineExceeded, what + ": no answer in time");
  }
  if (code == bhttp::error::body_limit) {
    return Error(ErrorCode::kTooLarge, what + ": the answer is larger than allowed");
  }
  const bool is_cut = code == bhttp::error::end_of_stream || code == bhttp::error::partial_message;
  if (!is_cut && code.category() == bhttp::make_error_code(bhttp::error::bad_version).category()) {
    return Error(ErrorCode::kCorrupt, message);
  }
  return Error(ErrorCode::kUnavailable, message);
}

/// One exchange; every step starts the next from its completion, on the thread that runs `io`.
class Exchange {
 public:
  Exchange(asio::io_context& io, const Call& call, const Url& url)
      : url_(url), body_bytes_max_(call.body_bytes_max), resolver_(io), stream_(io) {
    request_.version(11);
    request_.method_string(call.method);
    request_.target(url.path);
    const bool is_v6 = url.host.find(':') != std::string::npos;
    request_.set(bhttp::field::host,
                 (is_v6 ? "[" + url.host + "]" : url.host) + ":" + std::to_string(url.port));
    request_.set(bhttp::field::connection, "close");
    if (!call.bearer_token.empty()) {
      request_.set(bhttp::field::authorization, "Bearer " + call.bearer_token);
    }
    if (!call.body.empty()) request_.set(bhttp::field::content_type, "application/json");
    request_.body() = call.body;
    request_.prepare_payload();
    parser_.body_limit(call.body_bytes_max);
    stream_.expires_after(call.timeout);
  }

  void start() {
    error_code wrong;
    const auto address = asio::ip::make_address(url_.host, wrong);
    if (!wrong) {
      endpoints_.emplace_back(address, static_cast<std::uint16_t>(url_.port));
      return connect();
    }
    resolver_.async_resolve(url_.host, std::to_string(url_.port),
                            [this](error_code code, const tcp::resolver::results_type& found) {
                              if (code) return fail("look up " + url_.host, code);
                              for (const auto& entry : found)
                                endpoints_.push_back(entry.endpoint());
                              connect();
                            });
  }

  Result<Response> take() {
    if (error_) return *error_;
    if (!is_done_) return Error(ErrorCode::kAborted, "stopped while talking to " + url_.host);
    const auto& message = parser_.get();
    Response response;
    response.status = static_cast<int>(message.result_int());
    response.content_type = std::string(message[bhttp::field::content_type]);
    for (const auto& field : message) {
      std::string name(field.name_string());
      for (char& c : name) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
      response.headers.emplace_back(std::move(name), std::string(field.value()));
    }
    response.body = message.body();
    return response;
  }

 private:
  std::string peer() const { return url_.host + ":" + std::to_string(url_.port); }

  void fail(const std::string& what, const error_code& code) { error_ = to_error(what, code); }

  void connect() {
    stream_.async_connect(endpoints_, [this](error_code code, const tcp::endpoint&) {
      if (code) return fail("connect to " + peer(), code);
      write();
    });
  }

  void write() {
    bhttp::async_write(stream_, request_, [this](error_code code, std::size_t) {
      // A server may refuse before it has read everything; its answer says why.
      if (code && code != asio::error::broken_pipe && code != asio::error::connection_reset) {
        return fail("send to " + peer(), code);
      }
      read();
    });
  }

  /// The header is read by itself because Beast 1.74 forgets the body limit of an answer that gives
  /// its length.
  void read() {
    bhttp::async_read_header(stream_, buffer_, parser_, [this](error_code code, std::size_t) {
      if (code) return fail("read the answer of " + peer(), code);
      const auto length = parser_.content_length();
      if (length && *length > body_bytes_max_) {
        return fail("read the answer of " + peer(),
                    bhttp::make_error_code(bhttp::error::body_limit));
      }
      read_body();
    });
  }

  void read_body() {
    bhttp::async_read(stream_, buffer_, parser_, [this](error_code code, std::size_t) {
      if (code) return fail("read the answer of " + peer(), code);
      is_done_ = true;
    });
  }

  Url url_;
  std::size_t body_bytes_max_;
  tcp::resolver resolver_;
  beast::tcp_stream stream_;
  std::vector<tcp::endpoint> endpoints_;
  bhttp::request<bhttp::string_body> request_;
  bhttp::response_parser<bhttp::string_body> parser_;
  beast::flat_buffer buffer_;
  std::optional<Error> error_;
  bool is_done_ = false;
};

bool is_token_of_header(std::string_view text) {
  for (const char c : text) {
    if (c < ' ' || c >= 0x7f) return false;
  }
  return true;
}

}  // namespace

struct Client::Impl {
  std::mutex mutex;
  bool is_aborted = false;
  asio::io_context* current = nullptr;  ///< of the exchange under way; guarded by mutex
};

Client::Client() : impl_(std::make_unique<Impl>()) {}
Client::~Client() = default;

Result<Response> Client::exchange(const Call& call) {
  MUSTER_ASSIGN_OR_RETURN(const Url url, parse_url(call.url));
  if (url.tls) return Error(ErrorCode::kUnsupported, "https is not built in: " + call.url);
  if (!is_token_of_header(call.bearer_token) || !is_token_of_header(call.method)) {
    return Error(ErrorCode::kInvalid, "a header must not contain control characters");
  }
  asio::io_context io(1);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_aborted) return Error(ErrorCode::kAborted, "the client was stopped");
    impl_->current = &io;
  }
  Result<Response> result = Error(ErrorCode::kInternal, "no exchange took place");
  try {
    Exchange exchange(io, call, url);
    exchange.start();
    io.run();
    result = exchange.take();
  } catch (const std::exception& thrown) {
    result = Error(ErrorCode::kInternal, std::string("http client: ") + thrown.what());
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->current = nullptr;
  return result;
}

void Client::abort() {
  const std::lock_guard lock(impl_->mutex);
  impl_->is_aborted = true;
  if (impl_->current != nullptr) impl_->current->stop();
}

}  // namespace muster::http
