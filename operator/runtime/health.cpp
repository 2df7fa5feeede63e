#include "operator/runtime/health.h"

#include "common/http/server.h"

namespace muster::runtime {
namespace {

class HttpHealth final : public Health {
 public:
  explicit HttpHealth(std::unique_ptr<http::Server> server) : server_(std::move(server)) {}
  ~HttpHealth() override { server_->stop(); }
  int port() const override { return server_->port(); }
  void stop() override { server_->stop(); }

 private:
  std::unique_ptr<http::Server> server_;
};

http::Response text_response(int status, std::string body) {
  http::Response response;
  response.status = status;
  response.content_type = "text/plain; charset=utf-8";
  response.body = std::move(body);
  return response;
}

http::Response verdict(const std::function<std::string()>& why_not) {
  const std::string reason = why_not ? why_not() : std::string();
  return reason.empty() ? text_response(200, "ok\n") : text_response(500, reason + "\n");
}

}  // namespace

Result<std::unique_ptr<Health>> Health::start(const HealthOptions& options) {
  http::ServerOptions server;
  server.address = options.address;
  server.port = options.port;
  server.connections_max = 32;
  server.body_bytes_max = 1024;
  auto started = http::Server::start(
      server, [options](const http::Request& request, const http::Responder& respond) {
        if (request.method != "GET") return respond(text_response(405, "GET only\n"));
        if (request.path == "/healthz") return respond(verdict(options.not_alive));
        if (request.path == "/readyz") return respond(verdict(options.not_ready));
        respond(text_response(404, "/healthz or /readyz\n"));
      });
  if (!started) return started.error().with("health probes");
  return std::unique_ptr<Health>(std::make_unique<HttpHealth>(std::move(*started)));
}

}  // namespace muster::runtime
