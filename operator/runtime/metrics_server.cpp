#include "operator/runtime/metrics_server.h"

#include <mutex>
#include <shared_mutex>

#include "common/http/server.h"
#include "operator/runtime/token_review.h"

namespace muster::runtime {
namespace {

constexpr const char* kPath = "/metrics";

http::Response plain(int status, const std::string& text) {
  http::Response response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = text + "\n";
  return response;
}

http::Response refused_page(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kUnauthorized:
      return plain(401, error.message());
    case ErrorCode::kForbidden:
      return plain(403, error.message() + ": get on the non-resource URL /metrics");
    default:
      return plain(503, error.message());
  }
}

/// What the server's threads and the reviewer's share; an answer that comes late finds it closed.
struct Page {
  std::shared_mutex mutex;
  bool is_closed = false;  ///< guarded by mutex
  std::function<std::string()> render;
  std::string content_type;

  void show(const http::Responder& respond) {
    const std::shared_lock lock(mutex);
    if (is_closed) return respond(plain(503, "the operator is stopping"));
    http::Response response;
    response.content_type = content_type;
    response.body = render();
    respond(std::move(response));
  }
};

class HttpMetricsServer final : public MetricsServer {
 public:
  explicit HttpMetricsServer(MetricsServerOptions options)
      : options_(std::move(options)), page_(std::make_shared<Page>()) {
    page_->render = options_.render;
    page_->content_type = options_.content_type;
  }
  ~HttpMetricsServer() override { stop(); }

  Status listen() {
    http::ServerOptions server_options;
    server_options.address = options_.address;
    server_options.port = options_.port;
    server_options.tls = options_.tls;
    server_options.connections_max = 32;
    server_options.body_bytes_max = 1024;
    auto server = http::Server::start(
        server_options, [page = page_, reviewer = options_.reviewer](
                            const http::Request& request, const http::Responder& respond) {
          handle(page, reviewer, request, respond);
        });
    if (!server) return server.error().with("metrics");
    server_ = std::move(*server);
    return {};
  }

  int port() const override { return server_->port(); }
  std::string url() const override { return server_->url(); }
  Status replace_identity(const http::TlsIdentity& identity) override {
    return server_->replace_identity(identity);
  }
  void stop() override {
    if (!server_) return;
    {
      const std::unique_lock lock(page_->mutex);
      page_->is_closed = true;
    }
    server_->stop();
  }

 private:
  static void handle(const std::shared_ptr<Page>& page, Reviewer* reviewer,
                     const http::Request& request, const http::Responder& respond) {
    if (request.path != kPath) return respond(plain(404, "here is /metrics alone"));
    if (request.method != "GET") return respond(plain(405, "only GET is served here"));
    if (reviewer == nullptr) return page->show(respond);
    const std::string token(request.bearer_token());
    reviewer->who({token, "", "metrics"},
                  [page, reviewer, respond](const Result<TokenOwner>& owner) {
                    if (!owner) return respond(refused_page(owner.error()));
                    reviewer->may(*owner, "get", kPath, [page, respond](const Status& right) {
                      if (!right) return respond(refused_page(right.error()));
                      page->show(respond);
                    });
                  });
  }

  const MetricsServerOptions options_;
  const std::shared_ptr<Page> page_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(MetricsServerOptions options) {
  MUSTER_CHECK(options.render != nullptr);
  auto server = std::make_unique<HttpMetricsServer>(std::move(options));
  MUSTER_RETURN_IF_ERROR(server->listen());
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace muster::runtime
