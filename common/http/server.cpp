#include "common/http/server.h"

#include <fcntl.h>

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <variant>

#include "common/contract.h"
#include "common/http/request_parser.h"
#include "common/http/tls_context.h"
#include "common/log.h"

namespace muster::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

class Session;

constexpr std::size_t kMaxDrainBytes = std::size_t{1024} * 1024;

/// What server and sessions share. Sessions hold it by shared_ptr, so that the IO context outlives
/// every socket, whoever still holds a session.
struct Core {
  explicit Core(ServerOptions given, Handler answer)
      : options(std::move(given)), handler(std::move(answer)), io(options.threads) {}

  ServerOptions options;
  Handler handler;
  asio::io_context io;
  std::mutex mutex;
  bool is_stopping = false;                              ///< guarded by mutex
  TlsContext tls;                                        ///< guarded by mutex; nullptr = plain
  std::list<std::shared_ptr<Session>> sessions;          ///< oldest first; guarded by mutex
  std::set<std::shared_ptr<asio::steady_timer>> timers;  ///< guarded by mutex
};

/// Programs started by this one must not hold its connections open. Asio has no close-on-exec.
void close_on_exec(int fd) { (void)fcntl(fd, F_SETFD, FD_CLOEXEC); }

/// One connection. Everything but respond() runs on its strand.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<Core> core, tcp::socket socket, TlsContext tls)
      : core_(std::move(core)),
        tls_(std::move(tls)),
        buffer_(core_->options.header_bytes_max + core_->options.body_bytes_max + 1024) {
    if (tls_) {
      stream_.emplace<TlsStream>(std::move(socket), *tls_);
    } else {
      stream_.emplace<beast::tcp_stream>(std::move(socket));
    }
  }

  void start() {
    asio::dispatch(tcp_stream().get_executor(), [self = shared_from_this()] {
      if (self->tls_) return self->shake_hands();
      self->wait_for_request(self->core_->options.request_timeout);
    });
  }

  /// Whether closing it loses no request: one that is not whole is none, so that who sends one byte
  /// keeps nobody out. Threads: any.
  bool is_idle() const { return is_idle_; }

  /// Closes the socket; pending operations end with an error. Threads: any.
  void close_soon() {
    asio::post(tcp_stream().get_executor(), [self = shared_from_this()] { self->close(); });
  }

 private:
  using TlsStream = beast::ssl_stream<beast::tcp_stream>;

  /// The connection itself, with its deadline.
  beast::tcp_stream& tcp_stream() {
    if (auto* const tls = std::get_if<TlsStream>(&stream_)) return tls->next_layer();
    return std::get<beast::tcp_stream>(stream_);
  }

  /// Calls `use` with the stream that requests and answers go through.
  template <typename Use>
  void with_stream(Use use) {
    if (auto* const tls = std::get_if<TlsStream>(&stream_)) return use(*tls);
    use(std::get<beast::tcp_stream>(stream_));
  }

  void shake_hands() {
    tcp_stream().expires_after(core_->options.request_timeout);
    std::get<TlsStream>(stream_).async_handshake(
        asio::ssl::stream_base::server, [self = shared_from_this()](error_code code) {
          if (!code) return self->wait_for_request(self->core_->options.request_timeout);
          if (code.category() == asio::error::get_ssl_category() &&
              ERR_GET_REASON(static_cast<unsigned long>(code.value())) == SSL_R_HTTP_REQUEST) {
            return self->answer_plain();
          }
          self->close();
        });
  }

  /// Somebody speaks plain HTTP to a TLS port, by mistake most likely: the answer says so.
  void answer_plain() {
    plain_answer_ =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
        "this port speaks TLS: use https\n";
    asio::async_write(tcp_stream(), asio::buffer(plain_answer_),
                      [self = shared_from_this()](error_code code, std::size_t) {
                        if (code) return self->close();
                        self->linger();
                      });
  }

  void wait_for_request(milliseconds timeout) {
    parser_.emplace();
    bound_request(*parser_, core_->options);
    is_idle_ = true;
    if (buffer_.size() > 0) return read_request();
    tcp_stream().expires_after(timeout);
    with_stream([this](auto& stream) {
      stream.async_read_some(buffer_.prepare(4096),
                             [self = shared_from_this()](error_code code, std::size_t bytes) {
                               if (code) return self->close();
                               self->buffer_.commit(bytes);
                               self->read_request();
                             });
    });
  }

  void read_request() {
    tcp_stream().expires_after(core_->options.request_timeout);
    with_stream([this](auto& stream) {
      bhttp::async_read(
          stream, buffer_, *parser_,
          [self = shared_from_this()](error_code code, std::size_t) { self->on_request(code); });
    });
  }

  void on_request(error_code code) {
    if (code) return on_bad_request(code);
    is_idle_ = false;
    tcp_stream().expires_never();
    keep_alive_ = parser_->get().keep_alive();
    const Request request = take_request(*parser_);
    auto is_answered = std::make_shared<std::atomic<bool>>(false);
    Responder respond = [weak = weak_from_this(), is_answered](Response response) {
      if (is_answered->exchange(true)) return;
      const auto self = weak.lock();
      if (!self) return;
      // The task holds the session weakly: left over in a stopped context it must not keep it.
      asio::post(self->tcp_stream().get_executor(),
                 [weak, response = std::move(response)]() mutable {
                   if (const auto session = weak.lock()) session->write(std::move(response));
                 });
    };
    try {
      core_->handler(request, respond);
    } catch (const std::exception& thrown) {
      log_error("http handler failed", {{"path", request.path}, {"error", thrown.what()}});
      respond(Response{500, "text/plain", "internal error\n", {}});
    }
  }

  void on_bad_request(error_code code) {
    auto response = refusal_of_request(code, core_->options);
    if (!response) return close();
    keep_alive_ = false;
    write(std::move(*response));
  }

  void write(Response response) {
    answer_ = {};
    answer_.version(11);
    answer_.result(static_cast<unsigned>(response.status));
    answer_.set(bhttp::field::content_type, response.content_type);
    for (const auto& [name, value] : response.headers) answer_.set(name, value);
    answer_.keep_alive(keep_alive_);
    answer_.body() = std::move(response.body);
    answer_.prepare_payload();
    tcp_stream().expires_after(core_->options.request_timeout);
    with_stream([this](auto& stream) {
      bhttp::async_write(stream, answer_,
                         [self = shared_from_this()](error_code code, std::size_t) {
                           if (code) return self->close();
                           if (!self->keep_alive_) return self->finish();
                           self->wait_for_request(self->core_->options.idle_timeout);
                         });
    });
  }

  /// Over TLS the client is told that no more comes before the connection is closed. It has its
  /// answer: who then stays keeps nobody out.
  void finish() {
    is_idle_ = true;
    tcp_stream().expires_after(std::min(core_->options.request_timeout, milliseconds(1'000)));
    auto* const tls = std::get_if<TlsStream>(&stream_);
    if (tls == nullptr) return linger();
    // Its outcome does not matter: a client may send what it likes after the farewell.
    tls->async_shutdown([self = shared_from_this()](error_code) { self->linger(); });
  }

  /// Reads on for a moment before closing: a close with unread bytes resets the connection, and the
  /// client would lose the answer that says what was wrong.
  void linger() {
    error_code ignored;  // a client that is gone already needs no farewell
    (void)tcp_stream().socket().shutdown(tcp::socket::shutdown_send, ignored);
    tcp_stream().expires_after(std::min(core_->options.request_timeout, milliseconds(1'000)));
    drain(kMaxDrainBytes);
  }

  void drain(std::size_t bytes_left) {
    tcp_stream().async_read_some(asio::buffer(drained_), [self = shared_from_this(), bytes_left](
                                                             error_code code, std::size_t bytes) {
      if (code || bytes >= bytes_left) return self->close();
      self->drain(bytes_left - bytes);
    });
  }

  void close() {
    tcp_stream().close();
    const std::lock_guard lock(core_->mutex);
    core_->sessions.remove(shared_from_this());
  }

  std::shared_ptr<Core> core_;
  TlsContext tls_;  ///< outlives the stream below; nullptr = plain
  std::variant<std::monostate, beast::tcp_stream, TlsStream> stream_;
  beast::flat_buffer buffer_;
  std::optional<RequestParser> parser_;
  bhttp::response<bhttp::string_body> answer_;
  std::string plain_answer_;
  std::array<char, 4096> drained_;
  bool keep_alive_ = false;
  std::atomic<bool> is_idle_ = true;
};

class BeastServer final : public Server {
 public:
  explicit BeastServer(std::shared_ptr<Core> core)
      : core_(std::move(core)),
        acceptor_(asio::make_strand(core_->io)),
        retry_(acceptor_.get_executor()) {}
  ~BeastServer() override { stop(); }

  Status listen() {
    const auto& options = core_->options;
    const std::string where = options.address + ":" + std::to_string(options.port);
    const auto fail = [&](const error_code& code) {
      return Error(ErrorCode::kIo, "listen on " + where + ": " + code.message())
          .with_exit_code(contract::exit_code::kPort);
    };
    error_code code;
    const auto address = asio::ip::make_address(options.address, code);
    if (code) return fail(code);
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(options.port));
    if (acceptor_.open(endpoint.protocol(), code); code) return fail(code);
    close_on_exec(acceptor_.native_handle());
    (void)acceptor_.set_option(asio::socket_base::reuse_address(true), code);
    if (code) return fail(code);
    if (acceptor_.bind(endpoint, code); code) return fail(code);
    if (acceptor_.listen(asio::socket_base::max_listen_connections, code); code) return fail(code);
    endpoint_ = acceptor_.local_endpoint(code);
    if (code) return fail(code);
    return {};
  }

  Status replace_identity(const TlsIdentity& identity) override {
    if (!core_->options.tls) return Error(ErrorCode::kUnsupported, "this server speaks plain HTTP");
    MUSTER_ASSIGN_OR_RETURN(TlsContext made, make_server_context(identity));
    const std::lock_guard lock(core_->mutex);
    core_->tls = std::move(made);
    return {};
  }

  void run() {
    work_.emplace(core_->io.get_executor());
    asio::post(acceptor_.get_executor(), [this] { accept(); });
    for (int i = 0; i < core_->options.threads; ++i) {
      threads_.emplace_back([core = core_] { run_context(*core); });
    }
  }

  int port() const override { return endpoint_.port(); }

  std::string url() const override {
    const std::string host = endpoint_.address().to_string();
    const std::string scheme = core_->options.tls ? "https://" : "http://";
    return scheme + (endpoint_.address().is_v6() ? "[" + host + "]" : host) + ":" +
           std::to_string(port());
  }

  void run_after(milliseconds delay, std::function<void()> task) override {
    auto timer = std::make_shared<asio::steady_timer>(core_->io);
    const std::lock_guard lock(core_->mutex);
    if (core_->is_stopping) return;
    core_->timers.insert(timer);
    timer->expires_after(delay);
    timer->async_wait([core = core_.get(), timer, task = std::move(task)](error_code code) {
      {
        const std::lock_guard inner(core->mutex);
        core->timers.erase(timer);
        if (core->is_stopping) return;
      }
      if (!code) task();
    });
  }

  void stop() override {
    {
      const std::lock_guard lock(core_->mutex);
      if (core_->is_stopping) return;
      core_->is_stopping = true;
      for (const auto& timer : core_->timers) timer->cancel();
    }
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;  // closing an open listener cannot fail in a way that matters
      (void)acceptor_.close(ignored);
      retry_.cancel();
      const std::lock_guard lock(core_->mutex);
      for (const auto& session : core_->sessions) session->close_soon();
    });
    // With every socket closed and timer cancelled the context runs out of work by itself, so that
    // no handler is left behind holding a session.
    work_.reset();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    std::list<std::shared_ptr<Session>> left;
    const std::lock_guard lock(core_->mutex);
    left.swap(core_->sessions);
  }

 private:
  static void run_context(Core& core) {
    while (true) {
      try {
        core.io.run();
        return;
      } catch (const std::exception& thrown) {
        // Only a task of run_after or a lack of memory can get here; the server goes on.
        log_error("http server task failed", {{"error", thrown.what()}});
      }
    }
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(core_->io),
                           [this](error_code code, tcp::socket socket) {
                             if (!acceptor_.is_open()) return;
                             if (code) return accept_later();
                             admit(std::move(socket));
                             accept();
                           });
  }

  /// Out of descriptors, most likely; some will be free again.
  void accept_later() {
    retry_.expires_after(milliseconds(100));
    retry_.async_wait([this](error_code code) {
      if (!code && acceptor_.is_open()) accept();
    });
  }

  void admit(tcp::socket socket) {
    close_on_exec(socket.native_handle());
    error_code ignored;  // without it answers are merely slower
    (void)socket.set_option(tcp::no_delay(true), ignored);
    TlsContext tls;
    {
      const std::lock_guard lock(core_->mutex);
      tls = core_->tls;
    }
    auto session = std::make_shared<Session>(core_, std::move(socket), std::move(tls));
    {
      const std::lock_guard lock(core_->mutex);
      if (core_->is_stopping) return;
      if (core_->sessions.size() >= core_->options.connections_max && !evict_idle()) return;
      core_->sessions.push_back(session);
    }
    session->start();
  }

  /// Core's mutex is held.
  bool evict_idle() {
    for (auto it = core_->sessions.begin(); it != core_->sessions.end(); ++it) {
      if (!(*it)->is_idle()) continue;
      (*it)->close_soon();
      core_->sessions.erase(it);
      return true;
    }
    return false;
  }

  std::shared_ptr<Core> core_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  tcp::endpoint endpoint_;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler) {
  MUSTER_CHECK(options.threads >= 1 && handler);
  const auto tls = options.tls;
  auto server =
      std::make_unique<BeastServer>(std::make_shared<Core>(std::move(options), std::move(handler)));
  if (tls) MUSTER_RETURN_IF_ERROR(server->replace_identity(*tls));
  MUSTER_RETURN_IF_ERROR(server->listen());
  server->run();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace muster::http
