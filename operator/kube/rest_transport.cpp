#define _TURN_OFF_PLATFORM_STRING
#include "operator/kube/rest_transport.h"

#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pplx/threadpool.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "operator/kube/inflow.h"
#include "operator/kube/small_file.h"
#include "operator/kube/transport_guards.h"

namespace muster::kube {
namespace {

namespace rest = web::http;
namespace streams = concurrency::streams;
using Cancellation = pplx::cancellation_token_source;

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::size_t kReadAheadBytes = 512 * 1024;
/// The library reads the size of a chunk into an int. A larger one was negative.
constexpr std::size_t kChunkBytesMost = std::numeric_limits<int>::max();
constexpr const char* kClosed = "the stream was closed";
constexpr seconds kTokenLife{60};
/// From a line's first byte to its end.
constexpr seconds kLineMost{30};

/// What became of a task that is done.
template <typename T>
Result<T> result_of(const pplx::task<T>& done) {
  try {
    return Result<T>(done.get());
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kUnavailable, thrown.what());
  } catch (...) {
    return Error(ErrorCode::kUnavailable, "cancelled");
  }
}

/// A task of the library's as something to wait for. The library has no timed wait, and an
/// exception nobody looks at ends the process: the continuation looks at every one.
template <typename T>
class Pending {
 public:
  /// `buffer`: what the task writes into; it lives as long as the task does, which may be longer
  /// than this.
  explicit Pending(const pplx::task<T>& task, std::shared_ptr<void> buffer = nullptr) {
    // What is there already costs no other thread a turn.
    if (task.is_done()) {
      shared_->result = result_of(task);
      return;
    }
    // NOLINTNEXTLINE(performance-unnecessary-value-param): the library asks for this signature.
    task.then([shared = shared_, buffer = std::move(buffer)](pplx::task<T> done) {
      Result<T> result = result_of(done);
      const std::lock_guard lock(shared->mutex);
      shared->result = std::move(result);
      shared->changed.notify_all();
    });
  }
  /// Whether it is done by `deadline`; one that has passed asks without waiting.
  bool wait(const Clock& clock, MonoTime deadline) const {
    std::unique_lock lock(shared_->mutex);
    const auto left = std::max(deadline - clock.mono_now(), nanoseconds(0));
    return shared_->changed.wait_for(lock, left, [this] { return shared_->result.has_value(); });
  }
  bool is_done() const {
    const std::lock_guard lock(shared_->mutex);
    return shared_->result.has_value();
  }
  /// Of one that is done, once.
  Result<T> take() {
    const std::lock_guard lock(shared_->mutex);
    return std::move(*shared_->result);
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<T>> result;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

/// Waits for `task` as long as there is patience, then cancels it. `buffer`: as Pending's.
template <typename T>
Result<T> await(const pplx::task<T>& task, const Clock& clock, const Patience& patience,
                const Cancellation& cancel, std::shared_ptr<void> buffer = nullptr) {
  Pending<T> pending(task, std::move(buffer));
  while (const auto look = patience.next_look()) {
    if (pending.wait(clock, *look)) return pending.take();
  }
  if (pending.is_done()) return pending.take();
  cancel.cancel();
  return Error(ErrorCode::kDeadlineExceeded, "no answer in time");
}

/// The bearer token: that of a file that is replaced while we run, or a fixed one. With both the
/// file has precedence, as in other clients, and the fixed one is for as long as it has none.
class Token {
 public:
  Token(std::string fixed, std::string path, const Clock& clock)
      : path_(std::move(path)), clock_(clock), token_(std::move(fixed)) {}

  /// Empty without either. Errors: none lasting; a file that is unreadable or empty, as one is that
  /// is just being written, leaves the last token in use.
  std::string token() {
    const std::lock_guard lock(mutex_);
    if (path_.empty()) return token_;
    if (read_at_ == MonoTime::min() || clock_.mono_now() - read_at_ > kTokenLife) {
      const auto text = read_small_file(path_);
      std::string token = text ? text->substr(0, text->find_first_of("\r\n \t")) : std::string();
      if (!token.empty()) {
        token_ = std::move(token);
        read_at_ = clock_.mono_now();
      }
    }
    return token_;
  }
  void expire() {
    const std::lock_guard lock(mutex_);
    read_at_ = MonoTime::min();
  }

 private:
  const std::string path_;
  const Clock& clock_;
  std::mutex mutex_;
  std::string token_;
  MonoTime read_at_ = MonoTime::min();
};

/// The body of an answer between the library, which puts what has come, and us who take it. The
/// library's own takes all that a server sends, read or not: this one lets it read on only when
/// less than kReadAheadBytes lie here (and one chunk more, which the library always has whole).
class Body final : public streams::details::basic_producer_consumer_buffer<std::uint8_t> {
 public:
  /// `inflow`: of the connection that it comes over, if that has no other exchange; or nullptr.
  explicit Body(std::shared_ptr<Inflow> inflow)
      : basic_producer_consumer_buffer(kReadBytes), inflow_(std::move(inflow)) {}

  /// So much less is here.
  void taken(std::size_t count) {
    std::unique_lock lock(mutex_);
    held_ -= count;
    if (held_ < kReadAheadBytes) go_on(std::move(lock));
  }
  /// Nobody takes any more.
  void leave() {
    std::unique_lock lock(mutex_);
    is_left_ = true;
    go_on(std::move(lock));
  }

 protected:
  pplx::task<std::size_t> _putn(const std::uint8_t* bytes, std::size_t count) override {
    if (count > kChunkBytesMost) {
      return pplx::task_from_exception<std::size_t>(
          std::runtime_error("a chunk has a negative size"));
    }
    if (inflow_) inflow_->restart();
    const std::lock_guard lock(mutex_);
    // Before it can be taken, which another thread may do as soon as it is put.
    held_ += count;
    auto put = basic_producer_consumer_buffer::_putn(bytes, count);
    if (is_left_ || held_ < kReadAheadBytes) return put;
    put_.emplace();
    return pplx::create_task(*put_).then([count] { return count; });
  }

 private:
  using PutEvent = pplx::task_completion_event<void>;

  void go_on(std::unique_lock<std::mutex> lock) {
    const std::optional<PutEvent> put = std::exchange(put_, std::nullopt);
    lock.unlock();
    if (put) put->set();
  }

  const std::shared_ptr<Inflow> inflow_;
  std::mutex mutex_;
  std::size_t held_ = 0;         // guarded by mutex_
  bool is_left_ = false;         // guarded by mutex_
  std::optional<PutEvent> put_;  ///< the library waits for it; guarded by mutex_
};

/// An answer whose head is here.
struct Answer {
  rest::http_response head;
  std::shared_ptr<Body> body;
};

class RestStream final : public HttpStream {
 public:
  RestStream(std::shared_ptr<Body> body, std::shared_ptr<rest::client::http_client> client,
             Cancellation cancel, const Clock& clock, std::size_t line_bytes_max)
      : body_(std::move(body)),
        client_(std::move(client)),
        cancel_(std::move(cancel)),
        clock_(clock),
        line_bytes_max_(line_bytes_max) {}
  ~RestStream() override { close(); }

  Result<std::optional<std::string>> next_line(milliseconds idle) override {
    if (auto line = cut_line()) return line;
    if (closed_) return Error(ErrorCode::kAborted, kClosed);
    // What has come since the last call is no delay of the line's.
    MUSTER_RETURN_IF_ERROR(take_ready());
    const MonoTime quiet_until = clock_.mono_now() + idle;
    for (;;) {
      if (auto line = cut_line()) return line;
      if (buffer_.size() - begin_ > line_bytes_max_) {
        close();
        return Error(ErrorCode::kTooLarge,
                     "a line is longer than " + std::to_string(line_bytes_max_) + " bytes");
      }
      const MonoTime now = clock_.mono_now();
      if (!buffer_.empty() && !begun_) begun_ = now;
      if (begun_ && now - *begun_ >= kLineMost) return overdue();
      const bool line_first = begun_ && *begun_ + kLineMost <= quiet_until;
      auto more = read_some(line_first ? *begun_ + kLineMost : quiet_until);
      if (!more) {
        const bool late = more.error().code() == ErrorCode::kDeadlineExceeded;
        if (late && line_first) return overdue();
        return more.error();
      }
      if (*more) continue;
      if (buffer_.empty()) return std::optional<std::string>();
      return Error(ErrorCode::kUnavailable, "the stream ended in the middle of a line");
    }
  }

  void close() override {
    closed_ = true;
    cancel_.cancel();
    body_->leave();
  }

 private:
  /// The first whole line that is here, unless it is too long.
  std::optional<std::string> cut_line() {
    const auto end = buffer_.find('\n', searched_);
    searched_ = std::min(end, buffer_.size());
    if (end == std::string::npos || end - begin_ > line_bytes_max_) return std::nullopt;
    std::string line;
    if (end - begin_ < buffer_.size() - end) {
      // Many lines come together, and what is behind one is not moved for each.
      line = buffer_.substr(begin_, end - begin_);
      begin_ = end + 1;
    } else {
      // A long line is not copied, and its memory goes with it.
      std::string rest = buffer_.substr(end + 1);
      buffer_.resize(end);
      line = std::exchange(buffer_, std::move(rest));
      line.erase(0, std::exchange(begin_, 0));
    }
    if (begin_ > buffer_.size() / 2) buffer_.erase(0, std::exchange(begin_, 0));
    searched_ = begin_;
    begun_.reset();
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

  /// A server that sends a byte now and then must not hold us for ever.
  Error overdue() {
    close();
    return Error(ErrorCode::kUnavailable,
                 "a line was not whole " + std::to_string(kLineMost.count()) + " s after it began");
  }

  /// Waits for a byte and takes it with what came along; false at the end. After
  /// kDeadlineExceeded it may be called again.
  Result<bool> read_some(MonoTime deadline) {
    if (closed_) return Error(ErrorCode::kAborted, kClosed);
    if (ended_) return false;
    if (!first_) first_.emplace(body_->bumpc());
    const bool came = first_->wait(clock_, deadline);
    if (closed_) return Error(ErrorCode::kAborted, kClosed);
    if (!came) return Error(ErrorCode::kDeadlineExceeded, "read the stream: no byte in time");
    MUSTER_RETURN_IF_ERROR(take_ready());
    return !ended_;
  }

  /// Appends what is there, without waiting.
  Status take_ready() {
    if (first_) {
      if (!first_->is_done()) return {};
      auto first = first_->take();
      first_.reset();
      if (!first) {
        const bool was_closed = closed_.exchange(true);
        if (was_closed) return Error(ErrorCode::kAborted, kClosed);
        return first.error().with("read the stream");
      }
      ended_ = *first == streams::char_traits<std::uint8_t>::eof();
      if (ended_) return {};
      buffer_ += static_cast<char>(*first);
      body_->taken(1);
    }
    std::uint8_t* bytes = nullptr;
    std::size_t count = 0;
    for (std::size_t taken = 0; taken < kReadBytes; taken += count) {
      // What the library holds lies in pieces. At the end there is none, which the next byte tells.
      if (!body_->acquire(bytes, count) || count == 0) break;
      buffer_.append(reinterpret_cast<const char*>(bytes), count);
      body_->release(bytes, count);
      body_->taken(count);
    }
    return {};
  }

  const std::shared_ptr<Body> body_;
  std::shared_ptr<rest::client::http_client> client_;
  Cancellation cancel_;
  const Clock& clock_;
  const std::size_t line_bytes_max_;
  std::string buffer_;
  std::size_t begin_ = 0;  ///< of buffer_: what is before was cut off; 0 where all was
  std::size_t searched_ = 0;
  std::optional<MonoTime> begun_;  ///< when the part of a line in the buffer was first waited for
  std::optional<Pending<Body::int_type>> first_;
  bool ended_ = false;
  std::atomic<bool> closed_ = false;
};

using CertificatePtr = std::unique_ptr<X509, decltype(&X509_free)>;
using KeyPtr = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using BioPtr = std::unique_ptr<BIO, decltype(&BIO_free)>;

BioPtr bio_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

/// Never asks a terminal for a pass phrase.
int no_pass_phrase(char*, int, int, void*) { return -1; }

CertificatePtr first_certificate(const std::string& pem) {
  return {PEM_read_bio_X509(bio_of(pem).get(), nullptr, &no_pass_phrase, nullptr), &X509_free};
}

/// Trusts exactly the certificates of `pem`; the caller owns it.
X509_STORE* store_of(const std::string& pem) {
  X509_STORE* store = X509_STORE_new();
  const BioPtr bio = bio_of(pem);
  while (store != nullptr) {
    const CertificatePtr one(PEM_read_bio_X509(bio.get(), nullptr, &no_pass_phrase, nullptr),
                             &X509_free);
    if (one == nullptr) break;
    X509_STORE_add_cert(store, one.get());
  }
  return store;
}

/// Empty when the file cannot be read: the handshake then fails closed.
std::string pem_of(const PemSource& source) {
  if (!source.text.empty() || source.file.empty()) return source.text;
  auto text = read_small_file(source.file);
  return text ? std::move(*text) : std::string();
}

/// What the source is called in a sentence.
std::string name_of(const PemSource& source, const char* what) {
  return source.file.empty() ? what : source.file;
}

constexpr const char* kCa = "the API server's CA";

class RestTransport final : public HttpTransport {
 public:
  explicit RestTransport(RestTransportOptions options)
      : options_(std::move(options)),
        token_(options_.token, options_.token_file, *options_.clock),
        calls_(make_client(std::chrono::seconds(120), nullptr)) {}

  Result<HttpResponse> send(const HttpRequest& request) override {
    const Patience patience(request, *options_.clock);
    Cancellation cancel;
    MUSTER_ASSIGN_OR_RETURN(const Answer answer,
                            exchange(*calls_, request, patience, cancel, nullptr));
    return read_body(answer, patience, cancel);
  }

  Result<Stream> open_stream(const HttpRequest& request) override {
    const Patience patience(request, *options_.clock);
    Cancellation cancel;
    // With a client of its own it has a connection of its own, on which all may come in the end
    // that is taken in time.
    const auto inflow = std::make_shared<Inflow>(inflow_most());
    const auto client = make_client(std::chrono::hours(2), inflow);
    MUSTER_ASSIGN_OR_RETURN(Answer answer, exchange(*client, request, patience, cancel, inflow));
    if (answer.head.status_code() != rest::status_codes::OK) {
      MUSTER_ASSIGN_OR_RETURN(HttpResponse response, read_body(answer, patience, cancel));
      return Stream{std::move(response), nullptr};
    }
    Stream stream;
    stream.head.code = rest::status_codes::OK;
    stream.stream = std::make_unique<RestStream>(std::move(answer.body), client, std::move(cancel),
                                                 *options_.clock, options_.line_bytes_max);
    return stream;
  }

 private:
  /// The largest answer, and as much again for what frames it: heads, records, sizes of chunks.
  std::size_t inflow_most() const {
    return 2 * std::max(options_.body_bytes_max, options_.line_bytes_max) + (std::size_t{1} << 20);
  }

  /// `inflow`: of its connection, where it has one exchange; nullptr: each of its connections has
  /// its own, anew with each exchange.
  std::shared_ptr<rest::client::http_client> make_client(std::chrono::seconds idle_timeout,
                                                         const std::shared_ptr<Inflow>& inflow) {
    rest::client::http_client_config config;
    config.set_max_redirects(0);
    config.set_timeout(idle_timeout);
    config.set_ssl_context_callback([this, inflow](boost::asio::ssl::context& context) {
      secure(context);
      bound_inflow(context.native_handle(),
                   inflow ? inflow : std::make_shared<Inflow>(inflow_most()));
    });
    if (options_.url.starts_with("https://")) {
      // Called for each exchange, with the connection that it will use.
      config.set_nativehandle_options([](rest::client::native_handle stream) {
        using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>;
        restart_inflow(static_cast<TlsStream*>(stream)->native_handle());
      });
    }
    return std::make_shared<rest::client::http_client>(uri_for_library(options_.url), config);
  }

  /// The library takes an address of IPv6 for one that has no brackets. It writes it like that into
  /// the header Host, too; another Host it would look for in the certificate, with its port.
  static web::uri uri_for_library(const std::string& url) {
    const web::uri uri(url);
    const std::string host = uri.host();
    if (!host.starts_with('[') || !host.ends_with(']')) return uri;
    web::uri_builder bare(uri);
    bare.set_host(host.substr(1, host.size() - 2));
    return bare.to_uri();
  }

  /// Runs on every new connection, so that replaced files count. What cannot be loaded is left out,
  /// and the handshake then fails closed.
  void secure(boost::asio::ssl::context& context) const {
    SSL_CTX* native = context.native_handle();
    SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
    // In TLS 1.2 a server may ask for another handshake at any time; one is enough for a
    // connection.
    SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION);
    // A connection that waits, as most do, keeps no buffers: 34 KiB each.
    SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
    // A store of its own: the library has loaded the system's CAs into the context's.
    SSL_CTX_set_cert_store(native, store_of(pem_of(options_.ca)));
    if (options_.client_certificate.empty()) return;
    // Without a certificate the server answers 401, which is told.
    boost::system::error_code ignored;
    const std::string chain = pem_of(options_.client_certificate);
    const std::string key = pem_of(options_.client_key);
    context.use_certificate_chain(boost::asio::buffer(chain), ignored);
    context.use_private_key(boost::asio::buffer(key), boost::asio::ssl::context::pem, ignored);
  }

  Result<Answer> exchange(rest::client::http_client& client, const HttpRequest& request,
                          const Patience& patience, const Cancellation& cancel,
                          const std::shared_ptr<Inflow>& inflow) {
    rest::http_request message(request.method);
    try {
      message.set_request_uri(web::uri(request.path));
    } catch (const std::exception& thrown) {
      return Error(ErrorCode::kInvalid,
                   "path " + request.path.substr(0, 256) + ": " + thrown.what());
    }
    if (!request.body.empty()) {
      // As bytes: for strings the library casts between unrelated stream types.
      message.set_body(std::vector<std::uint8_t>(request.body.begin(), request.body.end()));
      message.headers().set_content_type(request.content_type);
    }
    message.headers().add("Accept", "application/json");
    if (!options_.user_agent.empty()) message.headers().add("User-Agent", options_.user_agent);
    if (const std::string token = token_.token(); !token.empty()) {
      message.headers().add("Authorization", "Bearer " + token);
    }
    const auto body = std::make_shared<Body>(inflow);
    message.set_response_stream(streams::streambuf<std::uint8_t>(body).create_ostream());
    pplx::task<rest::http_response> task;
    try {
      task = client.request(message, cancel.get_token());
    } catch (const std::exception& thrown) {
      return Error(ErrorCode::kUnavailable,
                   request.method + " " + options_.url + ": " + thrown.what());
    }
    auto head = await(task, *options_.clock, patience, cancel);
    if (!head) {
      body->leave();
      return explained(head.error()).with(request.method + " " + options_.url);
    }
    if (head->status_code() == rest::status_codes::Unauthorized) token_.expire();
    end_with(*head, body);
    return Answer{std::move(*head), body};
  }

  /// Of a handshake the library says that it failed, and not what to look at.
  Error explained(const Error& error) const {
    if (error.message() != "Error in SSL handshake") return error;
    constexpr const char* kNeeds =
        "the server must show a certificate in its time, for this host, by ";
    return Error(error.code(), kNeeds + name_of(options_.ca, kCa));
  }

  /// The library ends no body that is not its own.
  static void end_with(const rest::http_response& head, const std::shared_ptr<Body>& body) {
    // NOLINTNEXTLINE(performance-unnecessary-value-param): the library asks for this signature.
    head.content_ready().then([body](pplx::task<rest::http_response> whole) {
      try {
        whole.get();
        body->close(std::ios_base::out);
      } catch (...) {
        body->close(std::ios_base::out, std::current_exception());
      }
    });
  }

  Result<HttpResponse> read_body(const Answer& answer, const Patience& patience,
                                 const Cancellation& cancel) {
    const auto& [head, body] = answer;
    HttpResponse response;
    response.code = head.status_code();
    std::string retry_after;
    if (head.headers().match("Retry-After", retry_after) && !retry_after.empty() &&
        retry_after.find_first_not_of("0123456789") == std::string::npos &&
        retry_after.size() < 6) {
      response.retry_after = seconds(std::stol(retry_after));
    }
    const std::size_t size = expected_bytes(head);
    auto piece = std::make_shared<std::vector<std::uint8_t>>(size);
    for (;;) {
      auto task = body->getn(piece->data(), piece->size());
      auto read = await(task, *options_.clock, patience, cancel, piece);
      if (!read) {
        body->leave();
        return read.error().with("read the answer of " + options_.url);
      }
      // Asked for to the end, because only then the connection is free for the next exchange.
      if (*read == 0) return response;
      body->taken(*read);
      response.body.append(reinterpret_cast<const char*>(piece->data()), *read);
      if (response.body.size() > options_.body_bytes_max) {
        Cancellation(cancel).cancel();
        body->leave();
        return Error(ErrorCode::kTooLarge, "the answer of " + options_.url + " is larger than " +
                                               std::to_string(options_.body_bytes_max) + " bytes");
      }
    }
  }

  /// How many bytes are asked for at a time: most answers are small, and say how small.
  static std::size_t expected_bytes(const rest::http_response& head) {
    const auto told = head.headers().content_length();
    return told > 0 && told < kReadBytes ? static_cast<std::size_t>(told) : kReadBytes;
  }

  RestTransportOptions options_;
  Token token_;
  std::shared_ptr<rest::client::http_client> calls_;
};

bool is_loopback_http(const std::string& url) {
  for (const char* prefix : {"http://127.0.0.1:", "http://127.0.0.1/", "http://localhost:"}) {
    if (url.starts_with(prefix)) return true;
  }
  return false;
}

Result<std::string> readable_pem(const PemSource& source, const char* what) {
  if (source.empty()) return Error(ErrorCode::kInvalid, std::string(what) + ": is missing");
  std::string pem = source.text;
  if (pem.empty()) {
    MUSTER_ASSIGN_OR_RETURN(pem, read_small_file(source.file));
  }
  if (pem.find("-----BEGIN ") == std::string::npos) {
    return Error(ErrorCode::kInvalid, name_of(source, what) + ": holds no PEM block");
  }
  return pem;
}

Status check_client(const RestTransportOptions& options) {
  if (options.client_certificate.empty() && options.client_key.empty()) return {};
  constexpr const char* kCertificate = "the client certificate";
  constexpr const char* kKey = "the client key";
  MUSTER_ASSIGN_OR_RETURN(const std::string chain,
                          readable_pem(options.client_certificate, kCertificate));
  MUSTER_ASSIGN_OR_RETURN(const std::string key_pem, readable_pem(options.client_key, kKey));
  const std::string certificate_name = name_of(options.client_certificate, kCertificate);
  const CertificatePtr certificate = first_certificate(chain);
  if (certificate == nullptr) {
    return Error(ErrorCode::kInvalid, certificate_name + ": is no X.509 certificate");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return Error(ErrorCode::kInvalid, certificate_name + ": has expired; get a new kubeconfig");
  }
  const KeyPtr key(
      PEM_read_bio_PrivateKey(bio_of(key_pem).get(), nullptr, &no_pass_phrase, nullptr),
      &EVP_PKEY_free);
  if (key == nullptr) {
    return Error(ErrorCode::kInvalid, name_of(options.client_key, kKey) +
                                          ": is no private key in PEM without a pass phrase");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Error(ErrorCode::kInvalid,
                 name_of(options.client_key, kKey) + ": does not belong to the client certificate");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<HttpTransport>> make_rest_transport(RestTransportOptions options) {
  MUSTER_CHECK(options.clock != nullptr && options.threads >= 1);
  const bool tls = options.url.starts_with("https://");
  if (!tls && !is_loopback_http(options.url)) {
    return Error(ErrorCode::kInvalid,
                 "API server URL " + options.url.substr(0, 256) + ": must be https://HOST:PORT");
  }
  if (!web::uri::validate(options.url)) {
    return Error(ErrorCode::kInvalid,
                 "API server URL " + options.url.substr(0, 256) + ": not a URL");
  }
  if (tls) {
    MUSTER_ASSIGN_OR_RETURN(const std::string ca, readable_pem(options.ca, kCa));
    if (first_certificate(ca) == nullptr) {
      return Error(ErrorCode::kInvalid, name_of(options.ca, kCa) + ": is no X.509 certificate");
    }
  }
  MUSTER_RETURN_IF_ERROR(check_client(options));
  static std::once_flag once;
  std::call_once(once, [&] {
    crossplat::threadpool::initialize_with_threads(static_cast<std::size_t>(options.threads));
  });
  return std::unique_ptr<HttpTransport>(std::make_unique<RestTransport>(std::move(options)));
}

}  // namespace muster::kube
